//! Sizes and strides of the executor's buffers, all in floats.

use crate::spec::{EncoderSpec, LayerSpec, NormPlacement};

/// Sizes of a model on an instruction set whose panels are `panel` wide. Buffers are as large as the largest layer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dims {
    /// Columns of a packed panel.
    pub panel: usize,
    /// Width of a hidden state.
    pub hidden: usize,
    /// Distance of two hidden states.
    pub hidden_stride: usize,
    /// The largest of the layers' fields of that name.
    pub query_stride: usize,
    /// As above.
    pub key_stride: usize,
    /// As above.
    pub key_width: usize,
    /// As above.
    pub middle_stride: usize,
    /// Whether a layer norms the input of its attention.
    pub normed: bool,
}

/// Sizes of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerDims {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head in the checkpoint.
    pub head_dim: usize,
    /// Width of a head here: padded with zeros to whole panels, so that a head's values are its own panels.
    pub head_width: usize,
    /// Distance of two rows of queries, or of the attention's result.
    pub query_stride: usize,
    /// All key heads, or value heads.
    pub key_width: usize,
    /// Distance of two rows of keys.
    pub key_stride: usize,
    /// Width of the feed-forward part's middle.
    pub intermediate: usize,
    /// Distance of two of its rows.
    pub middle_stride: usize,
}

impl LayerDims {
    pub(super) fn new(spec: &LayerSpec, panel: usize) -> Self {
        let (attention, intermediate) = (spec.attention, spec.mlp.intermediate_size);
        let head_width = attention.head_dim.next_multiple_of(panel);
        let key_width = attention.kv_heads * head_width;
        LayerDims {
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            head_width,
            query_stride: stride(attention.heads * head_width, panel),
            key_width,
            key_stride: stride(key_width, panel),
            intermediate,
            middle_stride: stride(intermediate, panel),
        }
    }
}

impl Dims {
    pub(super) fn new(spec: &EncoderSpec, panel: usize) -> Self {
        let layers = || spec.layers.iter().map(|layer| LayerDims::new(layer, panel));
        let largest = |field: fn(LayerDims) -> usize| layers().map(field).max().unwrap_or(0);
        Dims {
            panel,
            hidden: spec.hidden_size,
            hidden_stride: stride(spec.hidden_size, panel),
            query_stride: largest(|layer| layer.query_stride),
            key_stride: largest(|layer| layer.key_stride),
            key_width: largest(|layer| layer.key_width),
            middle_stride: largest(|layer| layer.middle_stride),
            normed: spec.layers.iter().any(|layer| match layer.placement {
                NormPlacement::Post { .. } => false,
                NormPlacement::Pre { attention_norm } => attention_norm,
                NormPlacement::Sandwich => true,
            }),
        }
    }
}

/// Distance of rows of `width` floats: whole panels, because a tile writes whole panels, and not a multiple of 2 KiB,
/// because the rows of a tile would then share few sets of the first-level cache (64 sets of 64 bytes, 8 to 12 ways).
fn stride(width: usize, panel: usize) -> usize {
    const ALIASING_FLOATS: usize = 2048 / size_of::<f32>();
    let whole = width.next_multiple_of(panel);
    if whole.is_multiple_of(ALIASING_FLOATS) { whole + panel } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_whole_panels_that_do_not_alias() {
        let cases = [(384, 32, 384), (512, 32, 544), (1024, 16, 1040), (1536, 32, 1568), (312, 32, 320), (48, 16, 48)];
        for (width, panel, expected) in cases {
            assert_eq!(stride(width, panel), expected, "{width} in panels of {panel}");
        }
    }
}
