//! Families: one architecture's `config.json` to an [`EncoderSpec`] and the table of its tensor names, one file each.
//!
//! # Contract
//! - A family computes nothing and mentions no device.
//! - Parsing is strict: a key whose value would change the result in a way that no executor implements is refused by
//!   name. Keys that cannot change an embedding (dropout, initialisation, caching, dtype of the file, label tables) are
//!   not looked at, so that files written by any version of transformers load.

mod activation;
mod bert;
mod config;
mod distilbert;
mod gemma3;
mod gte_new;
mod jina_bert;
mod layer_types;
mod modern_bert;
mod mpnet;
mod names;
mod nomic_bert;
mod qwen3;
mod roberta;
mod rope;
mod xlm_roberta_flash;

use serde_json::Value;

use crate::spec::EncoderSpec;

use config::Config;
pub use config::ConfigError;
pub(crate) use modern_bert::head_activation;
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
pub const SUPPORTED_MODEL_TYPES: &[&str] = &[
    "bert",
    "distilbert",
    "gemma3_text",
    "gte",
    "modernbert",
    "mpnet",
    "new",
    "nomic_bert",
    "qwen3",
    "roberta",
    "xlm-roberta",
];

/// Chooses the family by `model_type` and parses the whole of `config.json`.
///
/// Two families hide behind another's model type and are told apart first: JinaBert calls itself `bert`, XlmRobertaFlash
/// `xlm-roberta`. `has_tensor` tells whether the checkpoint has a tensor of exactly that name: JinaBert's repositories write
/// down the shape of their layers nowhere else. For a check before there is a checkpoint it may always say no: whether the
/// answer is an error does not depend on it.
///
/// # Errors
/// [`ConfigError`]: names the key, its value and what is allowed.
pub fn parse_config(json: &Value, has_tensor: &dyn Fn(&str) -> bool) -> Result<Architecture, ConfigError> {
    let config = Config::new(json)?;
    let Some(model_type) = config.optional_str("model_type")? else {
        return Err(ConfigError::MissingModelType { supported: SUPPORTED_MODEL_TYPES });
    };
    match model_type {
        "bert" if jina_bert::recognised(&config) => jina_bert::parse(&config, has_tensor),
        "bert" => bert::parse(&config),
        "distilbert" => distilbert::parse(&config),
        "gemma3_text" => gemma3::parse(&config),
        "gte" | "new" => gte_new::parse(&config),
        "modernbert" => modern_bert::parse(&config),
        "mpnet" => mpnet::parse(&config),
        "nomic_bert" => nomic_bert::parse(&config),
        "qwen3" => qwen3::parse(&config),
        "xlm-roberta" if xlm_roberta_flash::recognised(&config) => xlm_roberta_flash::parse(&config),
        "roberta" | "xlm-roberta" => roberta::parse(&config),
        other => Err(ConfigError::UnknownModelType { value: other.to_owned(), supported: SUPPORTED_MODEL_TYPES }),
    }
}
