//! What the engine needs of a model: tokens, their cost, and vectors.
//!
//! The queue and the dispatcher know this trait only. [`crate::LoadedModel`] is the one that users meet; the
//! engine's own tests drive jobs through models that wait at a gate or panic on purpose, which no real model does.

use simile_encoder::{Context, EncodeError};
use simile_pipeline::{Chunk, ChunkRequest, NonFinite, PipelineError, Role, Tokens};

/// A loaded model as jobs see it. Every method may be called from several threads at once.
pub trait Model: Send + Sync + 'static {
    /// The output dimension of a call that asks for `dimensions` (`None`: the native one).
    ///
    /// # Errors
    /// [`PipelineError`] when the model cannot give that many.
    fn check_dimensions(&self, dimensions: Option<usize>) -> Result<usize, PipelineError>;

    /// Whether texts of `role` can be embedded with this instruction, or without one: the same for all texts of a call,
    /// so that it is asked once and is no error of a text. Quick: it is asked on the caller's thread.
    ///
    /// # Errors
    /// [`PipelineError::InstructionNotSupported`] or [`PipelineError::InstructionMissing`].
    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError>;

    /// The contract id of vectors with that many dimensions.
    fn contract(&self, dimensions: usize) -> String;

    /// The tokens of one text, after template and truncation. `go_on` is asked every few milliseconds; `None` when it says
    /// no.
    ///
    /// # Errors
    /// [`PipelineError`] when the text is too long under the `error` policy, or the tokenizer fails.
    fn tokenize(
        &self,
        role: Role,
        instruction: Option<&str>,
        text: &str,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Tokens>, PipelineError>;

    /// Tokens of a text before truncation and after it, template and special tokens included: what
    /// [`Model::tokenize`] would give, except that no policy makes a long text an error.
    ///
    /// # Errors
    /// [`PipelineError`] when the tokenizer fails.
    fn count_tokens(
        &self,
        role: Role,
        instruction: Option<&str>,
        text: &str,
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
        fn check_dimensions(&self, _: Option<usize>) -> Result<usize, PipelineError> {
            unreachable!()
        }
        fn check_instruction(&self, _: Role, _: Option<&str>) -> Result<(), PipelineError> {
            unreachable!()
        }
        fn contract(&self, _: usize) -> String {
            unreachable!()
        }
        fn tokenize(
            &self,
            _: Role,
            _: Option<&str>,
            _: &str,
            _: &dyn Fn() -> bool,
        ) -> Result<Option<Tokens>, PipelineError> {
            unreachable!()
        }
        fn count_tokens(
            &self,
            _: Role,
            _: Option<&str>,
            _: &str,
            _: &dyn Fn() -> bool,
        ) -> Result<Option<(usize, usize)>, PipelineError> {
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
            _: &[&[u32]],
            _: usize,
            _: &mut [&mut [f32]],
            _: &mut Context<'_>,
        ) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
            unreachable!()
        }
    }
}
