//! BERT (`model_type: "bert"`): sum of word, position and type rows, layer norm; post-norm layers; plain feed-forward
//! part.
//!
//! Source: Devlin et al. 2018, and `models/bert/{configuration,modeling}_bert.py` of transformers, whose defaults are
//! taken for the few keys that old files leave out. Sizes have no default here, because a wrong one could load.

use serde_json::json;

use super::activation::activation;
use super::config::unsupported;
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, NormNames, TensorNames};
use crate::spec::{
    AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement, Positions,
};

/// Names in the checkpoints of `BertModel` (no prefix) and of models around it (`bert.`). `gamma` and `beta` are
/// TensorFlow's spelling, still shipped.
pub(super) const NAMES: TensorNames = TensorNames {
    prefixes: &["", "bert."],
    word_embeddings: "embeddings.word_embeddings.weight",
    position_embeddings: Some("embeddings.position_embeddings.weight"),
    token_type_embeddings: Some("embeddings.token_type_embeddings.weight"),
    embeddings_norm: Some("embeddings.LayerNorm"),
    relative_bias: None,
    final_norm: None,
    norm: &[NormNames { weight: "weight", bias: "bias" }, NormNames { weight: "gamma", bias: "beta" }],
    layer: LayerNames {
        query: LinearNames::biased("encoder.layer.{}.attention.self.query"),
        key: LinearNames::biased("encoder.layer.{}.attention.self.key"),
        value: LinearNames::biased("encoder.layer.{}.attention.self.value"),
        query_norm: None,
        key_norm: None,
        attention_output: LinearNames::biased("encoder.layer.{}.attention.output.dense"),
        attention_norm: "encoder.layer.{}.attention.output.LayerNorm",
        attention_output_norm: None,
        up: LinearNames::biased("encoder.layer.{}.intermediate.dense"),
        gate: None,
        down: LinearNames::biased("encoder.layer.{}.output.dense"),
        mlp_norm: "encoder.layer.{}.output.LayerNorm",
        mlp_output_norm: None,
    },
};

/// transformers' default of `layer_norm_eps`; files of 2018 do not have the key.
const DEFAULT_EPSILON: f32 = 1e-12;
/// transformers' default of `type_vocab_size`.
const DEFAULT_TYPES: usize = 2;

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    let table = config.count("max_position_embeddings")?;
    let spec = spec(config, Positions::Absolute { table }, table)?;
    Ok(Architecture { spec, names: NAMES })
}

/// The spec of BERT's layers behind any table of positions, of which `max_positions` can be used.
pub(super) fn spec(
    config: &Config<'_>,
    positions: Positions,
    max_positions: usize,
) -> Result<EncoderSpec, ConfigError> {
    ensure_supported(config)?;
    layers(config, positions, max_positions)
}

/// As [`spec`], of files whose other keys were looked at already.
pub(super) fn layers(
    config: &Config<'_>,
    positions: Positions,
    max_positions: usize,
) -> Result<EncoderSpec, ConfigError> {
    let hidden_size = config.count("hidden_size")?;
    let heads = config.count("num_attention_heads")?;
    let head_dim = config.shared_head_dim(hidden_size, "num_attention_heads", heads)?;
    let epsilon = config.optional_epsilon("layer_norm_eps")?.unwrap_or(DEFAULT_EPSILON);
    let norm = Norm::LayerNorm { epsilon, bias: true };
    let layer = LayerSpec {
        placement: NormPlacement::Post { twice: false },
        norm,
        attention: AttentionSpec::full(heads, head_dim),
        mlp: MlpSpec {
            intermediate_size: config.count("intermediate_size")?,
            kind: MlpKind::Plain,
            activation: activation(config, "hidden_act", "gelu")?,
        },
    };
    Ok(EncoderSpec {
        vocab_size: config.count("vocab_size")?,
        hidden_size,
        max_positions,
        embeddings: EmbeddingSpec {
            scale: 1.0,
            positions,
            token_types: Some(config.optional_count("type_vocab_size")?.unwrap_or(DEFAULT_TYPES)),
            norm: Some(norm),
        },
        layers: vec![layer; config.layers("num_hidden_layers")?],
        final_norm: None,
    })
}

/// Refuses every option of `BertConfig`, and of what is built around it, that changes the result and is not
/// implemented.
fn ensure_supported(config: &Config<'_>) -> Result<(), ConfigError> {
    config.only("position_embedding_type", &[json!("absolute")], "\"absolute\"")?;
    config.only("is_decoder", &[json!(false)], "false (an encoder attends in both directions)")?;
    config.only("add_cross_attention", &[json!(false)], "false")?;
    config.only("is_encoder_decoder", &[json!(false)], "false")?;
    config.only("pruned_heads", &[json!({}), json!([])], "none (every layer has num_attention_heads heads)")?;
    config.only("rope_scaling", &[], "absent (positions are a learned table)")?;
    config.only("rope_parameters", &[], "absent (positions are a learned table)")?;
    config.only("quantization_config", &[], "absent (weights in F32, F16 or BF16)")?;
    // ALBERT's and ELECTRA's factorised table under a bert name.
    if let (Some(narrow), Some(hidden)) = (config.get("embedding_size"), config.get("hidden_size"))
        && narrow != hidden
    {
        return Err(unsupported("embedding_size", narrow, "absent, or equal to hidden_size"));
    }
    config.no_custom_code()
}
