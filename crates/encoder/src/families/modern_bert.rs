//! ModernBERT (`model_type: "modernbert"`): pre-norm layers (the first without a norm in front of its attention), rotary
//! positions with a base for each kind of layer, a gated feed-forward part, a final norm. Most layers see a window only.
//!
//! Source: Warner et al. 2024, `models/modernbert/{configuration,modeling}_modernbert.py` of transformers: a token sees
//! those at most `local_attention / 2` away; `Wi` holds what is activated and then what it gates.

use serde_json::{Value, json};
use simile_kernels::Activation;

use super::activation::activation;
use super::config::invalid;
use super::layer_types::{LayerType, layer_types};
use super::rope::{RopeKeys, theta};
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, NormNames, TensorNames};
use crate::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, Rope, RopeScaling,
};

/// The activation of the masked language model's head, which has a key of its own (`ModernBertPredictionHead`).
pub(crate) fn head_activation(json: &Value) -> Result<Activation, ConfigError> {
    activation(&Config::new(json)?, "classifier_activation", "gelu")
}

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    config.only("quantization_config", &[], "absent (weights in F32, F16 or BF16)")?;
    config.no_custom_code()?;
    let hidden_size = config.count("hidden_size")?;
    let heads = config.count("num_attention_heads")?;
    let head_dim = config.rotated_head_dim(hidden_size, "num_attention_heads", heads)?;
    let intermediate_size = config.count("intermediate_size")?;
    let flag = |key| Ok::<bool, ConfigError>(config.optional_flag(key)?.unwrap_or(false));
    let epsilon = config.optional_epsilon("norm_eps")?.unwrap_or(1e-5);
    let norm = Norm::LayerNorm { epsilon, bias: flag("norm_bias")? };
    let base = |layer_type, old, default| {
        theta(config, &RopeKeys { layer_type: Some(layer_type), old, default: Some(default) })
    };
    let global = base("full_attention", "global_rope_theta", 160_000.0)?;
    let local = base("sliding_attention", "local_rope_theta", 10_000.0)?;
    let window = config.optional_count("local_attention")?.unwrap_or(128) / 2;
    let mlp = MlpSpec {
        intermediate_size,
        kind: MlpKind::Gated,
        activation: activation(config, "hidden_activation", "gelu")?,
    };
    let count = config.layers("num_hidden_layers")?;
    let every = config.optional_count("global_attn_every_n_layers")?.unwrap_or(3);
    let types =
        layer_types(config, count, |i| if i.is_multiple_of(every) { LayerType::Full } else { LayerType::Sliding })?;
    let layers = types.into_iter().enumerate().map(|(i, layer_type)| {
        let (theta, window) = match layer_type {
            LayerType::Full => (global, None),
            LayerType::Sliding => (local, Some(window)),
        };
        LayerSpec {
            placement: NormPlacement::Pre { attention_norm: i > 0 },
            norm,
            attention: AttentionSpec {
                position: AttentionPosition::Rope(Rope { theta, scaling: RopeScaling::None }),
                window,
                ..AttentionSpec::full(heads, head_dim)
            },
            mlp,
        }
    });
    if let Some(other) = config.get("is_causal").filter(|causal| **causal != json!(false)) {
        return Err(invalid("is_causal", other, "false"));
    }
    let spec = EncoderSpec {
        vocab_size: config.count("vocab_size")?,
        hidden_size,
        max_positions: config.count("max_position_embeddings")?,
        embeddings: EmbeddingSpec { scale: 1.0, positions: Positions::None, token_types: None, norm: Some(norm) },
        layers: layers.collect(),
        final_norm: Some(norm),
    };
    let names = names(hidden_size, intermediate_size, flag("attention_bias")?, flag("mlp_bias")?);
    Ok(Architecture { spec, names })
}

fn names(hidden: usize, intermediate: usize, attention_bias: bool, mlp_bias: bool) -> TensorNames {
    let linear = |entry, bias| LinearNames { entry, part: None, bias };
    let projection = |number| linear("layers.{}.attn.Wqkv", attention_bias).part(number * hidden, 3 * hidden);
    let half = |number| linear("layers.{}.mlp.Wi", mlp_bias).part(number * intermediate, 2 * intermediate);
    TensorNames {
        prefixes: &["", "model."],
        word_embeddings: "embeddings.tok_embeddings.weight",
        position_embeddings: None,
        token_type_embeddings: None,
        embeddings_norm: Some("embeddings.norm"),
        relative_bias: None,
        final_norm: Some("final_norm"),
        norm: &[NormNames { weight: "weight", bias: "bias" }],
        layer: LayerNames {
            query: projection(0),
            key: projection(1),
            value: projection(2),
            query_norm: None,
            key_norm: None,
            attention_output: linear("layers.{}.attn.Wo", attention_bias),
            attention_norm: "layers.{}.attn_norm",
            attention_output_norm: None,
            up: half(1),
            gate: Some(half(0)),
            down: linear("layers.{}.mlp.Wo", mlp_bias),
            mlp_norm: "layers.{}.mlp_norm",
            mlp_output_norm: None,
        },
    }
}
