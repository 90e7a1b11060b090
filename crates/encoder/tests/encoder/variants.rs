//! Random checkpoints of every spec: what each architecture does, in small and awkward sizes.

use std::collections::BTreeMap;

use safetensors::Dtype;
use simile_encoder::Architecture;
use simile_encoder::families::{LayerNames, LinearNames, NormNames, TensorNames};
use simile_encoder::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, QkNorm, Rope, RopeScaling,
};
use simile_kernels::Activation;
use tempfile::TempDir;

use crate::models::{Entry, Rng, write_file};

pub const VOCAB: usize = 97;

/// A name to print, and what a family's parser would return.
pub struct Variant {
    pub name: &'static str,
    pub architecture: Architecture,
}

/// Names of the parts, each layer a tensor of its own.
const NAMES: TensorNames = TensorNames {
    prefixes: &[""],
    word_embeddings: "words.weight",
    position_embeddings: Some("positions.weight"),
    token_type_embeddings: Some("types.weight"),
    embeddings_norm: Some("embeddings.norm"),
    relative_bias: Some("relative.weight"),
    final_norm: Some("final.norm"),
    norm: &[NormNames { weight: "weight", bias: "bias" }],
    layer: LayerNames {
        query: LinearNames::biased("{}.query"),
        key: LinearNames::biased("{}.key"),
        value: LinearNames::biased("{}.value"),
        query_norm: Some("{}.query_norm"),
        key_norm: Some("{}.key_norm"),
        attention_output: LinearNames::biased("{}.out"),
        attention_norm: "{}.attention_norm",
        attention_output_norm: Some("{}.attention_output_norm"),
        up: LinearNames::biased("{}.up"),
        gate: Some(LinearNames::biased("{}.gate")),
        down: LinearNames::biased("{}.down"),
        mlp_norm: "{}.mlp_norm",
        mlp_output_norm: Some("{}.mlp_output_norm"),
    },
};

const LAYER_NORM: Norm = Norm::LayerNorm { epsilon: 0.01, bias: true };
const PLAIN_NORM: Norm = Norm::LayerNorm { epsilon: 0.01, bias: false };
const RMS: Norm = Norm::RmsNorm { epsilon: 0.01, offset: 0.0 };
const RMS_OFFSET: Norm = Norm::RmsNorm { epsilon: 0.01, offset: 1.0 };

fn rope(theta: f64) -> AttentionPosition {
    AttentionPosition::Rope(Rope { theta, scaling: RopeScaling::None })
}

/// BERT in sizes that are no multiple of any vector: hidden 60, 5 heads of 12, a middle of 100.
fn bert() -> EncoderSpec {
    let layer = LayerSpec {
        placement: NormPlacement::Post { twice: false },
        norm: LAYER_NORM,
        attention: AttentionSpec {
            heads: 5,
            kv_heads: 5,
            head_dim: 12,
            scale: 1.0 / 12f64.sqrt(),
            qk_norm: None,
            position: AttentionPosition::None,
            causal: false,
            window: None,
        },
        mlp: MlpSpec { intermediate_size: 100, kind: MlpKind::Plain, activation: Activation::Gelu },
    };
    EncoderSpec {
        vocab_size: VOCAB,
        hidden_size: 60,
        max_positions: 320,
        embeddings: EmbeddingSpec {
            scale: 1.0,
            positions: Positions::Absolute { table: 320 },
            token_types: Some(2),
            norm: Some(LAYER_NORM),
        },
        layers: vec![layer; 3],
        final_norm: None,
    }
}

/// BERT whose layers are changed alike.
fn layers(change: impl Fn(&mut LayerSpec)) -> EncoderSpec {
    let mut spec = bert();
    spec.layers.iter_mut().for_each(change);
    spec
}

fn unbiased(mut names: TensorNames) -> TensorNames {
    let LayerNames { query, key, value, attention_output, up, gate, down, .. } = &mut names.layer;
    for linear in [query, key, value, attention_output, up, down].into_iter().chain(gate) {
        linear.bias = false;
    }
    names
}

