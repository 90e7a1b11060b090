//! GteNew, mGTE (`model_type: "new"`, in transformers 5 `"gte"`): post-norm layers with rotary positions, stacked projections
//! with biases and a gated feed-forward part.
//!
//! Source: Zhang et al. 2024; Alibaba-NLP/new-impl, `modeling.py` (`NewModel`, `NTKScalingRotaryEmbedding`: the base times the
//! factor, then every frequency over factor^(2 / head_dim)); `models/gte/modeling_gte.py` of transformers, whose
//! `rope_parameters` hold a base without scaling.

use serde_json::{Value, json};

use super::activation::activation;
use super::config::{positive, unsupported};
use super::rope::{RopeKeys, theta};
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, NormNames, TensorNames};
use crate::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, Rope, RopeScaling,
};

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    let no = [json!(false)];
    config.only("position_embedding_type", &[json!("rope")], "\"rope\"")?;
    config.only("layer_norm_type", &[json!("layer_norm")], "\"layer_norm\"")?;
    config.only("logn_attention_scale", &no, "false")?;
    config.only("pack_qkv", &[json!(true)], "true")?;
    config.only("quantization_config", &[], "absent (weights in F32, F16 or BF16)")?;
    let hidden_size = config.count("hidden_size")?;
    let heads = config.count("num_attention_heads")?;
    let head_dim = config.rotated_head_dim(hidden_size, "num_attention_heads", heads)?;
    let intermediate_size = config.count("intermediate_size")?;
    let epsilon = config.optional_epsilon("layer_norm_eps")?.unwrap_or(1e-12);
    let norm = Norm::LayerNorm { epsilon, bias: true };
    let layer = LayerSpec {
        placement: NormPlacement::Post { twice: false },
        norm,
        attention: AttentionSpec {
            position: AttentionPosition::Rope(rope(config)?),
            ..AttentionSpec::full(heads, head_dim)
        },
        mlp: MlpSpec { intermediate_size, kind: MlpKind::Gated, activation: activation(config, "hidden_act", "gelu")? },
    };
    let token_types = config.token_types()?;
    let spec = EncoderSpec {
        vocab_size: config.count("vocab_size")?,
        hidden_size,
        max_positions: config.count("max_position_embeddings")?,
        embeddings: EmbeddingSpec { scale: 1.0, positions: Positions::None, token_types, norm: Some(norm) },
        layers: vec![layer; config.layers("num_hidden_layers")?],
        final_norm: None,
    };
    Ok(Architecture { spec, names: names(hidden_size, intermediate_size) })
}

fn rope(config: &Config<'_>) -> Result<Rope, ConfigError> {
    let native = config.optional_str("model_type")? == Some("gte");
    match config.get("rope_scaling") {
        Some(scaling) if !native => {
            let kind = scaling.get("type").or_else(|| scaling.get("rope_type")).and_then(Value::as_str);
            if kind != Some("ntk") || scaling.get("mixed_b").is_some_and(|mixed| !mixed.is_null()) {
                return Err(unsupported("rope_scaling", scaling, "absent, or of type \"ntk\" without mixed_b"));
            }
            let factor = positive("rope_scaling.factor", scaling.get("factor").unwrap_or(&Value::Null))?;
            let theta = config.optional_positive("rope_theta")?;
            let theta = theta.ok_or(ConfigError::Missing { key: "rope_theta", expected: "a finite number above 0" })?;
            Ok(Rope { theta, scaling: RopeScaling::Ntk { factor } })
        }
        _ => {
            // NewConfig's default, and GteConfig's.
            let keys = RopeKeys {
                layer_type: None,
                old: "rope_theta",
                default: Some(if native { 160_000.0 } else { 10_000.0 }),
            };
            Ok(Rope { theta: theta(config, &keys)?, scaling: RopeScaling::None })
        }
    }
}

fn names(hidden: usize, intermediate: usize) -> TensorNames {
    let projection =
        |number| LinearNames::biased("encoder.layer.{}.attention.qkv_proj").part(number * hidden, 3 * hidden);
    let up_gate = LinearNames::unbiased("encoder.layer.{}.mlp.up_gate_proj");
    TensorNames {
        prefixes: &["", "new.", "gte.", "model."],
        word_embeddings: "embeddings.word_embeddings.weight",
        position_embeddings: None,
        token_type_embeddings: Some("embeddings.token_type_embeddings.weight"),
        embeddings_norm: Some("embeddings.LayerNorm"),
        relative_bias: None,
        final_norm: None,
        norm: &[NormNames { weight: "weight", bias: "bias" }],
        layer: LayerNames {
            query: projection(0),
            key: projection(1),
            value: projection(2),
            query_norm: None,
            key_norm: None,
            attention_output: LinearNames::biased("encoder.layer.{}.attention.o_proj"),
            attention_norm: "encoder.layer.{}.attn_ln",
            attention_output_norm: None,
            up: up_gate.part(0, 2 * intermediate),
            gate: Some(up_gate.part(intermediate, 2 * intermediate)),
            down: LinearNames::biased("encoder.layer.{}.mlp.down_proj"),
            mlp_norm: "encoder.layer.{}.mlp_ln",
            mlp_output_norm: None,
        },
    }
}
