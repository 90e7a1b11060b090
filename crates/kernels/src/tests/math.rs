use super::support::Cases;
use crate::math::{exp, exp2_nonpositive};
use crate::simd::{Simd, SimdOp};
use crate::{EXP_MAX_RELATIVE_ERROR, EXP2_MAX_RELATIVE_ERROR, Isa};

#[derive(Clone, Copy, Debug)]
enum Which {
    Exp2Nonpositive,
    Exp,
}

struct Evaluate<'a>(Which, &'a mut [f32]);

impl SimdOp for Evaluate<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        for chunk in self.1.chunks_exact_mut(S::LANES) {
            let x = simd.read(chunk);
            let y = match self.0 {
                Which::Exp2Nonpositive => exp2_nonpositive(simd, x),
                Which::Exp => exp(simd, x),
            };
            simd.write(chunk, y);
        }
    }
}

/// The worst relative error of a multiple of 16 inputs, and where.
fn worst(isa: Isa, which: Which, x: &[f32]) -> (f64, f32) {
    assert!(x.len().is_multiple_of(16));
    let mut y = x.to_vec();
    isa.run(Evaluate(which, &mut y));
    let mut worst = (0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        let exact = match which {
            Which::Exp2Nonpositive => f64::from(*x).exp2(),
            Which::Exp => f64::from(*x).exp(),
        };
        let error = if exact >= f64::from(f32::MIN_POSITIVE) {
            (f64::from(y) - exact).abs() / exact
        } else {
            // Denormal or 0, nothing greater.
            if (0.0..1.01 * f32::MIN_POSITIVE).contains(&y) { 0.0 } else { f64::INFINITY }
        };
        if error > worst.0 || error.is_nan() {
            worst = (error, *x);
        }
    }
    worst
}

const ALL: [(Which, f32, f32, f64); 2] = [
    (Which::Exp2Nonpositive, f32::NEG_INFINITY, 0.0, EXP2_MAX_RELATIVE_ERROR),
    // Up to the greatest argument whose rounded binary exponent is that of a finite number.
    (Which::Exp, f32::NEG_INFINITY, 88.37, EXP_MAX_RELATIVE_ERROR),
];

#[test]
fn exponentials_are_accurate() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for (which, _, greatest, bound) in ALL {
            let x: Vec<f32> = (0..1_600_000).map(|i| greatest - i as f32 * 1.4e-4).collect();
            let (error, at) = worst(isa, which, &x);
            cases.check(error <= bound, || format!("{} {which:?}({at:?}) is off by {error:e}", isa.name()));
        }
    }
}

/// All of f32, some minutes an instruction set:
/// `cargo test --release -p simile-kernels every_f32 -- --ignored`
#[test]
#[ignore = "four billion values each; run it after a change of the polynomials"]
fn exponentials_are_accurate_for_every_f32() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for (which, least, greatest, bound) in ALL {
            let mut overall = (0.0, 0.0);
            for high in 0..1u32 << 12 {
                let x: Vec<f32> = (0..1u32 << 20)
                    .map(|low| f32::from_bits(high << 20 | low))
                    .map(|x| if x >= least && x <= greatest { x } else { 0.0 })
                    .collect();
                let found = worst(isa, which, &x);
                if found.0 > overall.0 || found.0.is_nan() {
                    overall = found;
                }
            }
            let (error, at) = overall;
            cases.check(error <= bound, || format!("{} {which:?}({at:?}) is off by {error:e}", isa.name()));
        }
    }
}

#[test]
fn special_values() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        let nan = f32::from_bits(0x7fc0_01ff);
        let mut powers = [
            0.0,
            -0.0,
            -1.0,
            -126.0,
            -127.0,
            -1000.0,
            f32::MIN,
            f32::NEG_INFINITY,
            nan,
            -2.0,
            0.0,
            0.0,
            0.0,
            0.0,
            0.0,
            0.0,
        ];
        let expected = [1.0, 1.0, 0.5, f32::MIN_POSITIVE, 0.0, 0.0, 0.0, 0.0, f32::NAN, 0.25];
        isa.run(Evaluate(Which::Exp2Nonpositive, &mut powers));
        for (i, (actual, expected)) in powers.iter().zip(expected).enumerate() {
            let same = *actual == expected || (actual.is_nan() && expected.is_nan());
            cases.check(same, || format!("{} 2^ [{i}]: {actual} not {expected}", isa.name()));
        }
        let mut exponentials = [
            0.0,
            -0.0,
            1000.0,
            f32::MAX,
            f32::INFINITY,
            -1000.0,
            f32::MIN,
            f32::NEG_INFINITY,
            nan,
            -nan,
            0.0,
            0.0,
            0.0,
            0.0,
            0.0,
            0.0,
        ];
        let expected = [1.0, 1.0, f32::INFINITY, f32::INFINITY, f32::INFINITY, 0.0, 0.0, 0.0, f32::NAN, f32::NAN];
        isa.run(Evaluate(Which::Exp, &mut exponentials));
        for (i, (actual, expected)) in exponentials.iter().zip(expected).enumerate() {
            let same = *actual == expected || (actual.is_nan() && expected.is_nan());
            cases.check(same, || format!("{} e^ [{i}]: {actual} not {expected}", isa.name()));
        }
    }
}
