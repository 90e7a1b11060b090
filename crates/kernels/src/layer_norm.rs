//! Layer normalisation of rows, with the residual connection in front of it.
//!
//! `out = (s - mean(s)) / sqrt(variance(s) + eps) * gamma + beta` with `s = x + residual`, over the last dimension; the
//! variance is that of the population (divided by n), as in PyTorch. Mean and variance take a pass each over the row,
//! which stays in the first-level cache; the one-pass formula loses all digits where the mean is large.
//!
//! NaN and infinity in a row make that row NaN; other rows are not touched by it.
//!
//! Cost: one read of x and of the residual, one write of the result.

use crate::isa::Isa;
use crate::simd::{Simd, SimdOp};

/// Greatest absolute error where gamma is at most 1 and beta 0, for rows whose deviation is not tiny beside their mean:
/// the error grows with `|mean| / deviation`, as the inputs' own rounding does.
pub const LAYER_NORM_MAX_ABSOLUTE_ERROR: f64 = 2e-6;

/// Normalises `rows` rows of `gamma.len()` values: `out = LN(x + residual) * gamma + beta`.
///
/// `*_ld` are the values from a row to the next. What lies between the rows of the result is not touched. The residual is
/// a pointer with its `ld`; an absent beta is 0.
///
/// # Panics
/// If gamma and beta differ in length.
///
/// # Safety
/// `x` and the residual must be valid for reads, and `out` for writes, of `rows` rows of `gamma.len()` values, and nothing
/// else may write to them meanwhile. The result may be where x or the residual is, with the same `ld`, and must not
/// overlap them otherwise.
#[allow(clippy::too_many_arguments, reason = "three matrices, each with its stride")]
pub unsafe fn layer_norm_rows(
    isa: Isa,
    x: *const f32,
    x_ld: usize,
    residual: Option<(*const f32, usize)>,
    out: *mut f32,
    out_ld: usize,
    rows: usize,
    gamma: &[f32],
    beta: Option<&[f32]>,
    eps: f32,
) {
    if let Some(beta) = beta {
        assert_eq!(gamma.len(), beta.len(), "gamma and beta have a value per column");
    }
    isa.run(LayerNorm { x, x_ld, residual, out, out_ld, rows, gamma, beta, eps });
}

struct LayerNorm<'a> {
    x: *const f32,
    x_ld: usize,
    residual: Option<(*const f32, usize)>,
    out: *mut f32,
    out_ld: usize,
    rows: usize,
    gamma: &'a [f32],
    beta: Option<&'a [f32]>,
    eps: f32,
}

impl SimdOp for LayerNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        for row in 0..self.rows {
            // SAFETY: the caller of `layer_norm_rows` promises the rows.
            unsafe {
                let x = self.x.add(row * self.x_ld);
                let residual = self.residual.map(|(residual, ld)| residual.wrapping_add(row * ld));
                normalise(simd, x, residual, self.out.add(row * self.out_ld), self.gamma, self.beta, self.eps);
            }
        }
    }
}

/// Normalises one row.
///
/// # Safety
/// `x` and `residual` must be valid for reads, `out` for writes, of `gamma.len()` values; a beta has as many.
#[inline(always)]
unsafe fn normalise<S: Simd>(
    simd: S,
    x: *const f32,
    residual: Option<*const f32>,
    out: *mut f32,
    gamma: &[f32],
    beta: Option<&[f32]>,
    eps: f32,
) {
    let n = gamma.len();
    let (vectors, tail) = (n / S::LANES, n % S::LANES);
    let at_tail = vectors * S::LANES;
    let zero = simd.splat(0.0);

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
            sums = sums.add(simd, value);
        }
    }
    if tail > 0 {
        // SAFETY: see above.
        unsafe {
            let mut value = simd.load_part(x.add(at_tail), tail);
            if let Some(residual) = residual {
                value = simd.add(value, simd.load_part(residual.add(at_tail), tail));
            }
            simd.store_part(out.add(at_tail), value, tail);
            sums = sums.add(simd, value);
        }
    }
    let mean = simd.splat(sums.total(simd) / n as f32);

    let mut sums = Sums::new(simd);
    for i in 0..vectors {
        // SAFETY: see above.
        let value = simd.sub(unsafe { simd.load(out.add(i * S::LANES)) }, mean);
        sums = sums.add_square(simd, value);
    }
    if tail > 0 {
        // SAFETY: see above.
        let value = simd.sub(unsafe { simd.load_part(out.add(at_tail), tail) }, mean);
        let value = simd.first_lanes(value, tail, zero);
        sums = sums.add_square(simd, value);
    }
    let scale = simd.splat(1.0 / (sums.total(simd) / n as f32 + eps).sqrt());

    for i in 0..vectors {
        // SAFETY: see above; beta is as long as gamma.
        unsafe {
            let value = simd.mul(simd.sub(simd.load(out.add(i * S::LANES)), mean), scale);
            let gamma = simd.load(gamma.as_ptr().add(i * S::LANES));
            let beta = match beta {
                Some(beta) => simd.load(beta.as_ptr().add(i * S::LANES)),
                None => zero,
            };
            simd.store(out.add(i * S::LANES), simd.mul_add(value, gamma, beta));
        }
    }
    if tail > 0 {
        // SAFETY: see above; beta is as long as gamma.
        unsafe {
            let value = simd.mul(simd.sub(simd.load_part(out.add(at_tail), tail), mean), scale);
            let gamma = simd.load_part(gamma.as_ptr().add(at_tail), tail);
            let beta = match beta {
                Some(beta) => simd.load_part(beta.as_ptr().add(at_tail), tail),
                None => zero,
            };
            simd.store_part(out.add(at_tail), simd.mul_add(value, gamma, beta), tail);
        }
    }
}

/// Four sums that take turns, which hides the latency of an addition. They are turned rather than indexed so that they
/// stay in registers.
#[derive(Clone, Copy)]
pub(crate) struct Sums<V>([V; 4]);

impl<V: Copy> Sums<V> {
    #[inline(always)]
    pub fn new<S: Simd<F32 = V>>(simd: S) -> Self {
        Sums([simd.splat(0.0); 4])
    }

    #[inline(always)]
    pub fn add<S: Simd<F32 = V>>(self, simd: S, value: V) -> Self {
        let [a, b, c, d] = self.0;
        Sums([b, c, d, simd.add(a, value)])
    }

    #[inline(always)]
    pub fn add_square<S: Simd<F32 = V>>(self, simd: S, value: V) -> Self {
        let [a, b, c, d] = self.0;
        Sums([b, c, d, simd.mul_add(value, value, a)])
    }

    #[inline(always)]
    pub fn total<S: Simd<F32 = V>>(self, simd: S) -> f32 {
        let [a, b, c, d] = self.0;
        simd.reduce_add(simd.add(simd.add(a, b), simd.add(c, d)))
    }
}
