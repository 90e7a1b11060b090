//! Families: one architecture's `config.json` to an [`EncoderSpec`] and the table of its tensor names, one file each.
//!
//! # Contract
//! - A family computes nothing and mentions no device.
//! - Parsing is strict: a key whose value would change the result in a way that no executor implements is refused by
//!   name. Keys that cannot change an embedding (dropout, initialisation, caching, dtype of the file, label tables) are
//!   not looked at, so that files written by any version of transformers load.

mod bert;
mod config;
mod names;

use serde_json::Value;

use crate::spec::EncoderSpec;

use config::Config;
pub use config::ConfigError;
pub use names::{LayerNames, LinearNames, NormNames, Part, TensorNames};

/// What a family's parser returns: all that an executor needs besides the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Architecture {
    /// What the encoder is.
    pub spec: EncoderSpec,
    /// How its tensors are called.
    pub names: TensorNames,
}

/// The values of `model_type` that can be loaded.
pub const SUPPORTED_MODEL_TYPES: &[&str] = &["bert"];

/// Chooses the family by `model_type` and parses the whole of `config.json`.
///
/// JinaBert calls itself `bert` and is told apart by its position scheme, its class names or its custom code.
///
/// `has_tensor` tells whether the checkpoint has a tensor of exactly that name: some repositories write down the shape of
/// their layers nowhere else.
///
/// # Errors
/// [`ConfigError`]: names the key, its value and what is allowed.
pub fn parse_config(json: &Value, _has_tensor: &dyn Fn(&str) -> bool) -> Result<Architecture, ConfigError> {
    let config = Config::new(json)?;
    let Some(model_type) = config.optional_str("model_type")? else {
        return Err(ConfigError::MissingModelType { supported: SUPPORTED_MODEL_TYPES });
    };
    match model_type {
        "bert" => {
            refuse_jina_bert(&config)?;
            bert::parse(&config)
        }
        other => Err(ConfigError::UnknownModelType { value: other.to_owned(), supported: SUPPORTED_MODEL_TYPES }),
    }
}

/// JinaBert v2 (ALiBi, gated feed-forward) under `model_type: "bert"`: read as plain BERT it would load and be wrong.
fn refuse_jina_bert(config: &Config<'_>) -> Result<(), ConfigError> {
    let evidence = if config.get("position_embedding_type").and_then(Value::as_str) == Some("alibi") {
        Some("position_embedding_type is \"alibi\"".to_owned())
    } else if let Some(class) = config.architectures().find(|class| class.starts_with("JinaBert")) {
        Some(format!("architectures names {class}"))
    } else {
        config
            .custom_code()
            .find(|class| class.contains("jina-bert") || class.contains("JinaBert"))
            .map(|class| format!("auto_map names {class}"))
    };
    match evidence {
        Some(evidence) => {
            Err(ConfigError::UnsupportedFamily { family: "JinaBert", evidence, supported: SUPPORTED_MODEL_TYPES })
        }
        None => Ok(()),
    }
}
