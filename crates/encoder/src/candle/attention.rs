//! Attention: the only place that looks at the backend.
//!
//! | backend | where | how |
//! |---|---|---|
//! | Metal | head size and dtype are the kernel's, nothing but a mask is added to the scores, and the mask is small | candle's fused kernel |
//! | any | else | scores, softmax and weighted sum, for as many queries at a time as [`SCORES`] allows |
//!
//! # Invariants
//! - Scores and their softmax are f32 in every dtype.
//! - No matrix of more than [`SCORES`] values is held (one query's scores alone may be more), so the memory of a text grows
//!   with its length and not with the square of it. Keys that no query of a block sees are not read.
//! - A hidden key's score is lowered by [`HIDDEN`], which is finite, once, whatever hides it.
//! - Every query sees a key: one that the rule shows none, behind the last key that is attended to, sees that one, as
//!   [`simile_kernels::Mask`] has it. What a padded slot sees is nobody's concern.

use candle_core::{DType, Result, Tensor};
use candle_nn::ops::{sdpa, softmax_last_dim};
use std::ops::Range;

use super::batch::Group;
use crate::positions::{alibi_slopes, relative_bucket};
use crate::spec::{AttentionPosition, AttentionSpec};

/// The most values in a block of scores: 64 MiB. A text of 8,192 tokens under 12 heads goes in blocks of 170 queries.
const SCORES: usize = 16 << 20;

/// Added to the score of a key that is not to be seen: e^-1e30 is 0.
const HIDDEN: f32 = -1e30;

/// Learned relative biases, `[buckets, heads]` in f32.
pub(super) type RelativeBias = Tensor;

/// Context vectors: `[sequences, heads, longest, head_dim]`, in the dtype of the `query`. `query` is
/// `[sequences, heads, longest, head_dim]`, `key` and `value` have `kv_heads`.
pub(super) fn attend(
    spec: &AttentionSpec,
    group: &Group,
    bias: Option<&RelativeBias>,
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
) -> Result<Tensor> {
    if query.device().is_metal() && fused_fits(spec, query.dtype(), group.lengths.len(), group.longest) {
        let mask = Bias::new(spec, group, None, query)?.block(0..group.longest, 0..group.longest)?;
        let shape = (group.lengths.len(), spec.heads, group.longest, group.longest);
        let mask = mask.map(|mask| mask.broadcast_as(shape)?.to_dtype(query.dtype())?.contiguous()).transpose()?;
        return sdpa(query, key, value, mask.as_ref(), false, spec.scale as f32, 1.0);
    }
    let bias = Bias::new(spec, group, bias, query)?;
    let rows = (SCORES / (group.lengths.len() * spec.heads * group.longest)).clamp(1, group.longest);
    let blocks = (0..group.longest)
        .step_by(rows)
        .map(|first| {
            let queries = first..group.longest.min(first + rows);
            let keys = visible(spec, &queries, group);
            let weights = weights(spec, &bias, query, key, queries.clone(), keys.clone())?;
            let value = value.narrow(2, keys.start, keys.len())?;
            let context = by_key_head(spec, &weights.to_dtype(value.dtype())?)?.matmul(&value)?;
            let (sequences, _, _, head_dim) = value.dims4()?;
            context.reshape((sequences, spec.heads, queries.len(), head_dim))
        })
        .collect::<Result<Vec<_>>>()?;
    Tensor::cat(&blocks, 2)
}

/// Weights of all tokens for the first one, mean over the heads: `[sequences, longest]` in f32.
pub(super) fn first_weights(
    spec: &AttentionSpec,
    group: &Group,
    bias: Option<&RelativeBias>,
    query: &Tensor,
    key: &Tensor,
) -> Result<Tensor> {
    let bias = Bias::new(spec, group, bias, query)?;
    weights(spec, &bias, query, key, 0..1, 0..group.longest)?.mean(1)?.squeeze(1)
}