/// Queries, keys and values in one tensor, `up` and `gate` in another.
fn stacked(mut names: TensorNames, spec: &EncoderSpec) -> TensorNames {
    let AttentionSpec { heads, kv_heads, head_dim, .. } = spec.layers[0].attention;
    let (q, kv, middle) = (heads * head_dim, kv_heads * head_dim, spec.layers[0].mlp.intermediate_size);
    let stack = |names: LinearNames, entry, first, of| LinearNames { entry, ..names }.part(first, of);
    names.layer.query = stack(names.layer.query, "{}.qkv", 0, q + 2 * kv);
    names.layer.key = stack(names.layer.key, "{}.qkv", q, q + 2 * kv);
    names.layer.value = stack(names.layer.value, "{}.qkv", q + kv, q + 2 * kv);
    names.layer.gate = names.layer.gate.map(|gate| stack(gate, "{}.up_gate", middle, 2 * middle));
    names.layer.up = stack(names.layer.up, "{}.up_gate", 0, 2 * middle);
    names
}

fn modern_bert() -> EncoderSpec {
    let mut spec = layers(|layer| {
        layer.norm = PLAIN_NORM;
        layer.mlp.kind = MlpKind::Gated;
        layer.placement = NormPlacement::Pre { attention_norm: true };
        (layer.attention.position, layer.attention.window) = (rope(100.0), Some(4));
    });
    spec.layers[0].placement = NormPlacement::Pre { attention_norm: false };
    (spec.layers[0].attention.position, spec.layers[0].attention.window) = (rope(16_000.0), None);
    spec.embeddings =
        EmbeddingSpec { positions: Positions::None, token_types: None, norm: Some(PLAIN_NORM), scale: 1.0 };
    spec.final_norm = Some(PLAIN_NORM);
    spec
}

fn qwen3() -> EncoderSpec {
    let mut spec = layers(|layer| {
        layer.norm = RMS;
        layer.placement = NormPlacement::Pre { attention_norm: true };
        // 6 x 10 queries of a hidden size of 60, two heads of keys.
        layer.attention = AttentionSpec {
            heads: 6,
            kv_heads: 2,
            head_dim: 16,
            scale: 0.25,
            qk_norm: Some(QkNorm::PerHead(RMS)),
            position: rope(10_000.0),
            causal: true,
            window: None,
        };
        (layer.mlp.kind, layer.mlp.activation) = (MlpKind::Gated, Activation::Silu);
    });
    spec.embeddings = EmbeddingSpec { positions: Positions::None, token_types: None, norm: None, scale: 1.0 };
    spec.final_norm = Some(RMS);
    spec
}

fn gemma() -> EncoderSpec {
    let mut spec = qwen3();
    for (i, layer) in spec.layers.iter_mut().enumerate() {
        (layer.norm, layer.placement) = (RMS_OFFSET, NormPlacement::Sandwich);
        layer.attention.qk_norm = Some(QkNorm::PerHead(RMS_OFFSET));
        (layer.attention.kv_heads, layer.attention.causal, layer.attention.scale) = (1, false, 0.3);
        layer.mlp.activation = Activation::GeluTanh;
        if i != 1 {
            (layer.attention.position, layer.attention.window) = (rope(100.0), Some(6));
        }
    }
    spec.embeddings.scale = 60f32.sqrt();
    spec.final_norm = Some(RMS_OFFSET);
    spec
}

fn scaled_rope(scaling: RopeScaling) -> EncoderSpec {
    let mut spec = layers(|layer| {
        layer.attention.position = AttentionPosition::Rope(Rope { theta: 1000.0, scaling });
        (layer.mlp.kind, layer.mlp.activation) = (MlpKind::Gated, Activation::Silu);
    });
    spec.embeddings.positions = Positions::None;
    spec
}

fn jina() -> EncoderSpec {
    let mut spec = layers(|layer| {
        layer.attention.position = AttentionPosition::Alibi;
        layer.mlp.kind = MlpKind::Gated;
    });
    spec.embeddings.positions = Positions::None;
    spec
}

