//! Sizes and strides of the executor's buffers, all in floats.

use crate::spec::EncoderSpec;

/// Sizes of a model on an instruction set whose panels are `panel` wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dims {
    /// Columns of a packed panel.
    pub panel: usize,
    /// Width of a hidden state.
    pub hidden: usize,
    /// Distance of two hidden states.
    pub hidden_stride: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of a head in the checkpoint.
    pub head_dim: usize,
    /// Width of a head here: padded with zeros to whole panels, so that a head's values are its own panels.
    pub head_width: usize,
    /// All heads: `heads * head_width`.
    pub heads_width: usize,
    /// Distance of two rows of queries, keys or context.
    pub heads_stride: usize,
    /// Width of the feed-forward part's middle.
    pub intermediate: usize,
    /// Distance of two of its rows.
    pub middle_stride: usize,
}

impl Dims {
    pub(super) fn new(spec: &EncoderSpec, panel: usize) -> Self {
        let attention = spec.layers[0].attention;
        let head_width = attention.head_dim.next_multiple_of(panel);
        let heads_width = attention.heads * head_width;
        let intermediate = spec.layers[0].mlp.intermediate_size;
        Dims {
            panel,
            hidden: spec.hidden_size,
            hidden_stride: stride(spec.hidden_size, panel),
            heads: attention.heads,
            head_dim: attention.head_dim,
            head_width,
            heads_width,
            heads_stride: stride(heads_width, panel),
            intermediate,
            middle_stride: stride(intermediate, panel),
        }
    }

    /// Panels that a head has.
    pub(super) fn head_panels(&self) -> usize {
        self.head_width / self.panel
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
