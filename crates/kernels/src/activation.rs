//! Activation functions, named as `hidden_act` of a model's `config.json` names them.
//!
//! Contract: NaN in, NaN out. Accuracy is a constant per function; the reference is the formula in exact arithmetic.
//! Cost: GELU is about 12 instructions a vector (AVX-512), the others an exponential and a division.

use crate::isa::Isa;
use crate::math::{ROUND, exp};
use crate::simd::{Simd, SimdOp};

/// Greatest absolute error of [`Activation::Gelu`], for every f32.
pub const GELU_MAX_ABSOLUTE_ERROR: f64 = 5e-7;

/// Greatest error of [`Activation::GeluTanh`], relative to max(1, |x|).
pub const GELU_TANH_MAX_ERROR: f64 = 2e-7;

/// Greatest error of [`Activation::Silu`], relative to max(1, |x|).
pub const SILU_MAX_ERROR: f64 = 2e-7;

/// Greatest absolute error of [`Activation::Tanh`].
pub const TANH_MAX_ABSOLUTE_ERROR: f64 = 1.5e-7;

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * Phi(x)` with the normal distribution function, that is `x/2 * (1 + erf(x / sqrt 2))`: `gelu`.
    Gelu,
    /// `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`: `gelu_new`, `gelu_pytorch_tanh`.
    GeluTanh,
    /// `max(x, 0)`: `relu`.
    Relu,
    /// `x / (1 + e^-x)`: `silu`, `swish`.
    Silu,
    /// `tanh(x)`: `tanh`.
    Tanh,
}

/// Applies `activation` to every value.
pub fn activate(isa: Isa, activation: Activation, values: &mut [f32]) {
    match activation {
        Activation::Gelu => isa.run(Map { values, function: Gelu }),
        Activation::GeluTanh => isa.run(Map { values, function: GeluTanh }),
        Activation::Relu => isa.run(Map { values, function: Relu }),
        Activation::Silu => isa.run(Map { values, function: Silu }),
        Activation::Tanh => isa.run(Map { values, function: Tanh }),
    }
}

/// A function of each lane. Implementations must be `#[inline(always)]`.
pub(crate) trait Function: Copy {
    fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32;
}

/// A function of every value of a slice.
struct Map<'a, F> {
    values: &'a mut [f32],
    function: F,
}

impl<F: Function> SimdOp for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let mut chunks = self.values.chunks_exact_mut(S::LANES);
        for chunk in &mut chunks {
            let x = simd.read(chunk);
            simd.write(chunk, self.function.apply(simd, x));
        }
        let tail = chunks.into_remainder();
        let x = simd.read_part(tail);
        simd.write_part(tail, self.function.apply(simd, x));
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Gelu;
#[derive(Clone, Copy)]
pub(crate) struct GeluTanh;
#[derive(Clone, Copy)]
pub(crate) struct Relu;
#[derive(Clone, Copy)]
pub(crate) struct Silu;
#[derive(Clone, Copy)]
pub(crate) struct Tanh;

/// Segments of [`HALF_ERF`] per unit of |x|: from segment 14.5 (|x| = 5.5) on, half erf is 1/2 to the last bit but one.
pub(crate) const SEGMENTS_PER_UNIT: f32 = 14.5 / 5.5;