fn mpnet() -> EncoderSpec {
    let mut spec = layers(|layer| {
        layer.attention.position = AttentionPosition::RelativeBias { buckets: 32, max_distance: 40 };
    });
    spec.embeddings.positions = Positions::NonPad { table: 322, pad: 1 };
    spec.embeddings.token_types = None;
    spec
}

/// Layers whose shapes differ.
fn uneven() -> EncoderSpec {
    let mut spec = bert();
    (spec.layers[1].attention.heads, spec.layers[1].attention.kv_heads) = (3, 1);
    (spec.layers[1].attention.head_dim, spec.layers[1].mlp.intermediate_size) = (34, 33);
    (spec.layers[2].mlp.kind, spec.layers[2].mlp.activation) = (MlpKind::Gated, Activation::Relu);
    spec.layers[2].attention.position = rope(50.0);
    spec
}

/// Every architecture, and what none of them combines.
pub fn variants() -> Vec<Variant> {
    let with = |name, spec: EncoderSpec, names| Variant { name, architecture: Architecture { spec, names } };
    let plain = |name, spec| with(name, spec, NAMES);
    vec![
        plain("BERT", bert()),
        with("ModernBert", modern_bert(), stacked(unbiased(NAMES), &modern_bert())),
        with("Qwen3", qwen3(), unbiased(NAMES)),
        with("Gemma 3", gemma(), unbiased(NAMES)),
        with(
            "NomicBert",
            scaled_rope(RopeScaling::DynamicNtk { factor: 2.0, trained: 30 }),
            stacked(unbiased(NAMES), &bert()),
        ),
        with("GteNew", scaled_rope(RopeScaling::Ntk { factor: 8.0 }), stacked(NAMES, &bert())),
        plain("JinaBert", jina()),
        plain("JinaBert with norms of q and k", {
            let mut spec = jina();
            for layer in &mut spec.layers {
                layer.placement = NormPlacement::Post { twice: true };
                layer.attention.qk_norm = Some(QkNorm::AllHeads(LAYER_NORM));
            }
            spec
        }),
        plain("MPNet", mpnet()),
        plain("layers that differ", uneven()),
        plain(
            "causal window, rms behind each part, norms over all heads",
            layers(|layer| {
                (layer.attention.causal, layer.attention.window) = (true, Some(9));
                layer.attention.qk_norm = Some(QkNorm::AllHeads(RMS_OFFSET));
                layer.norm = RMS;
            }),
        ),
        plain("scaled words, types, positions, no norm in front", {
            let mut spec = layers(|layer| layer.placement = NormPlacement::Sandwich);
            (spec.embeddings.scale, spec.embeddings.norm) = (0.5, None);
            spec
        }),
        plain("heads of whole panels", {
            let mut spec = layers(|layer| {
                (layer.attention.heads, layer.attention.kv_heads, layer.attention.head_dim) = (2, 2, 64);
                layer.attention.qk_norm = Some(QkNorm::AllHeads(LAYER_NORM));
                (layer.attention.position, layer.mlp.intermediate_size) = (rope(100.0), 256);
                (layer.mlp.kind, layer.placement) = (MlpKind::Gated, NormPlacement::Pre { attention_norm: true });
            });
            spec.hidden_size = 128;
            spec
        }),
    ]
}

/// The variant called `name`.
pub fn variant(name: &str) -> Variant {
    variants().into_iter().find(|variant| variant.name == name).unwrap()
}

/// Writes random weights to a folder that vanishes with the value.
pub fn write(architecture: &Architecture) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_file(&dir.path().join("model.safetensors"), &tensors(architecture), Dtype::F32);
    dir
}

