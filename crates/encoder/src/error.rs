//! What can go wrong when a model is loaded and when it runs.

use std::path::PathBuf;

use crate::{ConfigError, Device, WeightsError};

/// A batch that a model cannot compute, or a pass that was stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The checkpoint answered [`Flow::Stop`](crate::Flow::Stop).
    #[error("the forward pass was stopped between two layers")]
    Stopped,
    /// A sequence without tokens.
    #[error("sequence {sequence} of the batch has no tokens; every sequence needs at least one")]
    EmptySequence {
        /// Index of the sequence in the batch.
        sequence: usize,
    },
    /// A sequence longer than the model's position table.
    #[error("sequence {sequence} of the batch has {length} tokens, the model has {limit} positions")]
    TooLong {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// Its tokens.
        length: usize,
        /// The model's usable positions.
        limit: usize,
    },
    /// A token id outside the word table: tokenizer and model do not belong together.
    #[error(
        "token id {id} (sequence {sequence}, position {position}) is outside the model's vocabulary of {vocab_size}: \
         the tokenizer does not belong to this model"
    )]
    TokenOutOfRange {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// Position in the sequence.
        position: usize,
        /// The id.
        id: u32,
        /// Rows of the word table.
        vocab_size: usize,
    },
    /// A token type outside the type table.
    #[error(
        "token type {id} (sequence {sequence}, position {position}) is outside the model's {type_vocab_size} types"
    )]
    TokenTypeOutOfRange {
        /// Index of the sequence in the batch.
        sequence: usize,
        /// Position in the sequence.
        position: usize,
        /// The type.
        id: u32,
        /// Rows of the type table; 0 when the model has none.
        type_vocab_size: usize,
    },
    /// The file that the word table is read from was overwritten, or cut: the vectors would be of no model.
    #[error("the weights file {} changed while the model was loaded; load the model again", path.display())]
    WeightsChanged {
        /// The file.
        path: PathBuf,
    },
    /// The file that the word table is read from cannot be read any more.
    #[error("a row of the word table cannot be read: {reason}; load the model again")]
    WeightsUnreadable {
        /// The file, and the system's reason.
        reason: String,
    },
    /// The device failed, or ran out of memory. The model stays loaded: the next batch may do.
    #[error("inference failed: {0}")]
    Device(DeviceError),
    /// The parts of the batch disagree.
    #[error("the batch has {actual} {part} where its lengths add up to {expected}")]
    Ragged {
        /// What is too few or too many: `"input_ids"`, `"token_type_ids"`, `"attended"`.
        part: &'static str,
        /// How many there are.
        actual: usize,
        /// Sum of `lengths`.
        expected: usize,
    },
}

/// A model that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// `config.json` names something that is not supported, or is malformed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The weights are absent, damaged or of another model.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The device is not there, or refused the weights.
    #[error("{0}; device 'cpu' is always there")]
    Device(DeviceError),
    /// This build of the library does not compute on that device.
    #[error("device '{device}' is not in this build: {advice}")]
    DeviceNotBuilt {
        /// The device.
        device: Device,
        /// What to do.
        advice: &'static str,
    },
    /// The weights do not fit into the memory that is left.
    #[error(
        "the weights take {needed} bytes on device '{device}', which has {available} left: free memory, raise the limit, \
         or choose a smaller model"
    )]
    NotEnoughMemory {
        /// The device.
        device: Device,
        /// Bytes of the weights as they will be held.
        needed: u64,
        /// Bytes that the device, the system or the container has left.
        available: u64,
    },
}

/// What a device said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device '{device}' failed: {reason}")]
pub struct DeviceError {
    /// The device.
    pub device: Device,
    /// Its message.
    pub reason: String,
}
