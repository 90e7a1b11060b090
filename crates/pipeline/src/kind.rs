//! What kind of result a model gives.

use std::fmt;

/// What a model makes of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModelKind {
    /// One vector.
    #[default]
    Dense,
    /// A weight for each of some words.
    Sparse,
    /// A vector for each token.
    MultiVector,
    /// A score of a pair of texts.
    Rerank,
}

impl ModelKind {
    /// All kinds.
    pub const ALL: [ModelKind; 4] = [ModelKind::Dense, ModelKind::Sparse, ModelKind::MultiVector, ModelKind::Rerank];

    /// `"dense"`, `"sparse"`, `"multi-vector"` or `"rerank"`.
    pub fn name(self) -> &'static str {
        match self {
            ModelKind::Dense => "dense",
            ModelKind::Sparse => "sparse",
            ModelKind::MultiVector => "multi-vector",
            ModelKind::Rerank => "rerank",
        }
    }

    /// The class that loads it.
    pub fn class(self) -> &'static str {
        match self {
            ModelKind::Dense => "TextEmbedding",
            ModelKind::Sparse => "SparseTextEmbedding",
            ModelKind::MultiVector => "MultiVectorTextEmbedding",
            ModelKind::Rerank => "TextCrossEncoder",
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
