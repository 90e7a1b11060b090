use super::support::{Cases, Guarded, Random, lengths};
use crate::{Isa, RMS_NORM_MAX_ABSOLUTE_ERROR, add_rows, rms_norm_rows};

#[test]
fn rms_norm_is_accurate_for_every_width() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in lengths().filter(|n| *n > 0) {
            for with_residual in [false, true] {
                let mut random = Random(n as u64);
                let (x_ld, residual_ld, out_ld) = (n + 1, n + 2, n + 5);
                let x = Guarded::new(&random.units(2 * x_ld + n));
                let residual = Guarded::new(&random.units(2 * residual_ld + n));
                let gamma = Guarded::new(&random.units(n));
                let mut out = Guarded::filled(7.0, 2 * out_ld + n);
                let residual_rows = with_residual.then_some((residual.as_ptr(), residual_ld));
                let to = out.as_mut_ptr();
                // SAFETY: the buffers have three rows with these strides.
                unsafe { rms_norm_rows(isa, x.as_ptr(), x_ld, residual_rows, to, out_ld, 3, &gamma, 1e-3) };
                for r in 0..3 {
                    let describe = || format!("{} {n} wide, residual {with_residual}", isa.name());
                    let sum: Vec<f64> = (0..n)
                        .map(|i| {
                            let residual = if with_residual { residual[r * residual_ld + i] } else { 0.0 };
                            f64::from(x[r * x_ld + i] + residual)
                        })
                        .collect();
                    let mean = sum.iter().map(|value| value * value).sum::<f64>() / n as f64;
                    let scale = 1.0 / (mean + f64::from(1e-3f32)).sqrt();
                    let expected: Vec<f64> =
                        sum.iter().zip(&*gamma).map(|(value, gamma)| value * scale * f64::from(*gamma)).collect();
                    cases.close(&out[r * out_ld..][..n], &expected, RMS_NORM_MAX_ABSOLUTE_ERROR, describe);
                    if r < 2 {
                        let gap = &out[r * out_ld + n..][..out_ld - n];
                        cases.check(gap.iter().all(|value| *value == 7.0), || format!("{}: gap written", describe()));
                    }
                }
            }
        }
    }
}

#[test]
fn rms_norm_may_replace_its_operand_and_keeps_nan_in_its_row() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in [1, 5, 16, 37, 384] {
            let (x, gamma) = (Random(n as u64).units(3 * n), Random(1).units(n));
            let mut expected = vec![0.0; 3 * n];
            // SAFETY: three rows of n values each.
            unsafe { rms_norm_rows(isa, x.as_ptr(), n, None, expected.as_mut_ptr(), n, 3, &gamma, 1e-6) };
            let mut in_place = x.clone();
            let at = in_place.as_mut_ptr();
            // SAFETY: as above.
            unsafe { rms_norm_rows(isa, at, n, None, at, n, 3, &gamma, 1e-6) };
            cases.same(&in_place, &expected, || format!("{} {n}, in place", isa.name()));
            for nan in 0..n {
                let (mut x, mut out) = (x.clone(), vec![0.0; 3 * n]);
                x[n + nan] = f32::NAN;
                // SAFETY: as above.
                unsafe { rms_norm_rows(isa, x.as_ptr(), n, None, out.as_mut_ptr(), n, 3, &gamma, 1e-6) };
                for (r, row) in out.chunks_exact(n).enumerate() {
                    let right = row.iter().all(|value| value.is_nan() == (r == 1));
                    cases.check(right, || format!("{} {n} wide, NaN at {nan}, row {r}", isa.name()));
                }
            }
        }
    }
}

#[test]
fn rows_are_added_where_they_lie() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for n in lengths() {
            let mut random = Random(n as u64);
            let (x_ld, out_ld) = (n + 2, n + 3);
            let (x, before) = (random.integers(x_ld + n), random.integers(out_ld + n));
            let (x, mut out) = (Guarded::new(&x), Guarded::new(&before));
            // SAFETY: two rows with these strides.
            unsafe { add_rows(isa, x.as_ptr(), x_ld, out.as_mut_ptr(), out_ld, 2, n) };
            let mut expected = before;
            for (r, i) in (0..2).flat_map(|r| (0..n).map(move |i| (r, i))) {
                expected[r * out_ld + i] += x[r * x_ld + i];
            }
            cases.same(&out, &expected, || format!("{} {n} wide", isa.name()));
        }
    }
}
