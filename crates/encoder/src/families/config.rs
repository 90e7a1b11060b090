//! A strict reader of `config.json`: typed getters whose errors name the key, the value and what is allowed.
//!
//! `null` counts as absent everywhere, because transformers writes unset options so.

use serde_json::{Map, Value};

/// A configuration that is not supported, or malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is JSON, but not a configuration.
    #[error("config.json: expected an object, found {found}")]
    NotAnObject {
        /// Kind of JSON value.
        found: &'static str,
    },
    /// A key that the family cannot do without.
    #[error("config.json: {key} is missing; it must be {expected}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// No `model_type`.
    #[error("config.json: model_type is missing; supported: {}", supported.join(", "))]
    MissingModelType {
        /// Supported values.
        supported: &'static [&'static str],
    },
    /// A `model_type` without a family here.
    #[error("config.json: model_type {value:?} is not supported; supported: {}", supported.join(", "))]
    UnknownModelType {
        /// The value.
        value: String,
        /// Supported values.
        supported: &'static [&'static str],
    },
    /// A value that is well formed and would change the result, but is not implemented.
    #[error("config.json: {key} = {value} is not supported; allowed: {allowed}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its value, as JSON.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A value of the wrong kind, out of range, or at odds with another.
    #[error("config.json: {key} = {value} is not valid; expected {expected}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// Its value, as JSON.
        value: String,
        /// What it should be.
        expected: String,
    },
}

/// `config.json`, whose keys are read one by one.
pub(super) struct Config<'a> {
    map: &'a Map<String, Value>,
}

const COUNT: &str = "a whole number of at least 1";

/// The most layers of a model. The deepest encoders have a few dozen; a layer takes memory before its tensors are known
/// to be there, so that a number of any size would end the process.
const MAX_LAYERS: usize = 1000;

impl<'a> Config<'a> {
    pub(super) fn new(json: &'a Value) -> Result<Self, ConfigError> {
        match json {
            Value::Object(map) => Ok(Self { map }),
            other => Err(ConfigError::NotAnObject { found: kind(other) }),
        }
    }

    /// The value of `key`, `null` being absent.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A size: a whole number of at least 1.
    pub(super) fn count(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.optional_count(key)?.ok_or(ConfigError::Missing { key, expected: COUNT })
    }

    /// How many layers there are: at most [`MAX_LAYERS`].
    pub(super) fn layers(&self, key: &'static str) -> Result<usize, ConfigError> {
        let layers = self.count(key)?;
        if layers <= MAX_LAYERS {
            return Ok(layers);
        }
        Err(invalid(key, &layers.into(), format!("a whole number from 1 to {MAX_LAYERS}")))
    }