/// `erf(|x| / sqrt 2) / 2` as 16 polynomials of degree 4. Column `s` holds the coefficients of
/// `c0 + c1 d + c2 d^2 + c3 d^3 + c4 d^4` for `|x| * SEGMENTS_PER_UNIT = s + d`, |d| <= 1/2.
///
/// Each is the polynomial with the least greatest error (Remez), rounded to f32. Segment 0 has c0 = 0 so that GELU
/// keeps its relative accuracy near 0, and the last segment is the constant 1/2 so that GELU is exactly x, or 0, from
/// there on. The greatest error of x times the polynomial is 1.6e-7 before the rounding of its evaluation.
pub(crate) const HALF_ERF: [[f32; 16]; 5] = [
    [
        0.0, 0.14777128, 0.27596024, 0.37242535, 0.43539712, 0.47105643, 0.48857287, 0.49603662, 0.49879527,
        0.49967968, 0.4999256, 0.49998492, 0.49999735, 0.49999958, 0.49999994, 0.5,
    ],
    [
        0.15132277,
        0.14081836,
        0.113484226,
        0.07920053,
        0.04786689,
        0.025052683,
        0.0113548655,
        0.004456712,
        0.0015147708,
        0.00044583436,
        0.000113628674,
        2.5077417e-5,
        4.7923645e-6,
        7.9301213e-7,
        1.1362203e-7,
        0.0,
    ],
    [
        4.708461e-6,
        -0.0101298895,
        -0.0163273,
        -0.017092261,
        -0.013773678,
        -0.009011259,
        -0.0049012084,
        -0.00224437,
        -0.0008718347,
        -0.00028869088,
        -8.175795e-5,
        -1.984947e-5,
        -4.1385047e-6,
        -7.4196475e-7,
        -1.14500835e-7,
        0.0,
    ],
    [
        -0.003662287,
        -0.0028746163,
        -0.0011558244,
        0.0005469168,
        0.0014802841,
        0.0015524382,
        0.0011372338,
        0.0006490528,
        0.00030082747,
        0.000115583534,
        3.7253772e-5,
        1.0148731e-5,
        2.3487692e-6,
        4.6348788e-7,
        7.819472e-8,
        0.0,
    ],
    [
        8.869441e-5,
        0.0003434613,
        0.000470927,
        0.00034783286,
        0.00011619665,
        -6.267855e-5,
        -0.00012685687,
        -0.00010864942,
        -6.506128e-5,
        -3.0205181e-5,
        -1.1326104e-5,
        -3.502843e-6,
        -9.046525e-7,
        -1.9667637e-7,
        -3.6194592e-8,
        0.0,
    ],
];

impl Function for Gelu {
    /// x/2 + |x| * half erf(|x|): half erf is odd, so the sign of x cancels.
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32 {
        let magnitude = simd.abs(x);
        let position = simd.min(simd.splat(15.0), simd.mul(magnitude, simd.splat(SEGMENTS_PER_UNIT)));
        let rounded = simd.add(position, simd.splat(ROUND));
        let d = simd.sub(position, simd.sub(rounded, simd.splat(ROUND)));
        let mut half_erf = simd.lookup16(&HALF_ERF[4], rounded);
        half_erf = simd.mul_add(half_erf, d, simd.lookup16(&HALF_ERF[3], rounded));
        half_erf = simd.mul_add(half_erf, d, simd.lookup16(&HALF_ERF[2], rounded));
        half_erf = simd.mul_add(half_erf, d, simd.lookup16(&HALF_ERF[1], rounded));
        half_erf = simd.mul_add(half_erf, d, simd.lookup16(&HALF_ERF[0], rounded));
        simd.mul_add(magnitude, half_erf, simd.mul(x, simd.splat(0.5)))
    }
}

impl Function for GeluTanh {
    /// (1 + tanh u)/2 = 1 / (1 + e^-2u).
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32 {
        // -2 sqrt(2/pi), and that times 0.044715.
        let cubic = simd.mul_add(simd.mul(x, x), simd.splat(-0.071_354_82), simd.splat(-1.595_769_2));
        let exponential = exp(simd, simd.mul(x, cubic));
        simd.div(x, simd.add(simd.splat(1.0), exponential))
    }
}

impl Function for Relu {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32 {
        simd.max(simd.splat(0.0), x)
    }
}

impl Function for Silu {
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32 {
        let exponential = exp(simd, simd.sub(simd.splat(0.0), x));
        simd.div(x, simd.add(simd.splat(1.0), exponential))
    }
}

impl Function for Tanh {
    /// (1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x, so that the function is exactly odd.
    #[inline(always)]
    fn apply<S: Simd>(self, simd: S, x: S::F32) -> S::F32 {
        let one = simd.splat(1.0);
        let exponential = exp(simd, simd.mul(simd.abs(x), simd.splat(-2.0)));
        simd.copysign(simd.div(simd.sub(one, exponential), simd.add(one, exponential)), x)
    }
}
