//! Gemma 3's text model as an encoder (`model_type: "gemma3_text"` with `use_bidirectional_attention`, EmbeddingGemma): word
//! rows times sqrt(hidden_size), four RMS norms a layer, norms of queries and keys, grouped heads, rotary positions with a
//! base for each kind of layer, a gated feed-forward part, a final norm.
//!
//! Source: Schechter Vera et al. 2025, `models/gemma3/{configuration,modeling}_gemma3.py` of transformers. The stored
//! `sliding_window` w is for a causal window; in both directions a token sees those less than w / 2 + 1 away
//! (`configuration_gemma3.py`, "due to fa we set exclusive bounds").

use serde_json::{Value, json};

use super::activation::activation;
use super::config::{positive, unsupported};
use super::layer_types::{LayerType, layer_types};
use super::rope::{RopeKeys, theta};
use super::{Architecture, Config, ConfigError, LayerNames, TensorNames, qwen3};
use crate::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, QkNorm, Rope, RopeScaling,
};

/// Qwen3's, and two norms more.
const NAMES: TensorNames = TensorNames {
    layer: LayerNames {
        attention_output_norm: Some("layers.{}.post_attention_layernorm"),
        mlp_norm: "layers.{}.pre_feedforward_layernorm",
        mlp_output_norm: Some("layers.{}.post_feedforward_layernorm"),
        ..qwen3::NAMES.layer
    },
    ..qwen3::NAMES
};

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    ensure_supported(config)?;
    let hidden_size = config.count("hidden_size")?;
    let heads = config.count("num_attention_heads")?;
    let kv_heads = config.kv_heads(heads)?;
    let head_dim = config.even_count("head_dim")?;
    // Gemma stores a norm's scale less 1.
    let epsilon = config.optional_epsilon("rms_norm_eps")?.unwrap_or(1e-6);
    let norm = Norm::RmsNorm { epsilon, offset: 1.0 };
    let scalar = match config.get("query_pre_attn_scalar") {
        Some(scalar) => positive("query_pre_attn_scalar", scalar)?,
        None => 256.0,
    };
    let base = |layer_type, old, default| {
        theta(config, &RopeKeys { layer_type: Some(layer_type), old, default: Some(default) })
    };
    let global = base("full_attention", "rope_theta", 1e6)?;
    let local = base("sliding_attention", "rope_local_base_freq", 1e4)?;
    let window = config.count("sliding_window")? / 2;
    let mlp = MlpSpec {
        intermediate_size: config.count("intermediate_size")?,
        kind: MlpKind::Gated,
        activation: activation(config, "hidden_activation", "gelu_pytorch_tanh")?,
    };
    let every = match config.optional_count("sliding_window_pattern")? {
        Some(every) => every,
        None => config.optional_count("_sliding_window_pattern")?.unwrap_or(6),
    };
    let types = layer_types(config, config.layers("num_hidden_layers")?, |i| {
        if (i + 1).is_multiple_of(every) { LayerType::Full } else { LayerType::Sliding }
    })?;
    let layers = types.into_iter().map(|layer_type| {
        let (theta, window) = match layer_type {
            LayerType::Full => (global, None),
            LayerType::Sliding => (local, Some(window)),
        };
        LayerSpec {
            placement: NormPlacement::Sandwich,
            norm,
            attention: AttentionSpec {
                heads,
                kv_heads,
                head_dim,
                scale: scalar.powf(-0.5),
                qk_norm: Some(QkNorm::PerHead(norm)),
                position: AttentionPosition::Rope(Rope { theta, scaling: RopeScaling::None }),
                causal: false,
                window,
            },
            mlp,
        }
    });
    let spec = EncoderSpec {
        vocab_size: config.count("vocab_size")?,
        hidden_size,
        max_positions: config.count("max_position_embeddings")?,
        embeddings: EmbeddingSpec {
            scale: (hidden_size as f64).sqrt() as f32,
            positions: Positions::None,
            token_types: None,
            norm: None,
        },
        layers: layers.collect(),
        final_norm: Some(norm),
    };
    Ok(Architecture { spec, names: NAMES })
}

fn ensure_supported(config: &Config<'_>) -> Result<(), ConfigError> {
    match config.get("use_bidirectional_attention") {
        Some(Value::Bool(true)) => {}
        other => {
            let value = other.unwrap_or(&Value::Null);
            return Err(unsupported(
                "use_bidirectional_attention",
                value,
                "true (an encoder; else it is a language model)",
            ));
        }
    }
    config.only("attention_bias", &[json!(false)], "false")?;
    config.only("attn_logit_softcapping", &[], "null")?;
    config.only("final_logit_softcapping", &[], "null")?;
    config.only("quantization_config", &[], "absent (weights in F32, F16 or BF16)")?;
    config.no_custom_code()
}
