//! JinaBert v2 (`model_type: "bert"` with ALiBi): BERT with a symmetric linear bias instead of positions, and a gated
//! feed-forward part.
//!
//! Source: Günther et al. 2023; jinaai/jina-bert-implementation and jinaai/jina-bert-v2-qk-post-norm, `modeling_bert.py`;
//! for the latter text-embeddings-inference, `backends/candle/src/models/jina_code.rs`.
//!
//! Nothing in `config.json` tells the shapes of a layer apart, so the first layer's tensors do:
//! - `mlp.gated_layers`: the first half is activated, the norm is `mlp.layernorm`;
//! - `mlp.up_gated_layer`: the second half is activated, the norms are `layer_norm_1` and `layer_norm_2`. Where there is
//!   an `attention.output.LayerNorm` too, the attention's sum has both norms, and the input is added in front of each;
//! - `attention.self.layer_norm_q` and `_k`: norms over all heads of the projected queries and keys.

use serde_json::{Value, json};
use simile_kernels::Activation;

use super::config::unsupported;
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, TensorNames, bert};
use crate::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, QkNorm,
};

/// By its position scheme, its class names or its code.
pub(super) fn recognised(config: &Config<'_>) -> bool {
    config.get("position_embedding_type").and_then(Value::as_str) == Some("alibi")
        || config.architectures().any(|class| class.starts_with("JinaBert"))
        || config.custom_code().any(|class| class.contains("jina-bert") || class.contains("JinaBert"))
}

pub(super) fn parse(config: &Config<'_>, has_tensor: &dyn Fn(&str) -> bool) -> Result<Architecture, ConfigError> {
    let no = [json!(false)];
    config.only("position_embedding_type", &[json!("alibi")], "\"alibi\"")?;
    config.only("is_decoder", &no, "false (an encoder attends in both directions)")?;
    config.only("add_cross_attention", &no, "false")?;
    config.only("quantization_config", &[], "absent (weights in F32, F16 or BF16)")?;
    let activation = match config.optional_str("feed_forward_type")? {
        Some("geglu") => Activation::Gelu,
        Some("reglu") => Activation::Relu,
        other => return Err(unsupported("feed_forward_type", &json!(other), "\"geglu\", \"reglu\"")),
    };
    let hidden_size = config.count("hidden_size")?;
    let heads = config.count("num_attention_heads")?;
    let head_dim = config.shared_head_dim(hidden_size, "num_attention_heads", heads)?;
    let intermediate_size = config.count("intermediate_size")?;
    let epsilon = config.optional_epsilon("layer_norm_eps")?.unwrap_or(1e-12);
    let norm = Norm::LayerNorm { epsilon, bias: true };
    let shape = Shape::of(has_tensor);
    let layer = LayerSpec {
        placement: NormPlacement::Post { twice: shape.twice },
        norm,
        attention: AttentionSpec {
            qk_norm: shape.qk_norm.then_some(QkNorm::AllHeads(norm)),
            position: AttentionPosition::Alibi,
            ..AttentionSpec::full(heads, head_dim)
        },
        mlp: MlpSpec { intermediate_size, kind: MlpKind::Gated, activation },
    };
    let spec = EncoderSpec {
        vocab_size: config.count("vocab_size")?,
        hidden_size,
        max_positions: config.count("max_position_embeddings")?,
        embeddings: EmbeddingSpec {
            scale: 1.0,
            positions: Positions::None,
            token_types: Some(config.optional_count("type_vocab_size")?.unwrap_or(2)),
            norm: Some(norm),
        },
        layers: vec![layer; config.layers("num_hidden_layers")?],
        final_norm: None,
    };
    Ok(Architecture { spec, names: shape.names(intermediate_size) })
}

/// What the first layer's tensors tell.
struct Shape {
    /// `mlp.up_gated_layer` instead of `mlp.gated_layers`.
    up_gated: bool,
    /// Two norms behind the attention.
    twice: bool,
    qk_norm: bool,
}

impl Shape {
    fn of(has_tensor: &dyn Fn(&str) -> bool) -> Shape {
        let has = |entry: &str| {
            bert::NAMES.prefixes.iter().any(|prefix| has_tensor(&format!("{prefix}encoder.layer.0.{entry}.weight")))
        };
        let up_gated = has("mlp.up_gated_layer");
        Shape {
            up_gated,
            twice: has("attention.output.LayerNorm") && has("layer_norm_1"),
            qk_norm: has("attention.self.layer_norm_q"),
        }
    }

    fn names(&self, intermediate: usize) -> TensorNames {
        let halves = |entry: &'static str| {
            [0, intermediate].map(|first| LinearNames::unbiased(entry).part(first, 2 * intermediate))
        };
        let base = LayerNames {
            query_norm: Some("encoder.layer.{}.attention.self.layer_norm_q"),
            key_norm: Some("encoder.layer.{}.attention.self.layer_norm_k"),
            attention_output_norm: Some("encoder.layer.{}.attention.output.LayerNorm"),
            ..bert::NAMES.layer
        };
        let layer = if self.up_gated {
            let [up, gate] = halves("encoder.layer.{}.mlp.up_gated_layer");
            LayerNames {
                attention_norm: "encoder.layer.{}.layer_norm_1",
                up,
                gate: Some(gate),
                down: LinearNames::biased("encoder.layer.{}.mlp.down_layer"),
                mlp_norm: "encoder.layer.{}.layer_norm_2",
                ..base
            }
        } else {
            let [gate, up] = halves("encoder.layer.{}.mlp.gated_layers");
            LayerNames {
                up,
                gate: Some(gate),
                down: LinearNames::biased("encoder.layer.{}.mlp.wo"),
                mlp_norm: "encoder.layer.{}.mlp.layernorm",
                ..base
            }
        };
        TensorNames { position_embeddings: None, layer, ..bert::NAMES }
    }
}
