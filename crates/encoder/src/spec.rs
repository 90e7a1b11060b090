//! What an encoder is: sizes and closed enums, no code.

use simile_kernels::Activation;

/// An encoder's architecture. Computes nothing and mentions no device.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSpec {
    /// Rows of the word table.
    pub vocab_size: usize,
    /// Width of a hidden state.
    pub hidden_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// What becomes of a token id.
    pub embeddings: EmbeddingSpec,
    /// What every layer does.
    pub layer: LayerSpec,
}

/// Hidden state 0: sum of the tables' rows, then a norm.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSpec {
    /// Where position comes from.
    pub positions: Positions,
    /// Rows of the token type table, if there is one.
    pub token_types: Option<usize>,
    /// Norm of the sum.
    pub norm: Norm,
}

/// Where position comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// A learned table of `table` rows; token i of a sequence reads row `offset + i`.
    Absolute {
        /// Rows of the table.
        table: usize,
        /// Row of the first token: 0 for BERT.
        offset: usize,
    },
}

/// What every layer does.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Where the norms sit.
    pub placement: NormPlacement,
    /// Self-attention.
    pub attention: AttentionSpec,
    /// Feed-forward part.
    pub mlp: MlpSpec,
    /// The norms' kind.
    pub norm: Norm,
}

/// Where the norms of a layer sit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormPlacement {
    /// `x = norm(x + f(x))`, as in BERT.
    Post,
}

/// A norm over the hidden width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// (x - mean) / sqrt(population variance + epsilon) * gamma + beta.
    LayerNorm {
        /// Added to the variance.
        epsilon: f32,
    },
}

/// Self-attention: every head has its own keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSpec {
    /// Heads.
    pub heads: usize,
    /// Width of a head; scores are scaled by 1/sqrt of it.
    pub head_dim: usize,
    /// Which tokens a token sees.
    pub mask: Mask,
}

/// Which tokens a token sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All tokens of its sequence.
    Bidirectional,
}

/// Feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlpSpec {
    /// Width of the middle.
    pub intermediate_size: usize,
    /// Its shape.
    pub kind: MlpKind,
    /// Non-linearity of the middle.
    pub activation: Activation,
}

/// Shape of the feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlpKind {
    /// down(activation(up(x))).
    Plain,
}
