//! DistilBERT (`model_type: "distilbert"`): BERT's layers without token types, under keys and names of their own.
//!
//! Source: Sanh et al. 2019, `models/distilbert/modeling_distilbert.py` of transformers, where the norms' epsilon is fixed
//! at 1e-12. Sinusoidal positions are stored as a table too, so that `sinusoidal_pos_embds` changes nothing here.

use serde_json::json;

use super::activation::activation;
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, TensorNames, bert};
use crate::spec::{
    AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement, Positions,
};

const NAMES: TensorNames = TensorNames {
    prefixes: &["", "distilbert."],
    token_type_embeddings: None,
    layer: LayerNames {
        query: LinearNames::biased("transformer.layer.{}.attention.q_lin"),
        key: LinearNames::biased("transformer.layer.{}.attention.k_lin"),
        value: LinearNames::biased("transformer.layer.{}.attention.v_lin"),
        attention_output: LinearNames::biased("transformer.layer.{}.attention.out_lin"),
        attention_norm: "transformer.layer.{}.sa_layer_norm",
        up: LinearNames::biased("transformer.layer.{}.ffn.lin1"),
        down: LinearNames::biased("transformer.layer.{}.ffn.lin2"),
        mlp_norm: "transformer.layer.{}.output_layer_norm",
        ..bert::NAMES.layer
    },
    ..bert::NAMES
};

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    config.only("pruned_heads", &[json!({}), json!([])], "none (every layer has n_heads heads)")?;
    config.only("quantization_config", &[], "absent (weights in F32, F16 or BF16)")?;
    config.no_custom_code()?;
    let hidden_size = config.count("dim")?;
    let heads = config.count("n_heads")?;
    let head_dim = config.shared_head_dim(hidden_size, "n_heads", heads)?;
    let table = config.count("max_position_embeddings")?;
    let norm = Norm::LayerNorm { epsilon: 1e-12, bias: true };
    let layer = LayerSpec {
        placement: NormPlacement::Post { twice: false },
        norm,
        attention: AttentionSpec::full(heads, head_dim),
        mlp: MlpSpec {
            intermediate_size: config.count("hidden_dim")?,
            kind: MlpKind::Plain,
            activation: activation(config, "activation", "gelu")?,
        },
    };
    let spec = EncoderSpec {
        vocab_size: config.count("vocab_size")?,
        hidden_size,
        max_positions: table,
        embeddings: EmbeddingSpec {
            scale: 1.0,
            positions: Positions::Absolute { table },
            token_types: None,
            norm: Some(norm),
        },
        layers: vec![layer; config.layers("n_layers")?],
        final_norm: None,
    };
    Ok(Architecture { spec, names: NAMES })
}
