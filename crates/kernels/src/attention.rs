//! Attention of one head of one sequence: `softmax(Q K^T + bias) V` without the matrix of scores.
//!
//! A block of query rows, as many as a register tile has, takes its scores against the keys that it sees, their softmax
//! and the weighted values before the next block begins: the scores of 512 keys are 24 KiB and never leave the
//! first-level cache. Both products use the register tile of the GEMM; the keys are transposed into panels once per head
//! for that, and the values come from the GEMM as panels already.
//!
//! With a [`Mask`] a block computes the panels of keys that its queries see together, and a query's softmax runs over the
//! keys that it sees alone: the others get the weight 0. Blocks then begin at positions that are multiples of a tile's
//! height, wherever the caller's queries begin.
//!
//! Invariant: a row of the result depends on its query and its position, the keys and the values alone, not on the other
//! query rows. NaN anywhere in the scores that a row sees gives a row of NaN. A NaN or infinite value makes every row of a
//! block NaN that sees its key from any row, as in PyTorch, whose weight 0 does not remove it either.
//!
//! Cost: `4 * head_dim` operations in the products for each pair of a query and a key that its block sees, and an
//! exponential of about 12 instructions a vector for each pair that see each other.

use crate::aligned::AlignedVec;
use crate::isa::Isa;
use crate::mask::Mask;
use crate::math::exp2_nonpositive;
use crate::simd::{Simd, SimdOp};
use crate::tile::{Plain, RowTiles, ScaleRows, Tile};
use std::ops::Range;

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
    /// Position of the first query among the keys; the others follow it. Queries may stand behind the last key.
    pub first: usize,
    /// Which keys a query sees.
    pub mask: Mask,
    /// What is added to the scores, by distance, times log2(e): the query at position i and the key at position j get the
    /// value `j - i` behind this one (before it, where that is negative).
    pub bias: Option<*const f32>,
    /// The head size, padded with zeros to a multiple of the [panel width](Isa::panel_width).
    pub head_dim: usize,
    /// The result `[q_rows, head_dim]`, row-major. It may be where the queries are.
    pub out: *mut f32,
    /// From a row of the result to the next.
    pub out_ld: usize,
}

/// Memory of [`attention_head`], reused from call to call: the transposed keys and the scores of a block of rows. It
/// grows to the longest sequence seen, about `4 * keys * (head_dim + 12)` bytes, where keys that no query sees do not
/// count.
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

/// Attention of one head of one sequence.
///
/// # Panics
/// If there are no keys, or the head size is not a multiple of the panel width.
///
/// # Safety
/// `args.q`, `args.k` and `args.v` must be valid for reads, and `args.out` for writes, of what [`Attention`] describes,
/// `args.bias` for reads at every distance of a query and a key that it sees, and nothing else may write to any of it
/// meanwhile. The result may overlap the queries only if it is the same place with the same stride, and must not overlap
/// the keys and values.
pub unsafe fn attention_head(isa: Isa, args: &Attention, scratch: &mut AttentionScratch) {
    if args.q_rows > 0 {
        isa.run(Head::new(isa, args, scratch));
    }
}

/// Adds `share` times the weights of one query to `out`, a value for each key: the softmax by itself. Values and result of
/// `args` are not looked at.
///
/// # Panics
/// As [`attention_head`]; if there is not one query, or `out` has not a value for each key.
///
/// # Safety
/// As [`attention_head`], for what is read.
pub unsafe fn attention_weights(
    isa: Isa,
    args: &Attention,
    scratch: &mut AttentionScratch,
    share: f32,
    out: &mut [f32],
) {
    assert_eq!(args.q_rows, 1, "the weights of one query");
    assert_eq!(out.len(), args.keys, "a weight for each key");
    isa.run(Weights { head: Head::new(isa, args, scratch), share, out });
}

