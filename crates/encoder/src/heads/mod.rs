//! Heads: what is computed on hidden states besides pooling. Scores of pairs, sparse vectors, vectors of every token.
//!
//! # Contract
//! - A head is loaded from the checkpoint of its encoder (or a file beside it) and knows token ids and tensors, never text.
//! - It has the encoder's promises: the bytes of a sequence's result depend on that sequence alone, not on its batch-mates
//!   nor on the number of threads. NaN in a hidden state is NaN in the result of its own sequence.
//! - A tensor that is absent, or has another shape than the encoder's width says, is a [`WeightsError`](crate::WeightsError).

mod classifier;
mod lexical;
mod linear;
mod masked_lm;
mod projection;
mod token_logits;

pub use classifier::Classifier;
pub use lexical::Lexical;
pub use masked_lm::{MaskedLm, MlmPooling, MlmSettings};
pub use projection::Projection;
pub use token_logits::TokenLogits;
