//! `layer_types`: which layers see everything and which a window, written out or by a rule.

use serde_json::Value;

use super::config::{invalid, unsupported};
use super::{Config, ConfigError};

/// What a layer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerType {
    /// `full_attention`
    Full,
    /// `sliding_attention`
    Sliding,
}

/// The type of each of `count` layers; by `rule` when the file does not write them out.
pub(super) fn layer_types(
    config: &Config<'_>,
    count: usize,
    rule: impl Fn(usize) -> LayerType,
) -> Result<Vec<LayerType>, ConfigError> {
    let Some(value) = config.get("layer_types") else {
        return Ok((0..count).map(rule).collect());
    };
    let Some(types) = value.as_array().filter(|types| types.len() == count) else {
        return Err(invalid("layer_types", value, format!("a list of num_hidden_layers = {count} names")));
    };
    types
        .iter()
        .map(|name| match name.as_str() {
            Some("full_attention") => Ok(LayerType::Full),
            Some("sliding_attention") => Ok(LayerType::Sliding),
            _ => Err(unsupported("layer_types", name, "\"full_attention\", \"sliding_attention\"")),
        })
        .collect()
}

/// Refuses layers that see a window only.
pub(super) fn only_full(config: &Config<'_>, count: usize) -> Result<(), ConfigError> {
    match layer_types(config, count, |_| LayerType::Full)?.contains(&LayerType::Sliding) {
        true => {
            let value = config.get("layer_types").unwrap_or(&Value::Null);
            Err(unsupported("layer_types", value, "\"full_attention\" for every layer"))
        }
        false => Ok(()),
    }
}
