//! How a checkpoint calls its tensors: data that an executor resolves against the file.

/// Tensor names of an architecture. A name in the file is prefix + entry; entries of a layer contain `{}` for its
/// number.
///
/// One of `prefixes` holds for the whole checkpoint: the one under which the word table is found. Tensors that no entry
/// names (poolers, language model heads, `position_ids`) are ignored. Whether an entry is read follows from the spec: a
/// spec that has the part needs its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorNames {
    /// Prefixes that checkpoints of this architecture are written with.
    pub prefixes: &'static [&'static str],
    /// The word table, `[vocab_size, hidden_size]`.
    pub word_embeddings: &'static str,
    /// The position table, `[rows, hidden_size]`.
    pub position_embeddings: Option<&'static str>,
    /// The token type table, `[types, hidden_size]`.
    pub token_type_embeddings: Option<&'static str>,
    /// Norm of the embeddings' sum, without suffix.
    pub embeddings_norm: Option<&'static str>,
    /// Table of relative position biases, `[buckets, heads]`.
    pub relative_bias: Option<&'static str>,
    /// Norm behind the last layer, without suffix.
    pub final_norm: Option<&'static str>,
    /// Spellings of a norm's two vectors.
    pub norm: &'static [NormNames],
    /// What every layer has.
    pub layer: LayerNames,
}

/// One spelling of a norm's vectors, as suffixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormNames {
    /// Scale, gamma.
    pub weight: &'static str,
    /// Shift, beta.
    pub bias: &'static str,
}

/// A linear layer: rows of `<entry>.weight`, `[out, in]`, and of `<entry>.bias`, `[out]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearNames {
    /// The entry.
    pub entry: &'static str,
    /// Which rows of the tensor it is, when several layers are stored as one; `None` is all.
    pub part: Option<Part>,
    /// Whether there is a bias.
    pub bias: bool,
}

/// Rows of a tensor that holds several linear layers, one above the other. How many rows the layer has follows from the
/// spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first of its rows.
    pub first: usize,
    /// Rows of the whole tensor.
    pub of: usize,
}

impl LinearNames {
    /// A whole tensor with a bias.
    pub const fn biased(entry: &'static str) -> Self {
        LinearNames { entry, part: None, bias: true }
    }

    /// A whole tensor without a bias.
    pub const fn unbiased(entry: &'static str) -> Self {
        LinearNames { entry, part: None, bias: false }
    }

    /// Rows of it.
    pub const fn part(self, first: usize, of: usize) -> Self {
        LinearNames { part: Some(Part { first, of }), ..self }
    }
}

/// Entries of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerNames {
    /// Query projection.
    pub query: LinearNames,
    /// Key projection.
    pub key: LinearNames,
    /// Value projection.
    pub value: LinearNames,
    /// Norm of the projected queries.
    pub query_norm: Option<&'static str>,
    /// Norm of the projected keys.
    pub key_norm: Option<&'static str>,
    /// Output projection of the attention.
    pub attention_output: LinearNames,
    /// The attention's norm: behind the residual sum (post), or before the attention (pre, sandwich).
    pub attention_norm: &'static str,
    /// Norm of the attention's output in a sandwich; the inner one of the two in a post-norm layer that has it twice.
    pub attention_output_norm: Option<&'static str>,
    /// Linear layer of the feed-forward part that is not gated by an activation; in a plain one the first.
    pub up: LinearNames,
    /// Linear layer whose activation gates `up`.
    pub gate: Option<LinearNames>,
    /// Last linear layer of the feed-forward part.
    pub down: LinearNames,
    /// The feed-forward part's norm: behind the residual sum (post), or before it (pre, sandwich).
    pub mlp_norm: &'static str,
    /// Sandwich only: norm of the feed-forward part's output.
    pub mlp_output_norm: Option<&'static str>,
}

impl LayerNames {
    /// `entry` of layer `layer`.
    pub fn of(entry: &str, layer: usize) -> String {
        entry.replacen("{}", &layer.to_string(), 1)
    }
}
