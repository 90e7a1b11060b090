use super::support::{Cases, Worst, every_f32, sampled_f32};
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

/// A function with the range in which it is looked at and the bound of its relative error.
type Row = (Which, f32, f32, f64);

const ALL: [Row; 2] = [
    (Which::Exp2Nonpositive, f32::NEG_INFINITY, 0.0, EXP2_MAX_RELATIVE_ERROR),
    // Up to the greatest argument whose rounded binary exponent is that of a finite number.
    (Which::Exp, f32::NEG_INFINITY, 88.37, EXP_MAX_RELATIVE_ERROR),
];

/// Evaluates a function with every instruction set, for a multiple of 16 inputs.
fn measure(worst: &mut [Worst], which: Which, x: &[f32]) {
    assert!(x.len().is_multiple_of(16));
    let exact: Vec<f64> = match which {
        Which::Exp2Nonpositive => x.iter().map(|x| f64::from(*x).exp2()).collect(),
        Which::Exp => x.iter().map(|x| f64::from(*x).exp()).collect(),
    };
    for worst in worst {
        let mut y = x.to_vec();
        worst.isa.run(Evaluate(which, &mut y));
        for ((x, y), exact) in x.iter().zip(y).zip(&exact) {
            let error = if *exact >= f64::from(f32::MIN_POSITIVE) {
                (f64::from(y) - exact).abs() / exact
            } else if (0.0..1.01 * f32::MIN_POSITIVE).contains(&y) {
                // Denormal or 0, nothing greater.
                0.0
            } else {
                f64::INFINITY
            };
            worst.take(error, *x);
        }
    }
}

fn check(cases: &mut Cases, worst: &[Worst], (which, _, _, bound): Row) {
    for Worst { isa, error, at } in worst {
        cases.check(*error <= bound, || format!("{} {which:?}({at:?}) is off by {error:e}", isa.name()));
    }
}

#[test]
fn exponentials_are_accurate() {
    let mut cases = Cases::default();
    for row @ (which, least, greatest, _) in ALL {
        let mut x: Vec<f32> = (0..1_600_000).map(|i| greatest - i as f32 * 1.4e-4).collect();
        x.extend(sampled_f32().filter(|x| (least..=greatest).contains(x)));
        x.resize(x.len().next_multiple_of(16), 0.0);
        let mut worst = Worst::of_each();
        measure(&mut worst, which, &x);
        check(&mut cases, &worst, row);
    }
}

/// All of f32, some minutes for each function:
/// `cargo test --release -p simile-kernels every_f32 -- --ignored`
#[test]
#[ignore = "four billion values each; run it after a change of the polynomials"]
fn exponentials_are_accurate_for_every_f32() {
    let mut cases = Cases::default();
    for row @ (which, least, greatest, _) in ALL {
        let mut worst = Worst::of_each();
        for mut x in every_f32() {
            for x in &mut x {
                if !(least..=greatest).contains(x) {
                    *x = 0.0;
                }
            }
            measure(&mut worst, which, &x);
        }
        check(&mut cases, &worst, row);
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
