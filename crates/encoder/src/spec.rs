//! What an encoder is: sizes and closed enums, no code.
//!
//! A spec says everything that changes a hidden state, and nothing about how it is computed. Executors match on its enums
//! exhaustively: a new variant does not compile until each of them runs it, or refuses it by name.

use simile_kernels::Activation;

/// An encoder's architecture. Computes nothing and mentions no device.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSpec {
    /// Rows of the word table.
    pub vocab_size: usize,
    /// Width of a hidden state.
    pub hidden_size: usize,
    /// Longest sequence in tokens, special tokens included: usable positions, so 512 and not 514 for RoBERTa kinds.
    pub max_positions: usize,
    /// What becomes of a token id.
    pub embeddings: EmbeddingSpec,
    /// What each layer does, first to last; at least one.
    pub layers: Vec<LayerSpec>,
    /// Norm behind the last layer.
    pub final_norm: Option<Norm>,
}

/// Hidden state 0: sum of the tables' rows, then a norm.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSpec {
    /// The word row is multiplied by this before anything is added: Gemma's sqrt(hidden_size), else 1.
    pub scale: f32,
    /// Learned positions that are added.
    pub positions: Positions,
    /// Rows of the token type table, if there is one.
    pub token_types: Option<usize>,
    /// Norm of the sum.
    pub norm: Option<Norm>,
}

/// Learned positions that are added to the word rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// None: position enters in the attention.
    None,
    /// A table of `table` rows; token i of a sequence reads row i.
    Absolute {
        /// Rows of the table.
        table: usize,
    },
    /// RoBERTa's rule: a token reads row `pad + n`, where it is the n-th token (from 1) that is not `pad`; a token that
    /// *is* `pad` (literal `<pad>` in a text) reads row `pad`. Usable positions: `table - pad - 1`.
    NonPad {
        /// Rows of the table.
        table: usize,
        /// The padding token's id (`pad_token_id`).
        pad: u32,
    },
}

/// What a layer does.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Where the norms sit.
    pub placement: NormPlacement,
    /// The norms' kind.
    pub norm: Norm,
    /// Self-attention.
    pub attention: AttentionSpec,
    /// Feed-forward part.
    pub mlp: MlpSpec,
}

/// Where the norms of a layer sit. `attention` and `mlp` are the two parts, `x` the layer's input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormPlacement {
    /// `x = norm(x + attention(x)); x = norm(x + mlp(x))`, as in BERT.
    Post {
        /// The attention's sum has two norms, and the input is added in front of each:
        /// `x = norm2(x + norm1(x + attention(x)))`, as in JinaBert with norms on q and k.
        twice: bool,
    },
    /// `x = x + attention(norm(x)); x = x + mlp(norm(x))`, as in Qwen3.
    Pre {
        /// Whether the attention's input is normed: not in ModernBert's first layer.
        attention_norm: bool,
    },
    /// `x = x + norm(attention(norm(x))); x = x + norm(mlp(norm(x)))`: four norms, as in Gemma 3.
    Sandwich,
}

/// A norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Norm {
    /// `(x - mean) / sqrt(population variance + epsilon) * gamma + beta`.
    LayerNorm {
        /// Added to the variance.
        epsilon: f32,
        /// Whether there is a beta.
        bias: bool,
    },
    /// `x / sqrt(mean of squares + epsilon) * (offset + gamma)`.
    RmsNorm {
        /// Added to the mean of squares.
        epsilon: f32,
        /// Added to the stored weight: 0, and 1 for Gemma.
        offset: f32,
    },
}

/// Self-attention. Query head h reads key and value head `h / (heads / kv_heads)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads: a divisor of `heads` (grouped-query attention).
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Scores are multiplied by it: mostly `1 / sqrt(head_dim)`.
    pub scale: f64,
    /// Norm of the projected queries and keys, before rotation.
    pub qk_norm: Option<QkNorm>,
    /// Where position enters.
    pub position: AttentionPosition,
    /// Whether token i sees only tokens j <= i.
    pub causal: bool,
    /// Token i sees only tokens with |i - j| <= this.
    pub window: Option<usize>,
}

impl AttentionSpec {
    /// `heads` heads that see every token: each with keys and values of its own, scores over `sqrt(head_dim)`, no norm and
    /// no position.
    pub fn full(heads: usize, head_dim: usize) -> Self {
        AttentionSpec {
            heads,
            kv_heads: heads,
            head_dim,
            scale: 1.0 / (head_dim as f64).sqrt(),
            qk_norm: None,
            position: AttentionPosition::None,
            causal: false,
            window: None,
        }
    }
}

/// Norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QkNorm {
    /// Over each head (weights of `head_dim`), as in Qwen3 and Gemma 3.
    PerHead(Norm),
    /// Over all heads together (weights of `heads * head_dim`), as in some JinaBerts.
    AllHeads(Norm),
}

/// Where position enters the attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttentionPosition {
    /// Nowhere.
    None,
    /// Queries and keys are rotated (Su et al. 2021).
    Rope(Rope),
    /// `-slope(head) * |i - j|` is added to the scaled scores (Press et al. 2021, symmetric). Slopes:
    /// [`positions::alibi_slopes`](crate::positions::alibi_slopes).
    Alibi,
    /// A learned bias of (bucket of j - i, head) is added to the scaled scores; one table for all layers. Buckets:
    /// [`positions::relative_bucket`](crate::positions::relative_bucket).
    RelativeBias {
        /// Rows of the table.
        buckets: usize,
        /// Distances from here on share the last bucket.
        max_distance: usize,
    },
}

/// Rotary embedding over the whole head, halves paired (component i with i + head_dim / 2). Frequencies:
/// [`Rope::frequencies`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// How longer texts than those of the training are brought in range.
    pub scaling: RopeScaling,
}

/// Scaling of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// None.
    None,
    /// GteNew's `ntk`: base times `factor`, and every frequency over `factor^(2 / head_dim)`.
    Ntk {
        /// Factor.
        factor: f64,
    },
    /// NomicBert's dynamic rule: a text of n > `trained` tokens has its base multiplied by
    /// `(factor n / trained - (factor - 1))^(head_dim / (head_dim - 2))`. By the text's own length.
    DynamicNtk {
        /// Factor.
        factor: f64,
        /// Positions of the training.
        trained: usize,
    },
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
    /// `down(activation(up(x)))`.
    Plain,
    /// `down(activation(gate(x)) * up(x))`.
    Gated,
}
