//! The errors of the layers below, as failures: the only place where one becomes the other.

use simile_encoder::{ConfigError, EncodeError, WeightsError};
use simile_hub::HubError;
use simile_kernels::IsaError;
use simile_pipeline::{LoadError, PipelineError};

use crate::failure::{ErrorKind, Failure};

/// A text or an option of a call was refused.
pub(crate) fn pipeline(error: PipelineError) -> Failure {
    let message = error.to_string();
    match error {
        PipelineError::TextTooLong { limit, actual } | PipelineError::TemplateTooLong { limit, actual } => {
            Failure::new(ErrorKind::TextTooLong, message).measured(limit as f64, actual as f64, "tokens")
        }
        PipelineError::InvalidDimensions { actual, native, .. } => Failure::new(ErrorKind::InvalidInput, message)
            .measured(native as f64, actual as f64, "dimensions")
            .of_option("dimensions"),
        PipelineError::ChunkTooSmall { actual, least } => Failure::new(ErrorKind::InvalidInput, message)
            .measured(least as f64, actual as f64, "tokens")
            .of_option("maxTokens"),
        PipelineError::ChunkTooLarge { actual, limit } => Failure::new(ErrorKind::InvalidInput, message)
            .measured(limit as f64, actual as f64, "tokens")
            .of_option("maxTokens"),
        PipelineError::OverlapTooLarge { actual, room } => Failure::new(ErrorKind::InvalidInput, message)
            .measured(room as f64 - 1.0, actual as f64, "tokens")
            .of_option("overlap"),
        PipelineError::InstructionNotSupported { .. } | PipelineError::InstructionMissing { .. } => {
            Failure::new(ErrorKind::InvalidInput, message).of_option("instruction")
        }
        PipelineError::TokenizerPanicked { .. } => Failure::new(ErrorKind::TaskFailed, message),
        _ => Failure::new(ErrorKind::InferenceFailed, message),
    }
}

/// A batch could not be computed. `index_of` tells the position in its call of a row of the batch.
pub(crate) fn encode(error: EncodeError, index_of: impl Fn(usize) -> Option<usize>) -> Failure {
    let row = match &error {
        EncodeError::EmptySequence { sequence }
        | EncodeError::TooLong { sequence, .. }
        | EncodeError::TokenOutOfRange { sequence, .. }
        | EncodeError::TokenTypeOutOfRange { sequence, .. } => Some(*sequence),
        _ => None,
    };
    let failure = Failure::new(ErrorKind::InferenceFailed, error.to_string());
    match row.and_then(index_of) {
        Some(index) => failure.at(index),
        None => failure,
    }
}

/// Files could not be found, read or downloaded.
fn hub(error: HubError) -> Failure {
    let message = error.to_string();
    match error {
        HubError::InvalidId { .. } | HubError::InvalidRevision { .. } | HubError::RevisionOfFolder { .. } => {
            Failure::new(ErrorKind::InvalidInput, message)
        }
        HubError::InvalidSetting { name, .. } => Failure::new(ErrorKind::InvalidInput, message).of_option(name),
        HubError::OnlyOtherFormats { .. } => Failure::new(ErrorKind::UnsupportedModel, message),
        HubError::Stopped => Failure::cancelled(),
        _ => Failure::new(ErrorKind::ModelInitialization, message),
    }
}

/// A model could not be loaded: it is broken, or of a kind that is not supported, or the options do not suit it.
pub(crate) fn load(error: LoadError) -> Failure {
    let message = error.to_string();
    match error {
        LoadError::Hub(error) => hub(error),
        LoadError::Encoder(error) => encoder(&error, message),
        LoadError::Refused { .. } => Failure::new(ErrorKind::UnsupportedModel, message).of_option("precision"),
        LoadError::UnsupportedModule { .. }
        | LoadError::UnsupportedValue { .. }
        | LoadError::RegisteredUnsupported { .. }
        | LoadError::RegisteredKind { .. }
        | LoadError::WrongKind { .. }
        | LoadError::NotOfKind { .. } => Failure::new(ErrorKind::UnsupportedModel, message),
        LoadError::MaxLengthTooSmall { value, special } => Failure::new(ErrorKind::InvalidInput, message)
            .measured(special as f64 + 1.0, value as f64, "tokens")
            .of_option("maxLength"),
        LoadError::UnsupportedOption { option, .. } => Failure::new(ErrorKind::InvalidInput, message).of_option(option),
        LoadError::InvalidOverride { .. } | LoadError::Template { .. } => {
            Failure::new(ErrorKind::InvalidInput, message)
        }
        _ => Failure::new(ErrorKind::ModelInitialization, message),
    }
}

/// An encoder could not be loaded, or its device is not there.
pub(crate) fn encoder(error: &simile_encoder::LoadError, message: String) -> Failure {
    use simile_encoder::LoadError::{Config, Device, DeviceNotBuilt, Weights};
    match error {
        Config(
            ConfigError::MissingModelType { .. }
            | ConfigError::UnknownModelType { .. }
            | ConfigError::Unsupported { .. },
        )
        | Weights(
            WeightsError::OnlyOtherFormats { .. }
            | WeightsError::Dtype { .. }
            | WeightsError::LegacyTorch { .. }
            | WeightsError::PickleGlobal { .. }
            | WeightsError::NotAStateDict { .. },
        ) => Failure::new(ErrorKind::UnsupportedModel, message),
        Device(_) | DeviceNotBuilt { .. } => Failure::new(ErrorKind::ModelInitialization, message).of_option("device"),
        _ => Failure::new(ErrorKind::ModelInitialization, message),
    }
}

/// `SIMILE_ISA` names an instruction set that is unknown or not there.
pub(crate) fn isa(error: IsaError) -> Failure {
    Failure::new(ErrorKind::InvalidInput, error.to_string())
}
