//! Attention of one head of one sequence: `softmax(Q K^T) V` without the matrix of scores.
//!
//! A block of query rows, as many as a register tile has, takes its scores against all keys, their softmax and the
//! weighted values before the next block begins: the scores of 512 keys are 24 KiB and never leave the first-level
//! cache. Both products use the register tile of the GEMM; the keys are transposed into panels once per head for that,
//! and the values come from the GEMM as panels already.
//!
//! Invariant: a row of the result depends on its query, the keys and the values alone, not on the other query rows.
//! NaN anywhere in a row of scores gives a row of NaN.
//!
//! Cost: `4 * q_rows * keys * head_dim` operations in the products, `q_rows * keys` exponentials of about 12
//! instructions a vector.

use crate::aligned::AlignedVec;
use crate::isa::Isa;
use crate::math::exp2_nonpositive;
use crate::simd::{Simd, SimdOp};
use crate::tile::{Plain, RowTiles, ScaleRows, Tile};

/// Greatest error of a component of the result, relative to the greatest |value| that it averages.
pub const ATTENTION_MAX_ERROR: f64 = 2e-6;

/// The most rows of any register tile.
const MAX_ROWS: usize = 16;

/// The operands of one head. All distances count f32 values.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// Queries `[q_rows, head_dim]`, row-major. They already carry the scale and log2(e), that is
    /// `log2(e) / sqrt(d)` with the true head size d: the softmax is of powers of 2.
    pub q: *const f32,
    /// From a query row to the next.
    pub q_ld: usize,
    /// How many queries; the result has as many rows.
    pub q_rows: usize,
    /// Keys `[keys, head_dim]`, row-major.
    pub k: *const f32,
    /// From a key row to the next.
    pub k_ld: usize,
    /// Values, panel-major: columns `p * width ..` of all keys are `[keys, width]` without gaps at
    /// `v + p * v_panel_stride`, with the [panel width](Isa::panel_width).
    pub v: *const f32,
    /// From a panel of values to the next.
    pub v_panel_stride: usize,
    /// How many keys, at least 1.
    pub keys: usize,
    /// The head size, padded with zeros to a multiple of the [panel width](Isa::panel_width).
    pub head_dim: usize,
    /// The result `[q_rows, head_dim]`, row-major. It may be where the queries are.
    pub out: *mut f32,
    /// From a row of the result to the next.
    pub out_ld: usize,
}

/// Memory of [`attention_head`], reused from call to call: the transposed keys and the scores of a block of rows. It
/// grows to the longest sequence seen, about `4 * keys * (head_dim + 12)` bytes.
#[derive(Debug, Default)]
pub struct AttentionScratch {
    keys: AlignedVec,
    scores: AlignedVec,
}

impl AttentionScratch {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.keys.bytes() + self.scores.bytes()
    }
}

/// Attention of one head of one sequence, without a mask: every query sees every key.
///
/// # Panics
/// If there are no keys, or the head size is not a multiple of the panel width.
///
/// # Safety
/// `args.q`, `args.k` and `args.v` must be valid for reads, and `args.out` for writes, of what [`Attention`] describes,
/// and nothing else may write to any of it meanwhile. The result may overlap the queries only if it is the same place
/// with the same stride, and must not overlap the keys and values.
pub unsafe fn attention_head(isa: Isa, args: &Attention, scratch: &mut AttentionScratch) {
    let width = isa.panel_width();
    assert!(args.keys > 0, "attention needs a key");
    assert!(
        args.head_dim.is_multiple_of(width),
        "the head size {} is not padded to a multiple of {width}",
        args.head_dim
    );
    let padded_keys = args.keys.next_multiple_of(width);
    scratch.keys.grow(padded_keys * args.head_dim);
    scratch.scores.grow(padded_keys * isa.tile_rows());
    isa.run(Head { args: *args, keys: scratch.keys.as_mut_ptr(), scores: scratch.scores.as_mut_ptr(), padded_keys });
}

struct Head {
    args: Attention,
    /// `[padded_keys / PANEL][head_dim][PANEL]`
    keys: *mut f32,
    /// `[ROWS][padded_keys]`
    scores: *mut f32,
    /// The keys rounded up to whole panels.
    padded_keys: usize,
}

