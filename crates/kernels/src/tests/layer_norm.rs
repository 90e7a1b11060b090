use super::reference;
use super::support::{Cases, Guarded, Random, lengths};
use crate::{Isa, LAYER_NORM_MAX_ABSOLUTE_ERROR, layer_norm_rows, sum_rows};

const EPS: f32 = 1e-12;

#[test]
fn layer_norm_is_accurate_for_every_width() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in lengths().filter(|n| *n > 0) {
            for (with_residual, with_beta) in [(false, false), (false, true), (true, false), (true, true)] {
                let rows = 3;
                let mut random = Random(n as u64);
                let (x_ld, residual_ld, out_ld) = (n + 1, n + 2, n + 5);
                let x = Guarded::new(&random.units(2 * x_ld + n));
                let residual = Guarded::new(&random.units(2 * residual_ld + n));
                let gamma = Guarded::new(&random.units(n));
                let beta = Guarded::new(&random.units(n));
                let mut out = Guarded::filled(7.0, 2 * out_ld + n);
                let residual_rows = with_residual.then_some((residual.as_ptr(), residual_ld));
                let beta_row = with_beta.then_some(&*beta);
                let to = out.as_mut_ptr();
                // SAFETY: the buffers have three rows with these strides.
                unsafe {
                    layer_norm_rows(isa, x.as_ptr(), x_ld, residual_rows, to, out_ld, rows, &gamma, beta_row, 1e-5);
                }
                for r in 0..rows {
                    let describe = || format!("{} {n} wide, residual {with_residual}, beta {with_beta}", isa.name());
                    let sum: Vec<f64> = (0..n)
                        .map(|i| {
                            let residual = if with_residual { residual[r * residual_ld + i] } else { 0.0 };
                            f64::from(x[r * x_ld + i] + residual)
                        })
                        .collect();
                    let expected = reference::layer_norm(&sum, &gamma, beta_row, f64::from(1e-5f32));
                    cases.close(&out[r * out_ld..][..n], &expected, LAYER_NORM_MAX_ABSOLUTE_ERROR, describe);
                    if r + 1 < rows {
                        let gap = &out[r * out_ld + n..][..out_ld - n];
                        cases.check(gap.iter().all(|value| *value == 7.0), || format!("{}: gap written", describe()));
                    }
                }
            }
        }
    }
}

/// The one-pass formula for the variance would have no correct digit here.
#[test]
fn a_large_mean_does_not_drown_the_variance() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        // Multiples of 1/8 near 100,000 are exact in f32.
        let x: Vec<f32> = (0..384).map(|i| 100_000.0 + (i % 9) as f32 / 8.0).collect();
        let exact: Vec<f64> = x.iter().map(|value| f64::from(*value)).collect();
        let (gamma, mut out) = (vec![1.0; 384], vec![0.0; 384]);
        // SAFETY: one row each.
        unsafe { layer_norm_rows(isa, x.as_ptr(), 384, None, out.as_mut_ptr(), 384, 1, &gamma, None, EPS) };
        // The mean itself is rounded to 1/128.
        let expected = reference::layer_norm(&exact, &gamma, None, f64::from(EPS));
        cases.close(&out, &expected, 0.05, || isa.name().to_owned());
    }
}

#[test]
fn the_result_may_replace_an_operand() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in [5, 16, 37, 384] {
            let mut random = Random(n as u64);
            let (x, residual, gamma) = (random.units(4 * n), random.units(4 * n), random.units(n));
            let run = |x: *const f32, residual: *const f32, out: *mut f32| {
                // SAFETY: four rows of n values each.
                unsafe { layer_norm_rows(isa, x, n, Some((residual, n)), out, n, 4, &gamma, None, EPS) };
            };
            let mut expected = vec![0.0; 4 * n];
            run(x.as_ptr(), residual.as_ptr(), expected.as_mut_ptr());
            let mut in_x = x.clone();
            let at = in_x.as_mut_ptr();
            run(at, residual.as_ptr(), at);
            cases.same(&in_x, &expected, || format!("{} {n}, in place of x", isa.name()));
            let mut in_residual = residual.clone();
            let at = in_residual.as_mut_ptr();
            run(x.as_ptr(), at, at);
            cases.same(&in_residual, &expected, || format!("{} {n}, in place of the residual", isa.name()));
        }
    }
}

#[test]
fn nan_stays_in_its_row() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in [1, 7, 16, 20, 100] {
            for at in 0..n {
                let mut x = Random(3).units(3 * n);
                x[n + at] = f32::NAN;
                let (gamma, mut out) = (vec![1.0; n], vec![0.0; 3 * n]);
                // SAFETY: three rows of n values.
                unsafe { layer_norm_rows(isa, x.as_ptr(), n, None, out.as_mut_ptr(), n, 3, &gamma, None, EPS) };
                for (r, row) in out.chunks_exact(n).enumerate() {
                    let right = row.iter().all(|value| value.is_nan() == (r == 1));
                    cases.check(right, || format!("{} {n} wide, NaN at {at}, row {r}: {row:?}", isa.name()));
                }
            }
        }
    }
}

#[test]
fn rows_are_added_from_left_to_right() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in lengths() {
            for count in 0..=4 {
                let mut random = Random(n as u64);
                let rows: Vec<Guarded> = (0..count).map(|_| Guarded::new(&random.units(n))).collect();
                let slices: Vec<&[f32]> = rows.iter().map(|row| &**row).collect();
                let mut out = Guarded::filled(f32::NAN, n);
                sum_rows(isa, &slices, &mut out);
                let expected: Vec<f32> =
                    (0..n).map(|i| slices.iter().map(|row| row[i]).reduce(|a, b| a + b).unwrap_or(0.0)).collect();
                cases.same(&out, &expected, || format!("{} {count} rows of {n}", isa.name()));
            }
        }
    }
}
