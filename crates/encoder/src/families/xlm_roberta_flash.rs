//! XLM-RoBERTa as jina-colbert-v2 and jina-reranker-v2 have it (`model_type: "xlm-roberta"` with code of its own): RoBERTa's
//! arithmetic with stacked projections and other names, and with rotary or learned positions.
//!
//! Source: jinaai/xlm-roberta-flash-implementation, `configuration_xlm_roberta.py` and `modeling_xlm_roberta.py`; the layers are
//! those of Dao's flash-attn (`flash_attn/models/bert.py`, post-norm).

use serde_json::json;

use super::activation::activation;
use super::config::unsupported;
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, NormNames, TensorNames, bert, roberta};
use crate::spec::{AttentionPosition, Positions, Rope, RopeScaling};

/// Whether the repository brings this code with it.
pub(super) fn recognised(config: &Config<'_>) -> bool {
    config.custom_code().any(|class| class.contains("xlm-roberta-flash")) || config.get("use_flash_attn").is_some()
}

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    config.only("lora_adaptations", &[], "absent (adapters are not applied)")?;
    config.only("truncate_dim", &[], "null")?;
    config.only("rotary_emb_interleaved", &[json!(false)], "false")?;
    config.only("rotary_emb_scale_base", &[], "null")?;
    config.only("quantization_config", &[], "absent (weights in F32, F16 or BF16)")?;
    // Read for its errors too: one table under one name.
    let hidden_size = config.count("hidden_size")?;
    let rows = config.count("max_position_embeddings")?;
    let (pad, usable) = roberta::padded(config, rows)?;
    let (positions, attention) = match config.optional_str("position_embedding_type")? {
        Some("absolute") => (Positions::NonPad { table: rows, pad }, AttentionPosition::None),
        // The class's default, and its base's.
        Some("rotary") | None => {
            let head_dim =
                config.rotated_head_dim(hidden_size, "num_attention_heads", config.count("num_attention_heads")?)?;
            config.only("rotary_emb_dim", &[json!(head_dim)], "absent, or the width of a head")?;
            let theta = config.optional_positive("rotary_emb_base")?.unwrap_or(10_000.0);
            (Positions::None, AttentionPosition::Rope(Rope { theta, scaling: RopeScaling::None }))
        }
        Some(other) => {
            return Err(unsupported("position_embedding_type", &json!(other), "\"rotary\", \"absolute\""));
        }
    };
    let mut spec = bert::layers(config, positions, usable)?;
    for layer in &mut spec.layers {
        layer.attention.position = attention;
        layer.mlp.activation = activation(config, "hidden_act", "gelu")?;
    }
    Ok(Architecture { spec, names: names(hidden_size) })
}

fn names(hidden: usize) -> TensorNames {
    let projection = |number| LinearNames::biased("encoder.layers.{}.mixer.Wqkv").part(number * hidden, 3 * hidden);
    TensorNames {
        prefixes: &["", "roberta."],
        word_embeddings: "embeddings.word_embeddings.weight",
        position_embeddings: Some("embeddings.position_embeddings.weight"),
        token_type_embeddings: Some("embeddings.token_type_embeddings.weight"),
        embeddings_norm: Some("emb_ln"),
        relative_bias: None,
        final_norm: None,
        norm: &[NormNames { weight: "weight", bias: "bias" }],
        layer: LayerNames {
            query: projection(0),
            key: projection(1),
            value: projection(2),
            query_norm: None,
            key_norm: None,
            attention_output: LinearNames::biased("encoder.layers.{}.mixer.out_proj"),
            attention_norm: "encoder.layers.{}.norm1",
            attention_output_norm: None,
            up: LinearNames::biased("encoder.layers.{}.mlp.fc1"),
            gate: None,
            down: LinearNames::biased("encoder.layers.{}.mlp.fc2"),
            mlp_norm: "encoder.layers.{}.norm2",
            mlp_output_norm: None,
        },
    }
}