impl SimdOp for Head {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        const { assert!(S::ROWS <= MAX_ROWS) };
        let args = &self.args;
        let depth = args.head_dim;
        self.transpose_keys(simd);
        let mut factors = [0.0; MAX_ROWS];
        let mut tiles = RowTiles::new(args.q_rows, S::ROWS);
        while let Some((row, height)) = tiles.next() {
            for p in 0..self.padded_keys / S::PANEL {
                let a = args.q.wrapping_add(row * args.q_ld);
                let b = self.keys.wrapping_add(p * depth * S::PANEL);
                let out = self.scores.wrapping_add(p * S::PANEL);
                let out_ld = self.padded_keys;
                simd.call_rows(height, Tile { a, a_ld: args.q_ld, depth, b, out, out_ld, epilogue: Plain });
            }
            for (i, factor) in factors.iter_mut().enumerate().take(height) {
                // SAFETY: the tiles above have written `height` rows of scores.
                let scores =
                    unsafe { std::slice::from_raw_parts_mut(self.scores.add(i * self.padded_keys), args.keys) };
                *factor = 1.0 / powers_and_sum(simd, scores);
            }
            for p in 0..depth / S::PANEL {
                let (a, a_ld) = (self.scores.cast_const(), self.padded_keys);
                let b = args.v.wrapping_add(p * args.v_panel_stride);
                let out = args.out.wrapping_add(row * args.out_ld + p * S::PANEL);
                let epilogue = ScaleRows { factors: factors.as_ptr() };
                simd.call_rows(height, Tile { a, a_ld, depth: args.keys, b, out, out_ld: args.out_ld, epilogue });
            }
        }
    }
}

impl Head {
    /// Packs the keys into panels, with zeros behind the last one.
    #[inline(always)]
    fn transpose_keys<S: Simd>(&self, simd: S) {
        let (args, depth) = (&self.args, self.args.head_dim);
        for key in (0..self.padded_keys).step_by(S::LANES) {
            let rows = args.keys.saturating_sub(key).min(S::LANES);
            let panel = self.keys.wrapping_add(key / S::PANEL * depth * S::PANEL + key % S::PANEL);
            for at in (0..depth).step_by(S::LANES) {
                // SAFETY: the caller of `attention_head` promises `keys` rows of `head_dim` values; the scratch has a
                // column of `head_dim` values for each of `padded_keys` keys.
                unsafe {
                    let from = args.k.wrapping_add(key * args.k_ld + at);
                    simd.transpose(from, args.k_ld, rows, panel.add(at * S::PANEL), S::PANEL);
                }
            }
        }
    }
}

/// Replaces scores by `2^(score - greatest)` and returns their sum: 1 or more, or NaN.
#[inline(always)]
fn powers_and_sum<S: Simd>(simd: S, scores: &mut [f32]) -> f32 {
    // The greatest may ignore a NaN; the power of the NaN is NaN all the same, and so is the sum.
    let mut greatest = simd.splat(f32::NEG_INFINITY);
    let chunks = scores.chunks_exact(S::LANES);
    let tail = chunks.remainder();
    for chunk in chunks {
        greatest = simd.max(greatest, simd.read(chunk));
    }
    greatest = simd.max(greatest, simd.first_lanes(simd.read_part(tail), tail.len(), greatest));
    let greatest = simd.splat(simd.reduce_max(greatest));

    let mut sum = simd.splat(0.0);
    let mut chunks = scores.chunks_exact_mut(S::LANES);
    for chunk in &mut chunks {
        let power = exp2_nonpositive(simd, simd.sub(simd.read(chunk), greatest));
        simd.write(chunk, power);
        sum = simd.add(sum, power);
    }
    let tail = chunks.into_remainder();
    let power = exp2_nonpositive(simd, simd.sub(simd.read_part(tail), greatest));
    simd.write_part(tail, power);
    sum = simd.add(sum, simd.first_lanes(power, tail.len(), simd.splat(0.0)));
    simd.reduce_add(sum)
}