/// Softmax of the scores of `queries` over `keys`: `[sequences, heads, queries, keys]` in f32.
fn weights(
    spec: &AttentionSpec,
    bias: &Bias,
    query: &Tensor,
    key: &Tensor,
    queries: Range<usize>,
    keys: Range<usize>,
) -> Result<Tensor> {
    let query = by_key_head(spec, &query.narrow(2, queries.start, queries.len())?.contiguous()?)?;
    let key = key.narrow(2, keys.start, keys.len())?;
    let sequences = key.dim(0)?;
    let scores = query.matmul(&key.t()?)?.reshape((sequences, spec.heads, queries.len(), keys.len()))?;
    let scores = (scores.to_dtype(DType::F32)? * spec.scale)?;
    let scores = match bias.block(queries, keys)? {
        Some(bias) => scores.broadcast_add(&bias)?,
        None => scores,
    };
    softmax_last_dim(&scores)
}

/// `[sequences, heads, n, m]` as `[sequences, kv_heads, heads / kv_heads * n, m]`: the queries that share a key head, one
/// below the other.
fn by_key_head(spec: &AttentionSpec, x: &Tensor) -> Result<Tensor> {
    let (sequences, heads, n, m) = x.dims4()?;
    x.reshape((sequences, spec.kv_heads, heads / spec.kv_heads * n, m))
}

/// The keys that some query of `queries` may see.
fn visible(spec: &AttentionSpec, queries: &Range<usize>, group: &Group) -> Range<usize> {
    let longest = group.longest;
    let window = spec.window.unwrap_or(longest);
    let end = if spec.causal { queries.end } else { longest.min(queries.end.saturating_add(window)) };
    // Tokens that are not attended to see the last one that is, however far it is.
    let ends = group.attended.iter().zip(&group.lengths).filter(|(attended, length)| attended < length);
    let last = ends.map(|(&attended, _)| attended.saturating_sub(1)).min().unwrap_or(longest);
    queries.start.saturating_sub(window).min(last)..end
}

/// What is added to the scores.
struct Bias {
    /// `[sequences, 1, 1, 1]` in f32: how many tokens of each sequence are attended to; `None` when all slots are.
    attended: Option<Tensor>,
    causal: bool,
    window: Option<usize>,
    /// `[heads, 1, 1]`, negative.
    slopes: Option<Tensor>,
    /// `[2 longest - 1, heads]`: bias of the distances 1 - longest, …, longest - 1.
    by_distance: Option<Tensor>,
    /// `[longest]`: 0, 1, …
    places: Tensor,
    longest: usize,
}

impl Bias {
    fn new(spec: &AttentionSpec, group: &Group, relative: Option<&RelativeBias>, like: &Tensor) -> Result<Bias> {
        let (device, longest) = (like.device(), group.longest);
        // When causal, no row that is read sees the slots behind its own sequence: they come last.
        let hides = |spec: &AttentionSpec| if spec.causal { group.has_unattended() } else { group.has_hidden_slots() };
        let attended = if hides(spec) {
            let values: Vec<f32> = group.attended.iter().map(|&attended| attended as f32).collect();
            Some(Tensor::from_vec(values, (group.lengths.len(), 1, 1, 1), device)?)
        } else {
            None
        };
        let (mut slopes, mut by_distance) = (None, None);
        match spec.position {
            AttentionPosition::None | AttentionPosition::Rope(_) => {}
            AttentionPosition::Alibi => {
                let values: Vec<f32> = alibi_slopes(spec.heads).into_iter().map(|slope| -slope).collect();
                slopes = Some(Tensor::from_vec(values, (spec.heads, 1, 1), device)?);
            }
            AttentionPosition::RelativeBias { buckets, max_distance } => {
                let distances = 1 - longest as isize..longest as isize;
                let rows = distances.map(|distance| relative_bucket(distance, buckets, max_distance) as u32).collect();
                let rows = Tensor::from_vec(rows, 2 * longest - 1, device)?;
                by_distance = relative.map(|table| table.index_select(&rows, 0)).transpose()?;
            }
        }
        Ok(Bias {
            attended,
            causal: spec.causal,
            window: spec.window.filter(|&window| window < longest.saturating_sub(1)),
            slopes,
            by_distance,
            places: Tensor::arange(0u32, longest as u32, device)?,
            longest,
        })
    }