fn tensors(architecture: &Architecture) -> Vec<Entry> {
    let Architecture { spec, names } = architecture;
    let hidden = spec.hidden_size;
    // Name to shape, centre and spread: parts of one tensor are written once.
    let mut all: BTreeMap<String, (Vec<usize>, f32, f32)> = BTreeMap::new();
    let table =
        |name: &str, rows: usize, width: usize, spread: f32| (name.to_owned(), (vec![rows, width], 0.0, spread));
    let norm = |all: &mut BTreeMap<_, _>, norm: Norm, entry: String, width: usize| {
        let centre = match norm {
            Norm::LayerNorm { .. } => 1.0,
            Norm::RmsNorm { offset, .. } => 1.0 - offset,
        };
        all.insert(format!("{entry}.weight"), (vec![width], centre, 0.3));
        if let Norm::LayerNorm { bias: true, .. } = norm {
            all.insert(format!("{entry}.bias"), (vec![width], 0.0, 0.3));
        }
    };
    all.extend([table(names.word_embeddings, spec.vocab_size, hidden, 1.0)]);
    if let Some(rows) = spec.embeddings.positions.table() {
        all.extend([table(names.position_embeddings.unwrap(), rows, hidden, 0.5)]);
    }
    if let Some(rows) = spec.embeddings.token_types {
        all.extend([table(names.token_type_embeddings.unwrap(), rows, hidden, 0.5)]);
    }
    if let Some(kind) = spec.embeddings.norm {
        norm(&mut all, kind, names.embeddings_norm.unwrap().into(), hidden);
    }
    if let Some(kind) = spec.final_norm {
        norm(&mut all, kind, names.final_norm.unwrap().into(), hidden);
    }
    for (i, layer) in spec.layers.iter().enumerate() {
        let AttentionSpec { heads, kv_heads, head_dim, .. } = layer.attention;
        let (names, middle) = (&names.layer, layer.mlp.intermediate_size);
        let mut linear = vec![
            (names.query, heads * head_dim, hidden, 2.5),
            (names.key, kv_heads * head_dim, hidden, 2.5),
            (names.value, kv_heads * head_dim, hidden, 1.7),
            (names.attention_output, hidden, heads * head_dim, 1.7),
            (names.up, middle, hidden, 1.7),
            (names.down, hidden, middle, 1.7),
        ];
        if layer.mlp.kind == MlpKind::Gated {
            linear.push((names.gate.unwrap(), middle, hidden, 1.7));
        }
        for (linear, outputs, inputs, gain) in linear {
            let entry = LayerNames::of(linear.entry, i);
            let rows = linear.part.map_or(outputs, |part| part.of);
            all.insert(format!("{entry}.weight"), (vec![rows, inputs], 0.0, gain / (inputs as f32).sqrt()));
            if linear.bias {
                all.insert(format!("{entry}.bias"), (vec![rows], 0.0, 0.2));
            }
        }
        let of = |entry: &str| LayerNames::of(entry, i);
        for entry in [names.attention_norm, names.mlp_norm] {
            norm(&mut all, layer.norm, of(entry), hidden);
        }
        if layer.placement == (NormPlacement::Post { twice: true }) {
            norm(&mut all, layer.norm, of(names.attention_output_norm.unwrap()), hidden);
        }
        if layer.placement == NormPlacement::Sandwich {
            for entry in [names.attention_output_norm, names.mlp_output_norm] {
                norm(&mut all, layer.norm, of(entry.unwrap()), hidden);
            }
        }
        if let Some(qk_norm) = layer.attention.qk_norm {
            let (kind, widths) = match qk_norm {
                QkNorm::PerHead(kind) => (kind, [head_dim; 2]),
                QkNorm::AllHeads(kind) => (kind, [heads, kv_heads].map(|heads| heads * head_dim)),
            };
            for (entry, width) in [names.query_norm, names.key_norm].into_iter().zip(widths) {
                norm(&mut all, kind, of(entry.unwrap()), width);
            }
        }
        if let AttentionPosition::RelativeBias { buckets, .. } = layer.attention.position {
            all.extend([table(architecture.names.relative_bias.unwrap(), buckets, heads, 2.0)]);
        }
    }
    let mut random = Rng(0x9e37_79b9_7f4a_7c15);
    all.into_iter()
        .map(|(name, (shape, centre, spread))| {
            let count = shape.iter().product();
            (name, shape, (0..count).map(|_| centre + spread * random.next()).collect())
        })
        .collect()
}
