//! The base of rotary frequencies, in the old spelling (`rope_theta`, `rope_scaling`) and in that of transformers 5
//! (`rope_parameters`, for some models with an entry for each layer type).

use serde_json::Value;

use super::config::{invalid, positive, unsupported};
use super::{Config, ConfigError};

/// Where a layer type's base stands.
pub(super) struct RopeKeys {
    /// Key in `rope_parameters`, when it has one for each layer type.
    pub layer_type: Option<&'static str>,
    /// The old key.
    pub old: &'static str,
    /// transformers' default; `None` when the key has to be there.
    pub default: Option<f64>,
}

/// The base of unscaled frequencies.
///
/// # Errors
/// [`ConfigError`]: no base, none that can be, or any scaling of the frequencies.
pub(super) fn theta(config: &Config<'_>, keys: &RopeKeys) -> Result<f64, ConfigError> {
    unscaled(config.get("rope_scaling"), "rope_scaling")?;
    let given = match parameters(config, keys.layer_type)? {
        Some(parameters) => {
            unscaled(Some(parameters), "rope_parameters")?;
            present(parameters, "rope_theta")
        }
        None => None,
    };
    match given {
        Some(theta) => positive("rope_parameters.rope_theta", theta),
        None => match config.optional_positive(keys.old)?.or(keys.default) {
            Some(theta) => Ok(theta),
            None => Err(ConfigError::Missing { key: keys.old, expected: "a finite number above 0" }),
        },
    }
}

/// `rope_parameters`, or its entry for the layer type.
fn parameters<'a>(config: &Config<'a>, layer_type: Option<&str>) -> Result<Option<&'a Value>, ConfigError> {
    let Some(all) = config.get("rope_parameters") else {
        return Ok(None);
    };
    if !all.is_object() {
        return Err(invalid("rope_parameters", all, "an object"));
    }
    match layer_type {
        // transformers reads nothing but the entries of layer types here, and takes its defaults where they are missing.
        Some(_)
            if all.as_object().is_some_and(|all| all.values().any(|value| !value.is_object() && !value.is_null())) =>
        {
            Err(invalid("rope_parameters", all, "an object with one for each layer type"))
        }
        Some(layer_type) => Ok(present(all, layer_type)),
        None if present(all, "rope_theta").is_some() || present(all, "rope_type").is_some() => Ok(Some(all)),
        None => Err(invalid("rope_parameters", all, "an object with rope_theta")),
    }
}

/// The value of a key; `null` is absent.
fn present<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// Refuses a scaling of frequencies, under its old and new name, and rotation of a part of the head.
fn unscaled(scaling: Option<&Value>, key: &'static str) -> Result<(), ConfigError> {
    let Some(scaling) = scaling else {
        return Ok(());
    };
    let mut kinds = ["rope_type", "type"].into_iter().filter_map(|name| present(scaling, name)).peekable();
    let named = kinds.peek().is_some() || key == "rope_parameters";
    let whole = present(scaling, "partial_rotary_factor").is_none_or(|part| part.as_f64() == Some(1.0));
    if named && whole && kinds.all(|kind| kind == "default") {
        return Ok(());
    }
    Err(unsupported(key, scaling, "absent, or of rope_type \"default\" over the whole head"))
}
