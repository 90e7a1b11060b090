//! NomicBert (`model_type: "nomic_bert"`): post-norm layers with rotary positions, stacked projections without biases and a
//! gated feed-forward part.
//!
//! Two dialects of `config.json` share the model type, and one set of tensor names: that of the repository's own code
//! (`n_embd`, `n_head`, …; nomic-ai/nomic-bert-2048, `modeling_hf_nomic_bert.py`) and that of transformers 5
//! (`models/nomic_bert/modeling_nomic_bert.py`). Beyond `max_trained_positions` the base of the rotation grows with the
//! length: here with the text's own, while a padded batch would take its longest.

use serde_json::{Value, json};
use simile_kernels::Activation;

use super::activation::activation;
use super::config::unsupported;
use super::rope::{RopeKeys, theta};
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, NormNames, TensorNames};
use crate::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, Rope, RopeScaling,
};

/// What the two dialects call differently.
struct Read {
    hidden_size: usize,
    heads: usize,
    layers: usize,
    intermediate_size: usize,
    max_positions: usize,
    activation: Activation,
    epsilon: f32,
    rope: Rope,
    qkv_bias: bool,
    /// Of `up` and `gate`, and of `down`.
    mlp_biases: [bool; 2],
}

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    let read = if config.get("n_embd").is_some() { own_dialect(config)? } else { native_dialect(config)? };
    let head_dim = config.rotated_head_dim(read.hidden_size, "n_head or num_attention_heads", read.heads)?;
    let norm = Norm::LayerNorm { epsilon: read.epsilon, bias: true };
    let layer = LayerSpec {
        placement: NormPlacement::Post { twice: false },
        norm,
        attention: AttentionSpec {
            position: AttentionPosition::Rope(read.rope),
            ..AttentionSpec::full(read.heads, head_dim)
        },
        mlp: MlpSpec { intermediate_size: read.intermediate_size, kind: MlpKind::Gated, activation: read.activation },
    };
    let token_types = config.token_types()?;
    let spec = EncoderSpec {
        vocab_size: config.count("vocab_size")?,
        hidden_size: read.hidden_size,
        max_positions: read.max_positions,
        embeddings: EmbeddingSpec { scale: 1.0, positions: Positions::None, token_types, norm: Some(norm) },
        layers: vec![layer; read.layers],
        final_norm: None,
    };
    let names = names(read.hidden_size, read.qkv_bias, read.mlp_biases);
    Ok(Architecture { spec, names })
}

fn own_dialect(config: &Config<'_>) -> Result<Read, ConfigError> {
    let no = [json!(false)];
    config.only("prenorm", &no, "false")?;
    config.only("parallel_block", &no, "false")?;
    config.only("causal", &no, "false")?;
    config.only("use_rms_norm", &no, "false")?;
    config.only("rotary_emb_interleaved", &no, "false")?;
    config.only("rotary_emb_scale_base", &[], "null")?;
    config.only("scale_attn_weights", &[json!(true)], "true")?;
    config.only("scale_attn_by_inverse_layer_idx", &no, "false")?;
    config.only("moe_every_n_layers", &[json!(0)], "absent or 0 (a mixture of experts is not NomicBert v1)")?;
    config.only("num_experts", &[json!(0)], "absent or 0 (a mixture of experts is not NomicBert v1)")?;
    match config.get("rotary_emb_fraction") {
        Some(fraction) if fraction.as_f64() == Some(1.0) => {}
        other => {
            let value = other.unwrap_or(&Value::Null);
            return Err(unsupported("rotary_emb_fraction", value, "1.0 (the whole head is rotated)"));
        }
    }
    let activation = match config.optional_str("activation_function")? {
        Some("swiglu") => Activation::Silu,
        Some("geglu") => Activation::Gelu,
        other => return Err(unsupported("activation_function", &json!(other), "\"swiglu\", \"geglu\"")),
    };
    let scaling = match config.optional_positive("rotary_scaling_factor")? {
        None => RopeScaling::None,
        Some(factor) => RopeScaling::DynamicNtk { factor, trained: config.count("max_trained_positions")? },
    };
    let theta = config.optional_positive("rotary_emb_base")?;
    let theta = theta.ok_or(ConfigError::Missing { key: "rotary_emb_base", expected: "a finite number above 0" })?;
    let flag = |key, default| Ok::<bool, ConfigError>(config.optional_flag(key)?.unwrap_or(default));
    Ok(Read {
        hidden_size: config.count("n_embd")?,
        heads: config.count("n_head")?,
        layers: config.layers("n_layer")?,
        intermediate_size: config.count("n_inner")?,
        max_positions: config.count("n_positions")?,
        activation,
        epsilon: config.epsilon("layer_norm_epsilon")?,
        rope: Rope { theta, scaling },
        // Defaults of the repository's NomicBertConfig.
        qkv_bias: flag("qkv_proj_bias", true)?,
        mlp_biases: [flag("mlp_fc1_bias", true)?, flag("mlp_fc2_bias", true)?],
    })
}

fn native_dialect(config: &Config<'_>) -> Result<Read, ConfigError> {
    let hidden_size = config.count("hidden_size")?;
    let heads = config.count("num_attention_heads")?;
    if let (Some(given), Some(own)) = (config.optional_count("head_dim")?, hidden_size.checked_div(heads))
        && given != own
    {
        return Err(unsupported("head_dim", &json!(given), "hidden_size / num_attention_heads"));
    }
    let keys = RopeKeys { layer_type: None, old: "rope_theta", default: Some(1000.0) };
    Ok(Read {
        hidden_size,
        heads,
        layers: config.layers("num_hidden_layers")?,
        intermediate_size: config.count("intermediate_size")?,
        max_positions: config.count("max_position_embeddings")?,
        activation: activation(config, "hidden_act", "silu")?,
        epsilon: config.optional_epsilon("layer_norm_eps")?.unwrap_or(1e-12),
        rope: Rope { theta: theta(config, &keys)?, scaling: RopeScaling::None },
        qkv_bias: false,
        mlp_biases: [false; 2],
    })
}

fn names(hidden: usize, qkv_bias: bool, [up_bias, down_bias]: [bool; 2]) -> TensorNames {
    let linear = |entry, bias| LinearNames { entry, part: None, bias };
    let projection = |number| linear("encoder.layers.{}.attn.Wqkv", qkv_bias).part(number * hidden, 3 * hidden);
    TensorNames {
        prefixes: &["", "bert.", "model."],
        word_embeddings: "embeddings.word_embeddings.weight",
        position_embeddings: None,
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
            attention_output: linear("encoder.layers.{}.attn.out_proj", qkv_bias),
            attention_norm: "encoder.layers.{}.norm1",
            attention_output_norm: None,
            // fc11(x) * activation(fc12(x))
            up: linear("encoder.layers.{}.mlp.fc11", up_bias),
            gate: Some(linear("encoder.layers.{}.mlp.fc12", up_bias)),
            down: linear("encoder.layers.{}.mlp.fc2", down_bias),
            mlp_norm: "encoder.layers.{}.norm2",
            mlp_output_norm: None,
        },
    }
}