struct Head {
    args: Attention,
    /// The keys that any query sees, from a multiple of the panel width on.
    seen: Range<usize>,
    /// `[panels of seen][head_dim][PANEL]`
    keys: *mut f32,
    /// `[ROWS][scores_ld]`, from the panel of the block's first key on.
    scores: *mut f32,
    scores_ld: usize,
}

impl Head {
    fn new(isa: Isa, args: &Attention, scratch: &mut AttentionScratch) -> Head {
        let (width, tile) = (isa.panel_width(), isa.tile_rows());
        assert!(args.keys > 0, "attention needs a key");
        assert!(
            args.head_dim.is_multiple_of(width),
            "the head size {} is not padded to a multiple of {width}",
            args.head_dim
        );
        let seen = if args.mask == Mask::NONE {
            0..args.keys
        } else {
            let blocks = args.first / tile * tile..(args.first + args.q_rows).next_multiple_of(tile);
            let seen = args.mask.seen_by_any(blocks, args.keys);
            seen.start / width * width..seen.end
        };
        let padded = seen.len().next_multiple_of(width);
        // A block sees no more than this, and one panel more when it does not begin at a panel. A window may be any number:
        // one wider than all keys is cut to them, for the sum would wrap around and the scores get too little memory.
        let widest = match args.mask.window {
            Some(window) => padded.min((tile + 2 * window.min(args.keys)).next_multiple_of(width) + width),
            None => padded,
        };
        // Rows that lie a multiple of 2 KiB apart would share few sets of the first-level cache.
        let scores_ld = if (widest * size_of::<f32>()).is_multiple_of(2048) { widest + width } else { widest };
        scratch.keys.grow(padded * args.head_dim);
        scratch.scores.grow(scores_ld * tile);
        let (keys, scores) = (scratch.keys.as_mut_ptr(), scratch.scores.as_mut_ptr());
        Head { args: *args, seen, keys, scores, scores_ld }
    }

    /// The keys that query `row`, counted from the first one, sees.
    #[inline(always)]
    fn seen_by(&self, row: usize) -> Range<usize> {
        if self.args.mask == Mask::NONE {
            0..self.args.keys
        } else {
            self.args.mask.seen(self.args.first + row, self.args.keys)
        }
    }
}

impl SimdOp for Head {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        const { assert!(S::ROWS <= MAX_ROWS) };
        let args = &self.args;
        self.transpose_keys(simd);
        if args.mask == Mask::NONE {
            let mut tiles = RowTiles::new(args.q_rows, S::ROWS);
            while let Some((row, height)) = tiles.next() {
                self.block(simd, row, height, 0..args.keys);
            }
            return;
        }
        let mut row = 0;
        while row < args.q_rows {
            // The block of positions that this query belongs to, whether or not all of it was asked for.
            let start = (args.first + row) / S::ROWS * S::ROWS;
            let end = start + S::ROWS;
            let height = (end - args.first).min(args.q_rows) - row;
            self.block(simd, row, height, args.mask.seen_by_any(start..end, args.keys));
            row += height;
        }
    }
}

/// The softmax of one query.
struct Weights<'a> {
    head: Head,
    share: f32,
    out: &'a mut [f32],
}

impl SimdOp for Weights<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        self.head.transpose_keys(simd);
        let seen = self.head.seen_by(0);
        let factors = self.head.powers(simd, 0, 1, seen.clone());
        let from = seen.start % S::PANEL;
        for (i, out) in self.out[seen].iter_mut().enumerate() {
            // SAFETY: `powers` has written the scores of the keys that the query sees.
            *out += unsafe { *self.head.scores.add(from + i) } * factors[0] * self.share;
        }
    }
}

impl Head {
    /// The result of `height` queries from `row` on, which see none but the keys `seen`.
    #[inline(always)]
    fn block<S: Simd>(&self, simd: S, row: usize, height: usize, seen: Range<usize>) {
        let args = &self.args;
        let factors = self.powers(simd, row, height, seen.clone());
        for p in 0..args.head_dim / S::PANEL {
            let (a, a_ld) = (self.scores.wrapping_add(seen.start % S::PANEL).cast_const(), self.scores_ld);
            let b = args.v.wrapping_add(p * args.v_panel_stride + seen.start * S::PANEL);
            let out = args.out.wrapping_add(row * args.out_ld + p * S::PANEL);
            let epilogue = ScaleRows { factors: factors.as_ptr() };
            simd.call_rows(height, Tile { a, a_ld, depth: seen.len(), b, out, out_ld: args.out_ld, epilogue });
        }
    }

