//! Checkpoints of random weights for any spec, without a family: every part of a spec has a tensor of its own name.

use safetensors::Dtype;
use simile_encoder::families::{Architecture, LayerNames, LinearNames, NormNames, TensorNames};
use simile_encoder::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, QkNorm,
};
use simile_kernels::Activation;
use tempfile::TempDir;

use crate::models::{Entry, Rng, write_file};

pub const LAYER_NORM: Norm = Norm::LayerNorm { epsilon: 1e-12, bias: true };
pub const RMS_NORM: Norm = Norm::RmsNorm { epsilon: 1e-6, offset: 0.0 };

const NAMES: TensorNames = TensorNames {
    prefixes: &[""],
    word_embeddings: "word",
    position_embeddings: Some("position"),
    token_type_embeddings: Some("type"),
    embeddings_norm: Some("norm"),
    relative_bias: Some("relative"),
    final_norm: Some("final"),
    norm: &[NormNames { weight: "weight", bias: "bias" }],
    layer: LayerNames {
        query: LinearNames::biased("{}.query"),
        key: LinearNames::biased("{}.key"),
        value: LinearNames::biased("{}.value"),
        query_norm: Some("{}.query_norm"),
        key_norm: Some("{}.key_norm"),
        attention_output: LinearNames::biased("{}.attention_output"),
        attention_norm: "{}.attention_norm",
        attention_output_norm: Some("{}.attention_output_norm"),
        up: LinearNames::biased("{}.up"),
        gate: Some(LinearNames::unbiased("{}.gate")),
        down: LinearNames::biased("{}.down"),
        mlp_norm: "{}.mlp_norm",
        mlp_output_norm: Some("{}.mlp_output_norm"),
    },
};

/// BERT's layers at a size that fits no tile: hidden 60, 5 heads of 12, 100 inside.
pub fn layer() -> LayerSpec {
    LayerSpec {
        placement: NormPlacement::Post { attention_residual: 1.0 },
        norm: LAYER_NORM,
        attention: AttentionSpec {
            heads: 5,
            kv_heads: 5,
            head_dim: 12,
            scale: 12f64.powf(-0.5),
            qk_norm: None,
            position: AttentionPosition::None,
            causal: false,
            window: None,
        },
        mlp: MlpSpec { intermediate_size: 100, kind: MlpKind::Plain, activation: Activation::Gelu },
    }
}

/// `layers` with learned positions and types.
pub fn spec(layers: Vec<LayerSpec>) -> EncoderSpec {
    EncoderSpec {
        vocab_size: 97,
        hidden_size: 60,
        max_positions: 320,
        embeddings: EmbeddingSpec {
            scale: 1.0,
            positions: Positions::Absolute { table: 320 },
            token_types: Some(2),
            norm: Some(LAYER_NORM),
        },
        layers,
        final_norm: None,
    }
}

/// Writes random weights for `spec`.
pub fn write(spec: EncoderSpec) -> (Architecture, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    write_file(&dir.path().join("model.safetensors"), &tensors(&spec), Dtype::F32);
    (Architecture { spec, names: NAMES }, dir)
}

fn tensors(spec: &EncoderSpec) -> Vec<Entry> {
    let mut random = Rng(0x9e37_79b9_7f4a_7c15);
    let mut entries: Vec<Entry> = Vec::new();
    let mut push = |name: String, shape: Vec<usize>, centre: f32, spread: f32| {
        let values = (0..shape.iter().product()).map(|_| centre + spread * random.next()).collect();
        entries.push((name, shape, values));
    };
    let hidden = spec.hidden_size;
    push("word".into(), vec![spec.vocab_size, hidden], 0.0, 1.0);
    if let Some(rows) = spec.embeddings.positions.table() {
        push("position".into(), vec![rows, hidden], 0.0, 0.5);
    }
    if let Some(rows) = spec.embeddings.token_types {
        push("type".into(), vec![rows, hidden], 0.0, 0.5);
    }
    let first = &spec.layers[0].attention;
    if let AttentionPosition::RelativeBias { buckets, .. } = first.position {
        push("relative".into(), vec![buckets, first.heads], 0.0, 2.0);
    }
    // Sizes are drawn in, whether the spec reads them or not: what it does not read is ignored.
    for name in ["norm", "final"] {
        push(format!("{name}.weight"), vec![hidden], 1.0, 0.3);
        push(format!("{name}.bias"), vec![hidden], 0.0, 0.3);
    }
    for (layer, LayerSpec { attention, mlp, .. }) in spec.layers.iter().enumerate() {
        let (queries, keys) = (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        let linear = [
            ("query", queries, hidden, 2.5),
            ("key", keys, hidden, 2.5),
            ("value", keys, hidden, 1.7),
            ("attention_output", hidden, queries, 1.7),
            ("up", mlp.intermediate_size, hidden, 1.7),
            ("gate", mlp.intermediate_size, hidden, 1.7),
            ("down", hidden, mlp.intermediate_size, 1.7),
        ];
        for (name, outputs, inputs, gain) in linear {
            push(format!("{layer}.{name}.weight"), vec![outputs, inputs], 0.0, gain / (inputs as f32).sqrt());
            push(format!("{layer}.{name}.bias"), vec![outputs], 0.0, 0.2);
        }
        let (query, key) = match attention.qk_norm {
            Some(QkNorm::AllHeads(_)) => (queries, keys),
            Some(QkNorm::PerHead(_)) | None => (attention.head_dim, attention.head_dim),
        };
        let norms = [
            ("query_norm", query),
            ("key_norm", key),
            ("attention_norm", hidden),
            ("attention_output_norm", hidden),
            ("mlp_norm", hidden),
            ("mlp_output_norm", hidden),
        ];
        for (name, width) in norms {
            push(format!("{layer}.{name}.weight"), vec![width], 1.0, 0.3);
            push(format!("{layer}.{name}.bias"), vec![width], 0.0, 0.3);
        }
    }
    entries
}
