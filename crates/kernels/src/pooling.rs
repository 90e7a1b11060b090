//! Pooling: one vector from the hidden states of a sequence.
//!
//! The rows are `count` rows of `out.len()` values, `ld` values from row to row; they must be all real tokens, since there
//! is no mask. Formulas are those of sentence-transformers' `modules/pooling.py`. Every column is summed from the first
//! row to the last, so the bytes do not depend on anything else. NaN in a column makes that component NaN.

use crate::isa::Isa;
use crate::simd::{Simd, SimdOp};

/// The sum of the rows; zeros for no rows.
///
/// # Panics
/// If a row does not lie in the slice.
pub fn sum_pool(isa: Isa, rows: &[f32], ld: usize, count: usize, out: &mut [f32]) {
    check(rows, ld, count, out);
    isa.run(WeightedSum { rows, ld, count, out, weights: Equal, scale: 1.0 });
}

/// The mean of the rows: `pooling_mode_mean_tokens`.
///
/// # Panics
/// If there are no rows, or a row does not lie in the slice.
pub fn mean_pool(isa: Isa, rows: &[f32], ld: usize, count: usize, out: &mut [f32]) {
    check_not_empty(rows, ld, count, out);
    isa.run(WeightedSum { rows, ld, count, out, weights: Equal, scale: 1.0 / count as f32 });
}

/// The sum of the rows divided by the square root of their number: `pooling_mode_mean_sqrt_len_tokens`.
///
/// # Panics
/// If there are no rows, or a row does not lie in the slice.
pub fn mean_sqrt_len_pool(isa: Isa, rows: &[f32], ld: usize, count: usize, out: &mut [f32]) {
    check_not_empty(rows, ld, count, out);
    isa.run(WeightedSum { rows, ld, count, out, weights: Equal, scale: 1.0 / (count as f32).sqrt() });
}

/// The mean of the rows weighted by their positions 1, 2, ...: `pooling_mode_weightedmean_tokens`.
///
/// # Panics
/// If there are no rows, or a row does not lie in the slice.
pub fn weighted_mean_pool(isa: Isa, rows: &[f32], ld: usize, count: usize, out: &mut [f32]) {
    check_not_empty(rows, ld, count, out);
    // Exact up to 5,792 rows, and rounded once beyond.
    let weights = (count as f64 * (count as f64 + 1.0) / 2.0) as f32;
    isa.run(WeightedSum { rows, ld, count, out, weights: Position, scale: 1.0 / weights });
}

/// The greatest value of each column: `pooling_mode_max_tokens`.
///
/// # Panics
/// If there are no rows, or a row does not lie in the slice.
pub fn max_pool(isa: Isa, rows: &[f32], ld: usize, count: usize, out: &mut [f32]) {
    check_not_empty(rows, ld, count, out);
    isa.run(Max { rows, ld, count, out });
}

fn check(rows: &[f32], ld: usize, count: usize, out: &[f32]) {
    let needed = count.checked_sub(1).and_then(|last| last.checked_mul(ld)).and_then(|at| at.checked_add(out.len()));
    assert!(
        count == 0 || needed.is_some_and(|needed| needed <= rows.len()),
        "{count} rows of {} values, {ld} apart, do not lie in {} values",
        out.len(),
        rows.len()
    );
}

fn check_not_empty(rows: &[f32], ld: usize, count: usize, out: &[f32]) {
    assert!(count > 0, "there is no pooling of no rows");
    check(rows, ld, count, out);
}

/// The weight of a row before the common scale. Implementations must be `#[inline(always)]`.
trait Weights: Copy {
    fn accumulate<S: Simd>(self, simd: S, row: usize, value: S::F32, sum: S::F32) -> S::F32;
}

#[derive(Clone, Copy)]
struct Equal;
#[derive(Clone, Copy)]
struct Position;

impl Weights for Equal {
    #[inline(always)]
    fn accumulate<S: Simd>(self, simd: S, _row: usize, value: S::F32, sum: S::F32) -> S::F32 {
        simd.add(sum, value)
    }
}

impl Weights for Position {
    #[inline(always)]
    fn accumulate<S: Simd>(self, simd: S, row: usize, value: S::F32, sum: S::F32) -> S::F32 {
        simd.mul_add(value, simd.splat((row + 1) as f32), sum)
    }
}

struct WeightedSum<'a, W> {
    rows: &'a [f32],
    ld: usize,
    count: usize,
    out: &'a mut [f32],
    weights: W,
    scale: f32,
}

impl<W: Weights> SimdOp for WeightedSum<'_, W> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let scale = simd.splat(self.scale);
        for (i, out) in self.out.chunks_mut(S::LANES).enumerate() {
            let mut sum = simd.splat(0.0);
            if out.len() == S::LANES {
                for row in 0..self.count {
                    let value = simd.read(&self.rows[row * self.ld + i * S::LANES..][..S::LANES]);
                    sum = self.weights.accumulate(simd, row, value, sum);
                }
                simd.write(out, simd.mul(sum, scale));
            } else {
                for row in 0..self.count {
                    let value = simd.read_part(&self.rows[row * self.ld + i * S::LANES..][..out.len()]);
                    sum = self.weights.accumulate(simd, row, value, sum);
                }
                simd.write_part(out, simd.mul(sum, scale));
            }
        }
    }
}

struct Max<'a> {
    rows: &'a [f32],
    ld: usize,
    count: usize,
    out: &'a mut [f32],
}

impl SimdOp for Max<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        for (i, out) in self.out.chunks_mut(S::LANES).enumerate() {
            let mut greatest = simd.splat(f32::NEG_INFINITY);
            if out.len() == S::LANES {
                for row in 0..self.count {
                    let value = simd.read(&self.rows[row * self.ld + i * S::LANES..][..S::LANES]);
                    greatest = simd.max_propagating(greatest, value);
                }
                simd.write(out, greatest);
            } else {
                for row in 0..self.count {
                    let value = simd.read_part(&self.rows[row * self.ld + i * S::LANES..][..out.len()]);
                    greatest = simd.max_propagating(greatest, value);
                }
                simd.write_part(out, greatest);
            }
        }
    }
}