    /// What is added to the scores of `queries` and `keys`; broadcasts to `[sequences, heads, queries, keys]`.
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Result<Option<Tensor>> {
        let count = queries.len() * keys.len();
        let columns = self.places.narrow(0, keys.start, keys.len())?.unsqueeze(0)?;
        let rows = self.places.narrow(0, queries.start, queries.len())?.unsqueeze(1)?;
        // Key position - query position, `[queries, keys]`.
        let distance = || columns.to_dtype(DType::F32)?.broadcast_sub(&rows.to_dtype(DType::F32)?);
        let mut sum = self.hidden(&columns.to_dtype(DType::F32)?, &distance)?;
        let mut add = |term: Tensor| -> Result<()> {
            sum = Some(match sum.take() {
                Some(sum) => sum.broadcast_add(&term)?,
                None => term,
            });
            Ok(())
        };
        if let Some(slopes) = &self.slopes {
            add(slopes.broadcast_mul(&distance()?.abs()?)?)?;
        }
        if let Some(biases) = &self.by_distance {
            let offset = Tensor::full(self.longest as u32 - 1, rows.shape(), rows.device())?;
            let row = columns.broadcast_add(&(offset - rows)?)?.reshape(count)?;
            let bias = biases.index_select(&row, 0)?.reshape((queries.len(), keys.len(), ()))?;
            add(bias.permute((2, 0, 1))?)?;
        }
        Ok(sum)
    }

    /// [`HIDDEN`] for the keys that a query does not see, 0 for the others; `columns` are the places of the keys.
    fn hidden(&self, columns: &Tensor, distance: &dyn Fn() -> Result<Tensor>) -> Result<Option<Tensor>> {
        // 1 where any of the rules hides a key.
        let mut mask: Option<Tensor> = None;
        let mut hide = |rule: Tensor| -> Result<()> {
            mask = Some(match mask.take() {
                Some(mask) => mask.broadcast_maximum(&rule)?,
                None => rule,
            });
            Ok(())
        };
        if let Some(attended) = &self.attended {
            hide(columns.broadcast_ge(attended)?)?;
        }
        if self.causal {
            hide(distance()?.gt(0f32)?)?;
        }
        if let Some(window) = self.window {
            let window = window as f32;
            hide(distance()?.gt(window)?)?;
            let before = distance()?.lt(-window)?;
            hide(match &self.attended {
                // But the last one that is attended to is never too far behind.
                Some(attended) => before.broadcast_mul(&columns.broadcast_lt(&(attended - 1.0)?)?)?,
                None => before,
            })?;
        }
        mask.map(|mask| mask.to_dtype(DType::F32)? * f64::from(HIDDEN)).transpose()
    }
}

