//! From hidden states to one row a sequence: the six poolings of sentence-transformers.

use crate::Rows;

/// How the rows of a sequence become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The first token's row.
    Cls,
    /// Mean over all tokens.
    Mean,
    /// Largest value of each column.
    Max,
    /// Sum over all tokens divided by the square root of their number.
    MeanSqrtLen,
    /// Mean with weights 1, 2, … n: later tokens count more.
    WeightedMean,
    /// The last token's row.
    LastToken,
}

impl Pooling {
    /// All poolings.
    pub const ALL: [Pooling; 6] =
        [Pooling::Cls, Pooling::Mean, Pooling::Max, Pooling::MeanSqrtLen, Pooling::WeightedMean, Pooling::LastToken];

    /// The name that sentence-transformers gives it (`pooling_mode` in `1_Pooling/config.json`).
    pub fn name(self) -> &'static str {
        match self {
            Pooling::Cls => "cls",
            Pooling::Mean => "mean",
            Pooling::Max => "max",
            Pooling::MeanSqrtLen => "mean_sqrt_len_tokens",
            Pooling::WeightedMean => "weightedmean",
            Pooling::LastToken => "lasttoken",
        }
    }

    /// The pooling of that name.
    pub fn from_name(name: &str) -> Option<Pooling> {
        Self::ALL.into_iter().find(|pooling| pooling.name() == name)
    }

    /// The rows that this pooling reads, so that the last layer computes no others.
    pub fn rows(self) -> Rows {
        match self {
            Pooling::Cls => Rows::First,
            Pooling::LastToken => Rows::Last,
            _ => Rows::All,
        }
    }
}
