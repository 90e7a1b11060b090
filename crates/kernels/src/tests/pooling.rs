use super::support::{Cases, Guarded, Random, lengths};
use crate::{Isa, max_pool, mean_pool, mean_sqrt_len_pool, sum_pool, weighted_mean_pool};

type Pool = fn(Isa, &[f32], usize, usize, &mut [f32]);
type Reference = fn(&[f64]) -> f64;

/// Each pooling with what it makes of a column.
const ALL: [(&str, Pool, Reference); 5] = [
    ("sum", sum_pool, |column| column.iter().sum()),
    ("mean", mean_pool, |column| column.iter().sum::<f64>() / column.len() as f64),
    ("mean sqrt len", mean_sqrt_len_pool, |column| column.iter().sum::<f64>() / (column.len() as f64).sqrt()),
    ("weighted mean", weighted_mean_pool, |column| {
        let weighted: f64 = column.iter().enumerate().map(|(i, value)| value * (i + 1) as f64).sum();
        weighted / (1..=column.len()).sum::<usize>() as f64
    }),
    ("max", max_pool, |column| column.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
];

#[test]
fn pooling_is_accurate_for_every_shape() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in lengths() {
            for count in [1, 2, 3, 17, 200] {
                let ld = n + 3;
                let rows = Guarded::new(&Random((n + count) as u64).units((count - 1) * ld + n));
                for (name, pool, reference) in ALL {
                    let mut out = Guarded::filled(7.0, n);
                    pool(isa, &rows, ld, count, &mut out);
                    let expected: Vec<f64> = (0..n)
                        .map(|c| reference(&(0..count).map(|r| f64::from(rows[r * ld + c])).collect::<Vec<_>>()))
                        .collect();
                    let describe = || format!("{} {name} of {count} rows of {n}", isa.name());
                    cases.close(&out, &expected, 2e-6 * count as f64, describe);
                }
            }
        }
    }
}

#[test]
fn nan_and_infinity_stay_in_their_column() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in [1, 16, 19, 40] {
            for at in 0..5 {
                for (name, pool, _) in ALL {
                    let column = n - 1;
                    let mut rows = Random(5).units(5 * n);
                    rows[at * n + column] = f32::NAN;
                    let mut out = vec![0.0; n];
                    pool(isa, &rows, n, 5, &mut out);
                    let right = out.iter().enumerate().all(|(c, value)| value.is_nan() == (c == column));
                    cases.check(right, || format!("{} {name}, NaN in row {at}: {out:?}", isa.name()));
                    rows[at * n + column] = f32::INFINITY;
                    pool(isa, &rows, n, 5, &mut out);
                    let right = out.iter().enumerate().all(|(c, value)| value.is_infinite() == (c == column));
                    cases.check(right, || format!("{} {name}, infinity in row {at}: {out:?}", isa.name()));
                }
            }
        }
    }
}

#[test]
fn pooling_refuses_no_rows_and_rows_that_are_not_there() {
    let refused = |f: fn()| std::panic::catch_unwind(f).is_err();
    assert!(refused(|| mean_pool(Isa::best(), &[], 4, 0, &mut [0.0; 4])));
    assert!(refused(|| mean_pool(Isa::best(), &[0.0; 11], 4, 3, &mut [0.0; 4])));
    assert!(refused(|| max_pool(Isa::best(), &[0.0; 11], usize::MAX, 3, &mut [0.0; 4])));
    let mut out = [1.0; 4];
    sum_pool(Isa::best(), &[], 4, 0, &mut out);
    assert_eq!(out, [0.0; 4]);
}
