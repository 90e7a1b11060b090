//! What the engine needs of a model: tokens, their cost, and vectors.
//!
//! The queue and the dispatcher know this trait only. [`simile_pipeline::TextModel`] is the one that users meet; the
//! engine's own tests drive jobs through models that wait at a gate or panic on purpose, which no real model does.

use simile_encoder::{Context, EncodeError};
use simile_pipeline::{NonFinite, PipelineError, Role, TextModel, Tokens};

/// A loaded model as jobs see it. Every method may be called from several threads at once.
pub trait Model: Send + Sync + 'static {
    /// The output dimension of a call that asks for `dimensions` (`None`: the native one).
    ///
    /// # Errors
    /// [`PipelineError`] when the model cannot give that many.
    fn check_dimensions(&self, dimensions: Option<usize>) -> Result<usize, PipelineError>;

    /// The contract id of vectors with that many dimensions.
    fn contract(&self, dimensions: usize) -> String;

    /// The tokens of one text, after template and truncation.
    ///
    /// # Errors
    /// [`PipelineError`] when the text is too long under the `error` policy, or the tokenizer fails.
    fn tokenize(&self, role: Role, instruction: Option<&str>, text: &str) -> Result<Tokens, PipelineError>;

    /// Tokens of a text before truncation and after it, template and special tokens included: what
    /// [`Model::tokenize`] would give, except that no policy makes a long text an error.
    ///
    /// # Errors
    /// [`PipelineError`] when the tokenizer fails.
    fn count_tokens(&self, role: Role, instruction: Option<&str>, text: &str) -> Result<(usize, usize), PipelineError>;

    /// Estimated work of a text of `length` tokens, in floating-point operations.
    fn cost(&self, length: usize) -> u64;

    /// Vectors of a batch: row `i` is written to `out[i]`, which is `dimensions` long.
    ///
    /// # Errors
    /// [`EncodeError`] for the batch as a whole; a row that is not finite is an error in its place of the list.
    fn encode(
        &self,
        batch: &[&[u32]],
        dimensions: usize,
        out: &mut [&mut [f32]],
        context: &mut Context<'_>,
    ) -> Result<Vec<Result<(), NonFinite>>, EncodeError>;
}

impl Model for TextModel {
    fn check_dimensions(&self, dimensions: Option<usize>) -> Result<usize, PipelineError> {
        TextModel::check_dimensions(self, dimensions)
    }

    fn contract(&self, dimensions: usize) -> String {
        TextModel::contract(self, Some(dimensions))
    }

    fn tokenize(&self, role: Role, instruction: Option<&str>, text: &str) -> Result<Tokens, PipelineError> {
        TextModel::tokenize(self, role, instruction, text)
    }

    fn count_tokens(&self, role: Role, instruction: Option<&str>, text: &str) -> Result<(usize, usize), PipelineError> {
        match TextModel::tokenize(self, role, instruction, text) {
            Ok(tokens) => Ok((tokens.total, tokens.ids.len())),
            Err(PipelineError::TextTooLong { limit, actual }) => Ok((actual, limit)),
            Err(error) => Err(error),
        }
    }

    fn cost(&self, length: usize) -> u64 {
        TextModel::cost(self, length)
    }

    fn encode(
        &self,
        batch: &[&[u32]],
        dimensions: usize,
        out: &mut [&mut [f32]],
        context: &mut Context<'_>,
    ) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
        TextModel::encode(self, batch, dimensions, out, context)
    }
}
