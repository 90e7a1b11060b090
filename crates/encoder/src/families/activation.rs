//! Names of activations, as transformers' `ACT2FN` has them.

use serde_json::Value;
use simile_kernels::Activation;

use super::config::unsupported;
use super::{Config, ConfigError};

const NAMES: &str = "\"gelu\", \"gelu_python\" (erf form), \"gelu_new\", \"gelu_fast\", \"gelu_pytorch_tanh\" (tanh form), \
                     \"relu\", \"silu\", \"swish\", \"tanh\"";

/// The activation that `key` names; `default` when it is absent.
pub(super) fn activation(config: &Config<'_>, key: &'static str, default: &str) -> Result<Activation, ConfigError> {
    let name = config.optional_str(key)?.unwrap_or(default);
    match name {
        "gelu" | "gelu_python" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        "relu" => Ok(Activation::Relu),
        "silu" | "swish" => Ok(Activation::Silu),
        "tanh" => Ok(Activation::Tanh),
        other => Err(unsupported(key, &Value::from(other), NAMES)),
    }
}
