use super::reference;
use super::support::{Cases, Guarded, Random, Worst, every_f32, lengths, sampled_f32};
use crate::activation::{HALF_ERF, SEGMENTS_PER_UNIT};
use crate::{
    Activation, GELU_MAX_ABSOLUTE_ERROR, GELU_TANH_MAX_ERROR, Isa, SILU_MAX_ERROR, TANH_MAX_ABSOLUTE_ERROR, activate,
};

/// An activation with its reference, the bound of its error, and whether that is relative to max(1, |x|).
type Row = (Activation, fn(f64) -> f64, f64, bool);

const ALL: [Row; 5] = [
    (Activation::Gelu, reference::gelu, GELU_MAX_ABSOLUTE_ERROR, false),
    (Activation::GeluTanh, reference::gelu_tanh, GELU_TANH_MAX_ERROR, true),
    (Activation::Relu, |x| x.max(0.0), 0.0, false),
    (Activation::Silu, reference::silu, SILU_MAX_ERROR, true),
    (Activation::Tanh, f64::tanh, TANH_MAX_ABSOLUTE_ERROR, false),
];

/// Evaluates an activation with every instruction set.
fn measure(worst: &mut [Worst], (activation, reference, _, relative): Row, x: &[f32]) {
    let exact: Vec<f64> = x.iter().map(|x| reference(f64::from(*x))).collect();
    for worst in worst {
        let mut y = x.to_vec();
        activate(worst.isa, activation, &mut y);
        for ((x, y), exact) in x.iter().zip(y).zip(&exact) {
            let mut error = (f64::from(y) - exact).abs();
            if relative {
                error /= f64::from(*x).abs().max(1.0);
            }
            worst.take(error, *x);
        }
    }
}

fn check(cases: &mut Cases, worst: &[Worst], row: Row) {
    for Worst { isa, error, at } in worst {
        cases.check(*error <= row.2, || format!("{} {:?}({at:?}) is off by {error:e}", isa.name(), row.0));
    }
}

#[test]
fn activations_are_accurate() {
    let mut cases = Cases::default();
    // Every 0.0001 where the functions bend, then all magnitudes.
    let x: Vec<f32> = (-200_000..=200_000).map(|i| i as f32 * 1e-4).chain(sampled_f32()).collect();
    for row in ALL {
        let mut worst = Worst::of_each();
        measure(&mut worst, row, &x);
        check(&mut cases, &worst, row);
    }
}

/// All of f32, some minutes for each activation:
/// `cargo test --release -p simile-kernels every_f32 -- --ignored`
#[test]
#[ignore = "four billion values each; run it after a change of the functions or their tables"]
fn activations_are_accurate_for_every_f32() {
    let mut cases = Cases::default();
    for row in ALL {
        let mut worst = Worst::of_each();
        for mut x in every_f32() {
            x.retain(|x| x.is_finite());
            measure(&mut worst, row, &x);
        }
        check(&mut cases, &worst, row);
    }
}

#[test]
fn gelu_is_exact_far_from_zero() {
    for isa in Isa::available() {
        let mut y = [-1e30, -100.0, -5.7, 0.0, 5.7, 100.0, 1e30, f32::INFINITY];
        activate(isa, Activation::Gelu, &mut y);
        assert_eq!(y, [0.0, 0.0, 0.0, 0.0, 5.7, 100.0, 1e30, f32::INFINITY], "{}", isa.name());
    }
}

#[test]
fn nan_stays_nan() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for row in ALL {
            for bits in [0x7fc0_0000, 0xffc0_0000, 0x7fc0_01ff, 0x7fff_ffff, 0x7f80_0001] {
                let mut y = vec![f32::from_bits(bits); 20];
                activate(isa, row.0, &mut y);
                cases.check(y.iter().all(|y| y.is_nan()), || format!("{} {:?}({bits:x}) is {y:?}", isa.name(), row.0));
            }
        }
    }
}

#[test]
fn every_length_gives_the_bytes_of_its_values() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for row in ALL {
            for n in lengths() {
                let x = Random(n as u64).units(n);
                let mut whole = Guarded::new(&x);
                activate(isa, row.0, &mut whole);
                let each: Vec<f32> = x
                    .iter()
                    .map(|x| {
                        let mut y = [*x];
                        activate(isa, row.0, &mut y);
                        y[0]
                    })
                    .collect();
                cases.same(&whole, &each, || format!("{} {:?} of {n}", isa.name(), row.0));
            }
        }
    }
}

/// The table is data; this is what it claims.
#[test]
fn the_half_erf_table_is_half_erf() {
    let mut cases = Cases::default();
    for segment in 0..16 {
        for step in -100..=100 {
            let d = f64::from(step) / 200.0;
            let x = (f64::from(segment) + d) / f64::from(SEGMENTS_PER_UNIT);
            if x < 0.0 {
                continue;
            }
            let value = (0..5).rev().fold(0.0, |sum, c| sum * d + f64::from(HALF_ERF[c][segment as usize]));
            let error = x * (value - reference::erf(x / std::f64::consts::SQRT_2) / 2.0).abs();
            cases.check(error <= 1.7e-7, || format!("segment {segment} at {d}: off by {error:e}"));
        }
    }
}
