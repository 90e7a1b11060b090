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
            parameters.get("rope_theta").filter(|theta| !theta.is_null())
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
    let nested = layer_type.and_then(|layer_type| all.get(layer_type));
    match nested {
        None if all.get("rope_theta").is_some() || all.get("rope_type").is_some() => Ok(Some(all)),
        None if layer_type.is_none() => Err(invalid("rope_parameters", all, "an object with rope_theta")),
        other => Ok(other.filter(|value| !value.is_null())),
    }
}

/// Refuses a scaling of frequencies, under its old and new name, and rotation of a part of the head.
fn unscaled(scaling: Option<&Value>, key: &'static str) -> Result<(), ConfigError> {
    let Some(scaling) = scaling else {
        return Ok(());
    };
    let kind = ["rope_type", "type"].into_iter().find_map(|name| scaling.get(name)).and_then(Value::as_str);
    let partial = scaling.get("partial_rotary_factor").is_some_and(|part| part.as_f64() != Some(1.0));
    match kind {
        Some("default") if !partial => Ok(()),
        None if key == "rope_parameters" && !partial => Ok(()),
        _ => Err(unsupported(key, scaling, "absent, or of rope_type \"default\" over the whole head")),
    }
}