    pub(super) fn optional_count(&self, key: &'static str) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_u64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) if count >= 1 => Ok(Some(count)),
            _ => Err(invalid(key, value, COUNT)),
        }
    }

    /// An even size: halves of it are rotated against each other.
    pub(super) fn even_count(&self, key: &'static str) -> Result<usize, ConfigError> {
        let count = self.count(key)?;
        if count.is_multiple_of(2) { Ok(count) } else { Err(invalid(key, &count.into(), "an even number")) }
    }

    /// Key and value heads: a divisor of `num_attention_heads`.
    pub(super) fn kv_heads(&self, heads: usize) -> Result<usize, ConfigError> {
        let kv_heads = self.count("num_key_value_heads")?;
        if heads.is_multiple_of(kv_heads) {
            return Ok(kv_heads);
        }
        let expected = format!("a divisor of num_attention_heads = {heads}");
        Err(invalid("num_key_value_heads", &kv_heads.into(), expected))
    }

    /// Rows of the token type table of a model that may have none: `type_vocab_size` is 0 then.
    pub(super) fn token_types(&self) -> Result<Option<usize>, ConfigError> {
        match self.get("type_vocab_size").and_then(Value::as_u64) {
            Some(0) => Ok(None),
            _ => self.count("type_vocab_size").map(Some),
        }
    }

    /// A token id.
    pub(super) fn optional_index(&self, key: &'static str) -> Result<Option<u32>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_u64().and_then(|index| u32::try_from(index).ok()) {
            Some(index) => Ok(Some(index)),
            None => Err(invalid(key, value, "a whole number of at least 0")),
        }
    }

    pub(super) fn optional_str(&self, key: &'static str) -> Result<Option<&'a str>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(invalid(key, value, "a string")),
        }
    }

    /// A number that is added to a variance: finite, in f32, and not negative.
    pub(super) fn optional_epsilon(&self, key: &'static str) -> Result<Option<f32>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_f64().map(|number| number as f32) {
            Some(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
            _ => Err(invalid(key, value, "a finite number of at least 0")),
        }
    }

    /// As [`optional_epsilon`](Self::optional_epsilon), of a key that has to be there.
    pub(super) fn epsilon(&self, key: &'static str) -> Result<f32, ConfigError> {
        self.optional_epsilon(key)?.ok_or(ConfigError::Missing { key, expected: "a finite number of at least 0" })
    }

    /// A finite number above 0.
    pub(super) fn optional_positive(&self, key: &'static str) -> Result<Option<f64>, ConfigError> {
        self.get(key).map(|value| positive(key, value)).transpose()
    }

    pub(super) fn optional_flag(&self, key: &'static str) -> Result<Option<bool>, ConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => Err(invalid(key, value, "true or false")),
        }
    }

    /// The width of a head: `hidden_size` shared out among `heads`.
    pub(super) fn shared_head_dim(
        &self,
        hidden_size: usize,
        key: &'static str,
        heads: usize,
    ) -> Result<usize, ConfigError> {
        if hidden_size.is_multiple_of(heads) {
            return Ok(hidden_size / heads);
        }
        Err(invalid(key, &Value::from(heads), format!("a divisor of the hidden size {hidden_size}")))
    }

    /// As [`shared_head_dim`](Self::shared_head_dim), even: halves of a head are rotated against each other.
    pub(super) fn rotated_head_dim(
        &self,
        hidden_size: usize,
        key: &'static str,
        heads: usize,
    ) -> Result<usize, ConfigError> {
        let head_dim = self.shared_head_dim(hidden_size, key, heads)?;
        if head_dim.is_multiple_of(2) {
            return Ok(head_dim);
        }
        let expected = format!("a divisor of the hidden size {hidden_size} that leaves heads of an even width");
        Err(invalid(key, &Value::from(heads), expected))
    }

    /// Refuses modelling code of the repository's own: the class is then not what `model_type` says.
    pub(super) fn no_custom_code(&self) -> Result<(), ConfigError> {
        match self.get("auto_map").and_then(|map| map.get("AutoModel")) {
            Some(class) => Err(unsupported(
                "auto_map.AutoModel",
                class,
                "absent (models with code of their own are another family)",
            )),
            None => Ok(()),
        }
    }

    /// Refuses `key` unless it is absent or one of `allowed`.
    pub(super) fn only(&self, key: &'static str, allowed: &[Value], text: &'static str) -> Result<(), ConfigError> {
        match self.get(key) {
            Some(value) if !allowed.contains(value) => Err(unsupported(key, value, text)),
            _ => Ok(()),
        }
    }

    /// The class names in `architectures`.
    pub(super) fn architectures(&self) -> impl Iterator<Item = &'a str> {
        let classes = self.get("architectures").and_then(Value::as_array);
        classes.into_iter().flatten().filter_map(Value::as_str)
    }

    /// The classes in `auto_map`: modelling code that a repository brings with it.
    pub(super) fn custom_code(&self) -> impl Iterator<Item = &'a str> {
        let map = self.get("auto_map").and_then(Value::as_object);
        map.into_iter().flat_map(Map::values).filter_map(Value::as_str)
    }
}

/// A finite number above 0.
pub(super) fn positive(key: &'static str, value: &Value) -> Result<f64, ConfigError> {
    match value.as_f64() {
        Some(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(invalid(key, value, "a finite number above 0")),
    }
}

pub(super) fn invalid(key: &'static str, value: &Value, expected: impl Into<String>) -> ConfigError {
    ConfigError::Invalid { key, value: value.to_string(), expected: expected.into() }
}

pub(super) fn unsupported(key: &'static str, value: &Value, allowed: &'static str) -> ConfigError {
    ConfigError::Unsupported { key, value: value.to_string(), allowed }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