/// Whether candle's fused Metal kernel computes this: the sizes that it was compiled for, one dtype, a mask at most.
fn fused_fits(spec: &AttentionSpec, dtype: DType, sequences: usize, longest: usize) -> bool {
    let sizes = match dtype {
        DType::F16 | DType::BF16 => &[32, 64, 72, 80, 96, 128, 256, 512][..],
        // 512 needs more than the 32 KiB that a threadgroup has.
        DType::F32 => &[32, 64, 72, 80, 96, 128, 256],
        _ => &[],
    };
    let only_masked = match spec.position {
        AttentionPosition::None | AttentionPosition::Rope(_) => true,
        AttentionPosition::Alibi | AttentionPosition::RelativeBias { .. } => false,
    };
    // One query takes another kernel, without mask.
    sizes.contains(&spec.head_dim) && only_masked && longest > 1 && sequences * spec.heads * longest * longest <= SCORES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Positions, Rope, RopeScaling};
    use crate::{EncoderInput, Rows};
    use candle_core::Device;

    const SPEC: AttentionSpec = AttentionSpec {
        heads: 12,
        kv_heads: 12,
        head_dim: 64,
        scale: 0.125,
        qk_norm: None,
        position: AttentionPosition::None,
        causal: false,
        window: None,
    };

    #[test]
    fn the_fused_kernel_is_taken_where_it_computes_the_same() {
        let rope = AttentionPosition::Rope(Rope { theta: 1e4, scaling: RopeScaling::None });
        let relative = AttentionPosition::RelativeBias { buckets: 32, max_distance: 128 };
        let cases = [
            ("BERT base", SPEC, DType::F32, 8, 128, true),
            ("f16", SPEC, DType::F16, 8, 128, true),
            ("bf16", SPEC, DType::BF16, 8, 128, true),
            ("rotary", AttentionSpec { position: rope, ..SPEC }, DType::F32, 8, 128, true),
            ("causal in a window", AttentionSpec { causal: true, window: Some(8), ..SPEC }, DType::F32, 8, 128, true),
            ("all-MiniLM-L6-v2: head size 32", AttentionSpec { head_dim: 32, ..SPEC }, DType::F32, 8, 128, true),
            ("head size 12", AttentionSpec { head_dim: 12, ..SPEC }, DType::F32, 8, 128, false),
            ("head size 512 in f32", AttentionSpec { head_dim: 512, ..SPEC }, DType::F32, 8, 128, false),
            ("head size 512 in f16", AttentionSpec { head_dim: 512, ..SPEC }, DType::F16, 8, 128, true),
            ("f64", SPEC, DType::F64, 8, 128, false),
            ("ALiBi", AttentionSpec { position: AttentionPosition::Alibi, ..SPEC }, DType::F32, 8, 128, false),
            ("relative bias", AttentionSpec { position: relative, ..SPEC }, DType::F32, 8, 128, false),
            ("one token", SPEC, DType::F32, 8, 1, false),
            ("8,192 tokens: the mask alone would be 805 million values", SPEC, DType::F32, 1, 8192, false),
        ];
        for (what, spec, dtype, sequences, longest, expected) in cases {
            assert_eq!(fused_fits(&spec, dtype, sequences, longest), expected, "{what}");
        }
    }

    /// One sequence of `length` tokens, of which `attended` are attended to.
    fn group(length: usize, attended: usize) -> Group {
        let (ids, lengths, attended) = (vec![0; length], [length], [attended]);
        let batch = EncoderInput { input_ids: &ids, token_type_ids: &[], lengths: &lengths, attended: &attended };
        Group::new(&batch, &[0], &[0], Positions::None, Rows::All, &Device::Cpu).unwrap()
    }

    #[test]
    fn keys_that_no_query_of_a_block_sees_are_left_out() {
        let window = |window, causal| AttentionSpec { window: Some(window), causal, ..SPEC };
        let cases = [
            (SPEC, 10..20, 0..100),
            (AttentionSpec { causal: true, ..SPEC }, 10..20, 0..20),
            (window(4, false), 10..20, 6..24),
            (window(4, false), 0..2, 0..6),
            (window(4, false), 90..100, 86..100),
            (window(4, true), 10..20, 6..20),
            (window(usize::MAX, false), 10..20, 0..100),
        ];
        for (spec, queries, keys) in cases {
            assert_eq!(visible(&spec, &queries, &group(100, 100)), keys, "{spec:?}, {queries:?}");
        }
        assert_eq!(visible(&window(4, false), &(90..100), &group(100, 20)), 19..100, "the last that is attended to");
    }
}