    /// Powers of 2 of the block's scores, 0 for keys of `seen` that a query does not see itself, and what makes their sum
    /// 1 for each row.
    #[inline(always)]
    fn powers<S: Simd>(&self, simd: S, row: usize, height: usize, seen: Range<usize>) -> [f32; MAX_ROWS] {
        let (args, depth) = (&self.args, self.args.head_dim);
        let first = seen.start / S::PANEL;
        for p in first..seen.end.div_ceil(S::PANEL) {
            let a = args.q.wrapping_add(row * args.q_ld);
            let b = self.keys.wrapping_add((p - self.seen.start / S::PANEL) * depth * S::PANEL);
            let out = self.scores.wrapping_add((p - first) * S::PANEL);
            let out_ld = self.scores_ld;
            simd.call_rows(height, Tile { a, a_ld: args.q_ld, depth, b, out, out_ld, epilogue: Plain });
        }
        let mut factors = [0.0; MAX_ROWS];
        for (i, factor) in factors.iter_mut().enumerate().take(height) {
            let from = i * self.scores_ld + seen.start % S::PANEL;
            // SAFETY: the tiles above have written `height` rows of scores.
            let scores = unsafe { std::slice::from_raw_parts_mut(self.scores.add(from), seen.len()) };
            let own = self.seen_by(row + i);
            scores[..own.start - seen.start].fill(0.0);
            scores[own.end - seen.start..].fill(0.0);
            let scores = &mut scores[own.start - seen.start..own.end - seen.start];
            if let Some(bias) = args.bias {
                let bias = bias.wrapping_add(own.start).wrapping_sub(args.first + row + i);
                // SAFETY: the caller of `attention_head` promises a bias for each key that the query sees.
                add(simd, scores, unsafe { std::slice::from_raw_parts(bias, scores.len()) });
            }
            *factor = 1.0 / powers_and_sum(simd, scores);
        }
        factors
    }

    /// Packs the keys that are seen into panels, with zeros behind the last one.
    #[inline(always)]
    fn transpose_keys<S: Simd>(&self, simd: S) {
        let (args, depth) = (&self.args, self.args.head_dim);
        let count = self.seen.len();
        for key in (0..count.next_multiple_of(S::PANEL)).step_by(S::LANES) {
            let rows = count.saturating_sub(key).min(S::LANES);
            let panel = self.keys.wrapping_add(key / S::PANEL * depth * S::PANEL + key % S::PANEL);
            for at in (0..depth).step_by(S::LANES) {
                // SAFETY: the caller of `attention_head` promises `keys` rows of `head_dim` values; the scratch has a
                // column of `head_dim` values for each key that is seen, rounded up to whole panels.
                unsafe {
                    let from = args.k.wrapping_add((self.seen.start + key) * args.k_ld + at);
                    simd.transpose(from, args.k_ld, rows, panel.add(at * S::PANEL), S::PANEL);
                }
            }
        }
    }
}

/// `scores += bias`
#[inline(always)]
fn add<S: Simd>(simd: S, scores: &mut [f32], bias: &[f32]) {
    let mut chunks = scores.chunks_exact_mut(S::LANES);
    let mut biases = bias.chunks_exact(S::LANES);
    for (chunk, bias) in (&mut chunks).zip(&mut biases) {
        simd.write(chunk, simd.add(simd.read(chunk), simd.read(bias)));
    }
    let tail = chunks.into_remainder();
    let sum = simd.add(simd.read_part(tail), simd.read_part(biases.remainder()));
    simd.write_part(tail, sum);
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
