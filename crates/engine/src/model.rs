//! What the engine needs of a model: tokens, their cost, and vectors.
//!
//! The queue and the dispatcher know this trait only. [`crate::LoadedModel`] is the one that users meet; the
//! engine's own tests drive jobs through models that wait at a gate or panic on purpose, which no real model does.

use simile_encoder::{Context, EncodeError};
use simile_pipeline::{Chunk, ChunkRequest, Input, NonFinite, Outputs, PipelineError, Role, Tokens};

/// A loaded model as jobs see it. Every method may be called from several threads at once.
pub trait Model: Send + Sync + 'static {
    /// How many values each row has for a call that asks for `dimensions` (`None`: the native ones); `None` when each text's
    /// row has a length of its own.
    ///
    /// # Errors
    /// [`PipelineError`] when the model cannot give that many.
    fn check_dimensions(&self, dimensions: Option<usize>) -> Result<Option<usize>, PipelineError>;

    /// Whether its texts are pairs: each with a query.
    fn takes_pairs(&self) -> bool;

    /// Whether texts of `role` can be embedded with this instruction, or without one: the same for all texts of a call,
    /// so that it is asked once and is no error of a text. Quick: it is asked on the caller's thread.
    ///
    /// # Errors
    /// [`PipelineError::InstructionNotSupported`] or [`PipelineError::InstructionMissing`].
    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError>;

    /// The contract id of results with that many values a row.
    fn contract(&self, width: Option<usize>) -> String;

    /// The tokens of one text, after template and truncation. `go_on` is asked every few milliseconds; `None` when it says
    /// no.
    ///
    /// # Errors
    /// [`PipelineError`] when the text is too long under the `error` policy, or the tokenizer fails.
    fn tokenize(&self, input: &Input<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError>;

    /// Tokens of a text before truncation and after it, template and special tokens included: what
    /// [`Model::tokenize`] would give, except that no policy makes a long text an error.
    ///
    /// # Errors
    /// [`PipelineError`] when the tokenizer fails.
    fn count_tokens(
        &self,
        input: &Input<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<(usize, usize)>, PipelineError>;

    /// The chunks of a text: see [`simile_pipeline::TextModel::chunk`]. `None` when `go_on` says no.
    ///
    /// # Errors
    /// [`PipelineError`] when the request does not suit the model, or the tokenizer fails.
    fn chunk(
        &self,
        role: Role,
        instruction: Option<&str>,
        text: &str,
        request: ChunkRequest,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Chunk>>, PipelineError>;

    /// Estimated work of a text of `length` tokens, in floating-point operations.
    fn cost(&self, length: usize) -> u64;

    /// What a batch becomes: a row in `out` for each text, of `width` values each unless that is `None`.
    ///
    /// # Errors
    /// [`EncodeError`] for the batch as a whole; a row that is not finite is an error in its place of the list.
    fn encode(
        &self,
        batch: &[&Tokens],
        width: Option<usize>,
        out: &mut Outputs,
        context: &mut Context<'_>,
    ) -> Result<Vec<Result<(), NonFinite>>, EncodeError>;
}

#[cfg(test)]
pub(crate) mod fake {
    //! A model for tests of the engine's parts, which ask it for little.

    use super::*;

    /// A model that is only a name. It counts one token for each text; nothing else may be asked of it.
    #[derive(Default)]
    pub(crate) struct Named {
        /// Whether letting go of it panics.
        pub(crate) drop_panics: bool,
    }

    impl Drop for Named {
        fn drop(&mut self) {
            assert!(!self.drop_panics, "told to");
        }
    }

    impl Model for Named {
        fn check_dimensions(&self, _: Option<usize>) -> Result<Option<usize>, PipelineError> {
            unreachable!()
        }
        fn takes_pairs(&self) -> bool {
            unreachable!()
        }
        fn check_instruction(&self, _: Role, _: Option<&str>) -> Result<(), PipelineError> {
            unreachable!()
        }
        fn contract(&self, _: Option<usize>) -> String {
            unreachable!()
        }
        fn tokenize(&self, _: &Input<'_>, _: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
            unreachable!()
        }
        fn count_tokens(&self, _: &Input<'_>, _: &dyn Fn() -> bool) -> Result<Option<(usize, usize)>, PipelineError> {
            Ok(Some((1, 1)))
        }
        fn chunk(
            &self,
            _: Role,
            _: Option<&str>,
            _: &str,
            _: ChunkRequest,
            _: &dyn Fn() -> bool,
        ) -> Result<Option<Vec<Chunk>>, PipelineError> {
            unreachable!()
        }
        fn cost(&self, _: usize) -> u64 {
            unreachable!()
        }
        fn encode(
            &self,
            _: &[&Tokens],
            _: Option<usize>,
            _: &mut Outputs,
            _: &mut Context<'_>,
        ) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
            unreachable!()
        }
    }
}
