//! How a checkpoint calls its tensors: data that an executor resolves against the file.

/// Tensor names of an architecture. A name in the file is prefix + entry; entries of a layer contain `{}` for its
/// number.
///
/// One of `prefixes` holds for the whole checkpoint: the one under which the word table is found. Tensors that no entry
/// names (poolers, language model heads, `position_ids`) are ignored.
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
    pub embeddings_norm: &'static str,
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

/// Entries of a layer. Linear layers are `<entry>.weight`, `[out, in]`, and `<entry>.bias`, `[out]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerNames {
    /// Query projection.
    pub query: &'static str,
    /// Key projection.
    pub key: &'static str,
    /// Value projection.
    pub value: &'static str,
    /// Output projection of the attention.
    pub attention_output: &'static str,
    /// Norm after the attention.
    pub attention_norm: &'static str,
    /// First linear layer of the feed-forward part.
    pub up: &'static str,
    /// Second linear layer of the feed-forward part.
    pub down: &'static str,
    /// Norm after the feed-forward part.
    pub mlp_norm: &'static str,
}

impl LayerNames {
    /// `entry` of layer `layer`.
    pub fn of(entry: &str, layer: usize) -> String {
        entry.replacen("{}", &layer.to_string(), 1)
    }
}
