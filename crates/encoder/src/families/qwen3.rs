//! Qwen3 (`model_type: "qwen3"`, Qwen3-Embedding and -Reranker): a causal language model whose last token's state is the
//! embedding. Pre-norm layers with RMS norms, norms of queries and keys, grouped heads, rotary positions, a gated
//! feed-forward part, a final norm.
//!
//! Source: Zhang et al. 2025, `models/qwen3/{configuration,modeling}_qwen3.py` of transformers.

use serde_json::json;

use super::layer_types::only_full;
use super::rope::{RopeKeys, theta};
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, NormNames, TensorNames};
use crate::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, QkNorm, Rope, RopeScaling,
};
use simile_kernels::Activation;

pub(super) const NAMES: TensorNames = TensorNames {
    prefixes: &["", "model."],
    word_embeddings: "embed_tokens.weight",
    position_embeddings: None,
    token_type_embeddings: None,
    embeddings_norm: None,
    relative_bias: None,
    final_norm: Some("norm"),
    norm: &[NormNames { weight: "weight", bias: "bias" }],
    layer: LayerNames {
        query: LinearNames::unbiased("layers.{}.self_attn.q_proj"),
        key: LinearNames::unbiased("layers.{}.self_attn.k_proj"),
        value: LinearNames::unbiased("layers.{}.self_attn.v_proj"),
        query_norm: Some("layers.{}.self_attn.q_norm"),
        key_norm: Some("layers.{}.self_attn.k_norm"),
        attention_output: LinearNames::unbiased("layers.{}.self_attn.o_proj"),
        attention_norm: "layers.{}.input_layernorm",
        attention_output_norm: None,
        up: LinearNames::unbiased("layers.{}.mlp.up_proj"),
        gate: Some(LinearNames::unbiased("layers.{}.mlp.gate_proj")),
        down: LinearNames::unbiased("layers.{}.mlp.down_proj"),
        mlp_norm: "layers.{}.post_attention_layernorm",
        mlp_output_norm: None,
    },
};

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    config.only("attention_bias", &[json!(false)], "false")?;
    config.only("hidden_act", &[json!("silu")], "\"silu\"")?;
    config.only("use_sliding_window", &[json!(false)], "false")?;
    config.only("is_causal", &[json!(true)], "true")?;
    config.only("quantization_config", &[], "absent (weights in F32, F16 or BF16)")?;
    config.no_custom_code()?;
    let count = config.layers("num_hidden_layers")?;
    only_full(config, count)?;
    let heads = config.count("num_attention_heads")?;
    let kv_heads = config.kv_heads(heads)?;
    let head_dim = config.even_count("head_dim")?;
    let epsilon = config.optional_epsilon("rms_norm_eps")?.unwrap_or(1e-6);
    let norm = Norm::RmsNorm { epsilon, offset: 0.0 };
    let keys = RopeKeys { layer_type: None, old: "rope_theta", default: None };
    let rope = Rope { theta: theta(config, &keys)?, scaling: RopeScaling::None };
    let layer = LayerSpec {
        placement: NormPlacement::Pre { attention_norm: true },
        norm,
        attention: AttentionSpec {
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f64).sqrt(),
            qk_norm: Some(QkNorm::PerHead(norm)),
            position: AttentionPosition::Rope(rope),
            causal: true,
            window: None,
        },
        mlp: MlpSpec {
            intermediate_size: config.count("intermediate_size")?,
            kind: MlpKind::Gated,
            activation: Activation::Silu,
        },
    };
    let spec = EncoderSpec {
        vocab_size: config.count("vocab_size")?,
        hidden_size: config.count("hidden_size")?,
        max_positions: config.count("max_position_embeddings")?,
        embeddings: EmbeddingSpec { scale: 1.0, positions: Positions::None, token_types: None, norm: None },
        layers: vec![layer; count],
        final_norm: Some(norm),
    };
    Ok(Architecture { spec, names: NAMES })
}
