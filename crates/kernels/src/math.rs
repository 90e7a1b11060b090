//! Functions of vectors: exponentials. Inlined into the operations that use them.
//!
//! Accuracy is stated as a constant per function. The tests verify it on two million values, and an ignored one on every
//! f32.

use crate::simd::Simd;

/// Greatest relative error of the powers of 2 in [`attention_head`](crate::attention_head) wherever the result is a
/// normal number. Smaller results are 0 (below 2^-126.5) or rounded to a denormal number.
pub const EXP2_MAX_RELATIVE_ERROR: f64 = 1.3e-7;

/// Greatest relative error of the exponentials in softmax and the activations, with the same provision.
pub const EXP_MAX_RELATIVE_ERROR: f64 = 1.3e-7;

/// 1.5 * 2^23: adding it to a number below 2^22 rounds that number to an integer in the lowest bits of the sum.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// [`ROUND`] with the bias of an f32 exponent in the lowest bits: a rounded integer arrives as a biased exponent.
const ROUND_TO_EXPONENT: f32 = ROUND + 127.0;

/// 2^f for |f| <= 1/2: the polynomial of degree 6 with the least greatest relative error, 1.9e-9 before rounding.
const EXP2_POLYNOMIAL: [f32; 7] =
    [1.0, std::f32::consts::LN_2, 0.240_226_46, 0.055_503_286, 0.009_618_489, 0.001_339_993_1, 0.000_153_458_12];

/// e^f for |f| <= ln(2)/2: as above.
const EXP_POLYNOMIAL: [f32; 7] = [1.0, 1.0, 0.499_999_9, 0.166_664_2, 0.041_668_225, 0.008_374_816, 0.001_383_684_6];

/// ln 2 in two parts: the first has so few bits that its product with any exponent is exact.
const LN_2_HIGH: f32 = 355.0 / 512.0;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `c[0] + c[1] x + ...`
#[inline(always)]
pub(crate) fn polynomial<S: Simd, const N: usize>(simd: S, coefficients: &[f32; N], x: S::F32) -> S::F32 {
    let mut sum = simd.splat(coefficients[N - 1]);
    for i in 1..N {
        sum = simd.mul_add(sum, x, simd.splat(coefficients[N - 1 - i]));
    }
    sum
}

/// 2^x where no x is above 0, for softmax: exactly 1 at 0, exactly 0 at negative infinity, NaN for NaN.
#[inline(always)]
pub(crate) fn exp2_nonpositive<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    // At -127 the biased exponent is 0 and 2^-127 becomes 0, so everything below is 0 too.
    let x = simd.max(simd.splat(-127.0), x);
    let rounded = simd.add(x, simd.splat(ROUND_TO_EXPONENT));
    let fraction = simd.sub(x, simd.sub(rounded, simd.splat(ROUND_TO_EXPONENT)));
    // A product with the power, rather than a sum of exponents, keeps NaN.
    simd.mul(polynomial(simd, &EXP2_POLYNOMIAL, fraction), simd.low_bits_to_exponent(rounded))
}

/// e^x for any x: 0 far below 0, infinite from about 88.4 on, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let log2_e = simd.splat(std::f32::consts::LOG2_E);
    // Beyond these the exponent is that of 0 or of infinity.
    let x = simd.max(simd.splat(-88.1), simd.min(simd.splat(88.8), x));
    let rounded = simd.mul_add(x, log2_e, simd.splat(ROUND_TO_EXPONENT));
    let exponent = simd.sub(rounded, simd.splat(ROUND_TO_EXPONENT));
    let fraction = simd.mul_add(exponent, simd.splat(-LN_2_HIGH), x);
    let fraction = simd.mul_add(exponent, simd.splat(-LN_2_LOW), fraction);
    simd.mul(polynomial(simd, &EXP_POLYNOMIAL, fraction), simd.low_bits_to_exponent(rounded))
}
