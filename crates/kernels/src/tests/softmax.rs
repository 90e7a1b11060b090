use super::reference;
use super::support::{Cases, Guarded, Random, lengths};
use crate::{Isa, SOFTMAX_MAX_ABSOLUTE_ERROR, softmax};

#[test]
fn softmax_is_accurate_for_every_length() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in lengths() {
            for scale in [1.0, 30.0, 1000.0] {
                let x: Vec<f32> = Random(n as u64).units(n).iter().map(|x| x * scale).collect();
                let mut y = Guarded::new(&x);
                softmax(isa, &mut y);
                let describe = || format!("{} {n} values up to {scale}", isa.name());
                cases.close(&y, &reference::softmax(&x), SOFTMAX_MAX_ABSOLUTE_ERROR, describe);
            }
        }
    }
}

#[test]
fn infinities_and_nan_are_as_in_pytorch() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in [1, 2, 9, 16, 17, 40] {
            for at in 0..n {
                let describe = |what: &str| format!("{} {what} at {at} of {n}", isa.name());
                for (what, value) in [("NaN", nan), ("infinity", infinity)] {
                    let mut y = vec![1.0; n];
                    y[at] = value;
                    softmax(isa, &mut y);
                    cases.check(y.iter().all(|y| y.is_nan()), || describe(what));
                }
                if n > 1 {
                    let mut y = vec![1.0; n];
                    y[at] = -infinity;
                    softmax(isa, &mut y);
                    let share = 1.0 / (n - 1) as f32;
                    let right = y.iter().enumerate().all(|(i, y)| *y == if i == at { 0.0 } else { share });
                    cases.check(right, || format!("{}: {y:?}", describe("-infinity")));
                }
            }
            let mut y = vec![-infinity; n];
            softmax(isa, &mut y);
            cases.check(y.iter().all(|y| y.is_nan()), || format!("{} only -infinity, {n}", isa.name()));
        }
    }
}
