//! The seam between models and everything above them: one small trait, one flat batch, one error enum.
//!
//! # Contract
//! A batch is ragged: the ids of all sequences one after the other, and a length for each. An executor reads the batch,
//! computes the rows that were asked for and hands them back as [`Hidden`]; it never pads, truncates or reorders.

use simile_kernels::ThreadPool;

use crate::{EncodeError, Hidden, Scratch};

/// A loaded model that turns token ids into hidden states.
pub trait Encoder: Send + Sync {
    /// Runs the model on `batch` and returns the last layer's hidden states of the asked `rows`, sequences in input
    /// order.
    ///
    /// # Errors
    /// [`EncodeError`] when the batch does not fit the model, when `ctx.checkpoint` answered [`Flow::Stop`], or when the
    /// weights file changed under the model.
    fn forward(&self, batch: &EncoderInput<'_>, rows: Rows, ctx: &mut Context<'_>) -> Result<Hidden, EncodeError>;

    /// Attention of each sequence's first token in the last layer, mean over its heads: a weight for every token of the
    /// batch in input order, which sum to 1 for each sequence (what BM42 reads).
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    fn first_token_attention(&self, batch: &EncoderInput<'_>, ctx: &mut Context<'_>) -> Result<Vec<f32>, EncodeError>;

    /// Width of a hidden state (`hidden_size`).
    fn hidden_size(&self) -> usize;

    /// Longest sequence in tokens, special tokens included: usable positions, so 512 and not 514 for RoBERTa kinds.
    fn max_position_embeddings(&self) -> usize;

    /// Number of rows of the word table: every token id must be smaller.
    fn vocab_size(&self) -> usize;

    /// Estimated work of one sequence of `length` tokens in floating point operations:
    /// 2 x parameters of the linear layers x length + 4 x length² x attention width x layers.
    fn flops(&self, length: usize) -> u64;

    /// Bytes of memory that the weights hold, without tables that stay in the file.
    fn memory_bytes(&self) -> usize;
}

/// A ragged batch: sequences one after the other, no padding.
#[derive(Clone, Copy, Debug)]
pub struct EncoderInput<'a> {
    /// Token ids of all sequences, concatenated; `lengths` says where one ends.
    pub input_ids: &'a [u32],
    /// Token types (segments), parallel to `input_ids`; empty means all 0.
    pub token_type_ids: &'a [u32],
    /// Tokens of each sequence, at least 1; their sum is `input_ids.len()`.
    pub lengths: &'a [usize],
    /// How many tokens of each sequence are attended to, its first ones, at least 1: the others have rows of their own and
    /// change no other (ColBERT's `[MASK]` tokens behind a query). Empty means all. Bidirectional models only.
    pub attended: &'a [usize],
}

impl EncoderInput<'_> {
    /// Sequences in the batch.
    pub fn sequences(&self) -> usize {
        self.lengths.len()
    }

    /// Tokens in the batch.
    pub fn tokens(&self) -> usize {
        self.input_ids.len()
    }

    /// Tokens of sequence `i` that are attended to.
    pub fn attended(&self, i: usize) -> usize {
        self.attended.get(i).copied().unwrap_or(self.lengths[i])
    }

    /// Checks the batch against a model: afterwards every id is a row of its table and every position too.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check(&self, limits: &InputLimits) -> Result<(), EncodeError> {
        let expected = self.lengths.iter().sum();
        let ragged = |part, actual| EncodeError::Ragged { part, actual, expected };
        if self.input_ids.len() != expected {
            return Err(ragged("input_ids", self.input_ids.len()));
        }
        let typed = !self.token_type_ids.is_empty();
        if typed && self.token_type_ids.len() != expected {
            return Err(ragged("token_type_ids", self.token_type_ids.len()));
        }
        if !self.attended.is_empty() && self.attended.len() != self.lengths.len() {
            let (actual, expected) = (self.attended.len(), self.lengths.len());
            return Err(EncodeError::Ragged { part: "attended", actual, expected });
        }
        let mut start = 0;
        for (sequence, &length) in self.lengths.iter().enumerate() {
            if length == 0 {
                return Err(EncodeError::EmptySequence { sequence });
            }
            if length > limits.positions {
                return Err(EncodeError::TooLong { sequence, length, limit: limits.positions });
            }
            let attended = self.attended(sequence);
            if !(1..=length).contains(&attended) {
                return Err(EncodeError::Ragged {
                    part: "attended tokens of a sequence",
                    actual: attended,
                    expected: length,
                });
            }
            let outside = |ids: &[u32], rows: usize| ids.iter().position(|&id| id as usize >= rows);
            let tokens = start..start + length;
            if let Some(position) = outside(&self.input_ids[tokens.clone()], limits.vocab_size) {
                let id = self.input_ids[start + position];
                return Err(EncodeError::TokenOutOfRange { sequence, position, id, vocab_size: limits.vocab_size });
            }
            if typed && let Some(position) = outside(&self.token_type_ids[tokens], limits.type_vocab_size) {
                let id = self.token_type_ids[start + position];
                let type_vocab_size = limits.type_vocab_size;
                return Err(EncodeError::TokenTypeOutOfRange { sequence, position, id, type_vocab_size });
            }
            start += length;
        }
        Ok(())
    }
}

/// What a model can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputLimits {
    /// Rows of the word table.
    pub vocab_size: usize,
    /// Rows of the token type table; 0 when there is none.
    pub type_vocab_size: usize,
    /// Usable positions: the longest sequence.
    pub positions: usize,
}

/// Which rows of the last layer will be read. The last layer computes no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// Every token's.
    All,
    /// The first token's of each sequence (CLS pooling).
    First,
    /// The last token's of each sequence (last-token pooling).
    Last,
}

/// Answer of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on with the next layer.
    Continue,
    /// Nobody needs this batch any more: [`EncodeError::Stopped`].
    Stop,
}

impl Rows {
    /// How many rows of a sequence of `length` tokens are computed.
    pub(crate) fn count(self, length: usize) -> usize {
        match self {
            Rows::All => length,
            Rows::First | Rows::Last => 1,
        }
    }

    /// The first of them.
    pub(crate) fn first(self, length: usize) -> usize {
        match self {
            Rows::All | Rows::First => 0,
            Rows::Last => length - 1,
        }
    }
}

/// What a forward pass works with, besides the model and the batch.
pub struct Context<'a> {
    /// The threads to compute on; the caller is rank 0.
    pub pool: &'a ThreadPool,
    /// Memory that is reused from call to call. One forward pass at a time.
    pub scratch: &'a mut Scratch,
    /// Called between layers, by any rank, by several at once when sequences are shared out among threads. May take its
    /// time (an interactive batch can run inside, with its own scratch and pool). After one [`Flow::Stop`] all ranks
    /// leave at their next layer.
    pub checkpoint: &'a (dyn Fn() -> Flow + Sync),
}
