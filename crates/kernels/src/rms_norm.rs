//! Normalisation of rows by their root mean square, with the residual connection in front of it.
//!
//! `out = s / sqrt(mean(s^2) + eps) * gamma` with `s = x + residual`, over the last dimension (Zhang and Sennrich 2019).
//! Models that scale by `1 + weight` fold the 1 into gamma.
//!
//! A NaN makes its row NaN; an infinity becomes NaN and makes the rest of its row 0. Other rows are not touched by it.
//!
//! Cost: one read of x and of the residual, one write of the result; the second pass is over what was just written.

use crate::isa::Isa;
use crate::layer_norm::Sums;
use crate::simd::{Simd, SimdOp};

/// Greatest absolute error where gamma is at most 1.
pub const RMS_NORM_MAX_ABSOLUTE_ERROR: f64 = 3e-6;

/// Normalises `rows` rows of `gamma.len()` values: `out = RMS(x + residual) * gamma`.
///
/// `*_ld` are the values from a row to the next. What lies between the rows of the result is not touched. The residual is
/// a pointer with its `ld`.
///
/// # Safety
/// `x` and the residual must be valid for reads, and `out` for writes, of `rows` rows of `gamma.len()` values, and nothing
/// else may write to them meanwhile. The result may be where x or the residual is, with the same `ld`, and must not
/// overlap them otherwise.
#[allow(clippy::too_many_arguments, reason = "three matrices, each with its stride")]
pub unsafe fn rms_norm_rows(
    isa: Isa,
    x: *const f32,
    x_ld: usize,
    residual: Option<(*const f32, usize)>,
    out: *mut f32,
    out_ld: usize,
    rows: usize,
    gamma: &[f32],
    eps: f32,
) {
    isa.run(RmsNorm { x, x_ld, residual, out, out_ld, rows, gamma, eps });
}

struct RmsNorm<'a> {
    x: *const f32,
    x_ld: usize,
    residual: Option<(*const f32, usize)>,
    out: *mut f32,
    out_ld: usize,
    rows: usize,
    gamma: &'a [f32],
    eps: f32,
}

impl SimdOp for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        for row in 0..self.rows {
            // SAFETY: the caller of `rms_norm_rows` promises the rows.
            unsafe {
                let x = self.x.add(row * self.x_ld);
                let residual = self.residual.map(|(residual, ld)| residual.wrapping_add(row * ld));
                normalise(simd, x, residual, self.out.add(row * self.out_ld), self.gamma, self.eps);
            }
        }
    }
}

/// Normalises one row.
///
/// # Safety
/// `x` and `residual` must be valid for reads, `out` for writes, of `gamma.len()` values.
#[inline(always)]
unsafe fn normalise<S: Simd>(
    simd: S,
    x: *const f32,
    residual: Option<*const f32>,
    out: *mut f32,
    gamma: &[f32],
    eps: f32,
) {
    let n = gamma.len();
    let (vectors, tail) = (n / S::LANES, n % S::LANES);
    let at_tail = vectors * S::LANES;

    // SAFETY of every block below: the caller promises `n` values at each pointer; `vectors` whole vectors and `tail`
    // more values are `n`.
    let mut sums = Sums::new(simd);
    for i in 0..vectors {
        // SAFETY: see above.
        unsafe {
            let mut value = simd.load(x.add(i * S::LANES));
            if let Some(residual) = residual {
                value = simd.add(value, simd.load(residual.add(i * S::LANES)));
            }
            simd.store(out.add(i * S::LANES), value);
            sums = sums.add_square(simd, value);
        }
    }
    if tail > 0 {
        // SAFETY: see above. The lanes behind the part are 0.
        unsafe {
            let mut value = simd.load_part(x.add(at_tail), tail);
            if let Some(residual) = residual {
                value = simd.add(value, simd.load_part(residual.add(at_tail), tail));
            }
            simd.store_part(out.add(at_tail), value, tail);
            sums = sums.add_square(simd, value);
        }
    }
    let scale = simd.splat(1.0 / (sums.total(simd) / n as f32 + eps).sqrt());

    for i in 0..vectors {
        // SAFETY: see above.
        unsafe {
            let value = simd.mul(simd.load(out.add(i * S::LANES)), scale);
            simd.store(out.add(i * S::LANES), simd.mul(value, simd.load(gamma.as_ptr().add(i * S::LANES))));
        }
    }
    if tail > 0 {
        // SAFETY: see above.
        unsafe {
            let value = simd.mul(simd.load_part(out.add(at_tail), tail), scale);
            let gamma = simd.load_part(gamma.as_ptr().add(at_tail), tail);
            simd.store_part(out.add(at_tail), simd.mul(value, gamma), tail);
        }
    }
}
