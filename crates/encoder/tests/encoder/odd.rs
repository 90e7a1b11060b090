//! Every family as its files have it, in sizes that fit no tile, against hidden states that transformers, or a plain torch
//! forward where it has no such model, computed (`tools/make_tiny_families.py`); and that the numbers would tell if a
//! parser read a key wrong.

use std::path::PathBuf;

use simile_encoder::spec::{
    AttentionPosition, EncoderSpec, MlpKind, Norm, NormPlacement, Positions, QkNorm, RopeScaling,
};
use simile_encoder::{Encoder, Rows, Weights, parse_config, simd};
use simile_kernels::{Activation, Isa};

use crate::architectures::{Mutation, epsilon, rope_of};
use crate::golden::TOLERANCE;
use crate::models::{odd, read_json};
use crate::reference::difference;
use crate::run::{Batch, Machine, load, sequences};

const CHECKPOINTS: [&str; 17] = [
    "bert",
    "distilbert",
    "gemma3",
    "gte-native",
    "gte-new",
    "jina-bert",
    "jina-bert-qk-norm",
    "jina-bert-up-gated",
    "modern-bert",
    "mpnet",
    "nomic-bert",
    "nomic-bert-native",
    "qwen3",
    "roberta",
    "xlm-roberta",
    "xlm-roberta-flash-absolute",
    "xlm-roberta-flash-rotary",
];

/// A checkpoint, its texts and the last layer's states of every token.
struct Odd {
    dir: PathBuf,
    ids: Vec<Vec<u32>>,
    hidden: Vec<Vec<Vec<f64>>>,
}

impl Odd {
    fn open(name: &str) -> Odd {
        let dir = odd(name);
        let golden = read_json(&dir.join("golden.json"));
        let ids: Vec<Vec<u32>> = serde_json::from_value(golden["ids"].clone()).unwrap();
        let hidden: Vec<Vec<Vec<f64>>> = serde_json::from_value(golden["hidden"].clone()).unwrap();
        let lengths = ids.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths, hidden.iter().map(Vec::len).collect::<Vec<_>>(), "{name}: a row for each token");
        assert_eq!(lengths, [1, 3, 16, 17, 33], "{name}");
        Odd { dir, ids, hidden }
    }

    /// The largest difference of each text's rows.
    fn off(&self, encoder: &dyn Encoder, threads: usize) -> Vec<f64> {
        let ours = Machine::new(threads).run(encoder, &Batch::of(&self.ids), Rows::All);
        assert_eq!(ours.len(), self.hidden.len());
        let texts = ours.iter().zip(&self.hidden).map(|(ours, theirs)| {
            assert_eq!(ours.len(), theirs.len());
            ours.iter().zip(theirs).map(|(ours, theirs)| difference(ours, theirs)).fold(0.0, f64::max)
        });
        texts.collect()
    }
}

/// What is too far off, for the message.
fn failures(what: &str, off: &[f64]) -> Vec<String> {
    let far = off.iter().enumerate().filter(|(_, off)| **off > TOLERANCE);
    far.map(|(text, off)| format!("{what}, text {text}: off by {off:e}")).collect()
}

#[test]
fn every_family_in_odd_sizes_gives_the_hidden_states_of_its_reference() {
    let mut failed = Vec::new();
    for name in CHECKPOINTS {
        let odd = Odd::open(name);
        for isa in Isa::available() {
            let encoder = load(isa, &odd.dir);
            for threads in [1, 2] {
                let what = format!("{name}, {}, {threads} threads", isa.name());
                failed.extend(failures(&what, &odd.off(&*encoder, threads)));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
#[cfg(feature = "candle")]
fn candle_gives_the_hidden_states_of_the_references_in_odd_sizes() {
    use simile_encoder::{Device, Precision, load_candle};

    let mut failed = Vec::new();
    for name in CHECKPOINTS {
        let odd = Odd::open(name);
        let config = read_json(&odd.dir.join("config.json"));
        let encoder = load_candle(Device::Cpu, Precision::F32, Isa::best(), &config, &odd.dir).unwrap();
        failed.extend(failures(name, &odd.off(&*encoder, 1)));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn each_layer(spec: &mut EncoderSpec, change: impl FnMut(&mut simile_encoder::spec::LayerSpec)) {
    spec.layers.iter_mut().for_each(change);
}

/// `RopeScaling::Ntk` without its second step: the base alone is scaled.
fn undivided(spec: &mut EncoderSpec) {
    (0..spec.layers.len()).for_each(|layer| {
        rope_of(spec, layer, |rope| {
            if let RopeScaling::Ntk { factor } = rope.scaling {
                rope.theta *= factor;
            }
            rope.scaling = RopeScaling::None;
        });
    });
}

fn every_rope(spec: &mut EncoderSpec, change: impl Fn(&mut simile_encoder::spec::Rope)) {
    (0..spec.layers.len()).for_each(|layer| rope_of(spec, layer, &change));
}

fn epsilon_of_qk(spec: &mut EncoderSpec) {
    each_layer(spec, |layer| match layer.attention.qk_norm.as_mut().unwrap() {
        QkNorm::PerHead(norm) | QkNorm::AllHeads(norm) => epsilon(norm),
    });
}

/// What a wrong reading of each file would be.
const WRONG: [(&str, &str, Mutation); 46] = [
    ("bert", "tanh gelu", |spec| each_layer(spec, |layer| layer.mlp.activation = Activation::GeluTanh)),
    ("bert", "epsilon of the embeddings", |spec| epsilon(spec.embeddings.norm.as_mut().unwrap())),
    ("bert", "epsilon of a layer", |spec| epsilon(&mut spec.layers[1].norm)),
    ("bert", "scale of the scores", |spec| spec.layers[1].attention.scale = 0.25),
    ("bert", "RoBERTa's positions", |spec| {
        spec.embeddings.positions = Positions::NonPad { table: 40, pad: 1 };
    }),
    ("distilbert", "tanh gelu", |spec| each_layer(spec, |layer| layer.mlp.activation = Activation::GeluTanh)),
    ("distilbert", "no positions", |spec| spec.embeddings.positions = Positions::None),
    ("gemma3", "window one wider", |spec| spec.layers[0].attention.window = Some(7)),
    ("gemma3", "window one narrower", |spec| spec.layers[2].attention.window = Some(5)),
    ("gemma3", "the stored window", |spec| spec.layers[0].attention.window = Some(12)),
    ("gemma3", "causal", |spec| each_layer(spec, |layer| layer.attention.causal = true)),
    ("gemma3", "scale by the head", |spec| {
        each_layer(spec, |layer| layer.attention.scale = 12f64.powf(-0.5));
    }),
    ("gemma3", "global theta everywhere", |spec| every_rope(spec, |rope| rope.theta = 10_000.0)),
    ("gemma3", "local theta everywhere", |spec| every_rope(spec, |rope| rope.theta = 100.0)),
    ("gemma3", "erf gelu", |spec| each_layer(spec, |layer| layer.mlp.activation = Activation::Gelu)),
    ("gemma3", "scale of the words", |spec| spec.embeddings.scale = 1.0),
    ("gemma3", "epsilon of a layer", |spec| epsilon(&mut spec.layers[1].norm)),
    ("gemma3", "epsilon of the final norm", |spec| epsilon(spec.final_norm.as_mut().unwrap())),
    ("gemma3", "weights without 1", |spec| {
        spec.final_norm = Some(Norm::RmsNorm { epsilon: 0.05, offset: 0.0 });
    }),
    ("gte-native", "theta", |spec| every_rope(spec, |rope| rope.theta = 10_000.0)),
    ("gte-native", "scaling", |spec| every_rope(spec, |rope| rope.scaling = RopeScaling::Ntk { factor: 2.0 })),
    ("gte-new", "base scaled, frequencies not", undivided),
    ("gte-new", "no scaling", |spec| every_rope(spec, |rope| rope.scaling = RopeScaling::None)),
    ("jina-bert", "no slopes", |spec| each_layer(spec, |layer| layer.attention.position = AttentionPosition::None)),
    ("jina-bert", "tanh gelu", |spec| each_layer(spec, |layer| layer.mlp.activation = Activation::GeluTanh)),
    ("jina-bert-qk-norm", "input added once", |spec| {
        each_layer(spec, |layer| layer.placement = NormPlacement::Post { twice: false });
    }),
    ("jina-bert-qk-norm", "no norm of q and k", |spec| each_layer(spec, |layer| layer.attention.qk_norm = None)),
    ("jina-bert-qk-norm", "epsilon of a layer", |spec| epsilon(&mut spec.layers[1].norm)),
    ("jina-bert-qk-norm", "epsilon of q and k", epsilon_of_qk),
    ("jina-bert-up-gated", "no slopes", |spec| spec.layers[1].attention.position = AttentionPosition::None),
    ("modern-bert", "window one wider", |spec| spec.layers[1].attention.window = Some(7)),
    ("modern-bert", "window one narrower", |spec| spec.layers[1].attention.window = Some(5)),
    ("modern-bert", "global theta everywhere", |spec| every_rope(spec, |rope| rope.theta = 10_000.0)),
    ("modern-bert", "local theta everywhere", |spec| every_rope(spec, |rope| rope.theta = 100.0)),
    ("modern-bert", "epsilon of a layer", |spec| epsilon(&mut spec.layers[1].norm)),
    ("modern-bert", "epsilon of the final norm", |spec| epsilon(spec.final_norm.as_mut().unwrap())),
    ("modern-bert", "tanh gelu", |spec| each_layer(spec, |layer| layer.mlp.activation = Activation::GeluTanh)),
    ("mpnet", "greatest distance", |spec| {
        let position = AttentionPosition::RelativeBias { buckets: 32, max_distance: 64 };
        each_layer(spec, |layer| layer.attention.position = position);
    }),
    ("nomic-bert", "no scaling", |spec| every_rope(spec, |rope| rope.scaling = RopeScaling::None)),
    ("nomic-bert", "scaling from a token later on", |spec| {
        every_rope(spec, |rope| rope.scaling = RopeScaling::DynamicNtk { factor: 2.0, trained: 17 });
    }),
    ("qwen3", "both directions", |spec| each_layer(spec, |layer| layer.attention.causal = false)),
    ("qwen3", "theta", |spec| every_rope(spec, |rope| rope.theta = 1_000_000.0)),
    ("qwen3", "epsilon of a layer", |spec| epsilon(&mut spec.layers[1].norm)),
    ("qwen3", "epsilon of q and k", epsilon_of_qk),
    ("roberta", "BERT's positions", |spec| spec.embeddings.positions = Positions::Absolute { table: 40 }),
    ("xlm-roberta-flash-rotary", "the default theta", |spec| every_rope(spec, |rope| rope.theta = 10_000.0)),
];

#[test]
fn a_file_read_wrong_is_far_from_its_reference() {
    let mut failed = Vec::new();
    for (name, what, mutate) in WRONG {
        let odd = Odd::open(name);
        let weights = Weights::open(&odd.dir).unwrap();
        let config = read_json(&odd.dir.join("config.json"));
        let right = parse_config(&config, &|name| weights.get(name).is_some()).unwrap();
        let mut wrong = right.clone();
        mutate(&mut wrong.spec);
        assert_ne!(wrong.spec, right.spec, "{name}, {what}");
        let encoder =
            simd::load(Isa::best(), &wrong, &weights).unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
        let off = odd.off(&encoder, 1).into_iter().fold(0.0, f64::max);
        if off < 10.0 * TOLERANCE {
            failed.push(format!("{name}, {what}: only off by {off:e}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Sizes for which the fixtures were made: a head that is no multiple of a vector, head counts that are no power of two.
#[test]
fn the_checkpoints_have_odd_sizes() {
    for name in CHECKPOINTS {
        let odd = Odd::open(name);
        let config = read_json(&odd.dir.join("config.json"));
        let weights = Weights::open(&odd.dir).unwrap();
        let spec = parse_config(&config, &|name| weights.get(name).is_some()).unwrap().spec;
        let it = spec.layers[0].attention;
        let sizes = (spec.hidden_size, it.heads, it.kv_heads, it.head_dim, spec.layers[0].mlp.intermediate_size);
        let expected = match name {
            "gemma3" | "qwen3" => (36, 4, 2, 12, 44),
            _ if name.starts_with("jina") => (30, 5, 5, 6, 44),
            _ => (36, 3, 3, 12, 44),
        };
        assert_eq!(sizes, expected, "{name}");
        let gated = spec.layers[0].mlp.kind == MlpKind::Gated;
        assert_eq!(gated, !matches!(name, "bert" | "distilbert" | "mpnet") && !name.contains("roberta"), "{name}");
    }
}

#[test]
fn a_window_wider_than_any_text_is_none() {
    let dir = odd("modern-bert");
    let weights = Weights::open(&dir).unwrap();
    let run = |local_attention: u64| {
        let mut config = read_json(&dir.join("config.json"));
        config["local_attention"] = local_attention.into();
        let architecture = parse_config(&config, &|_| true).unwrap();
        let encoder = simd::load(Isa::best(), &architecture, &weights).unwrap();
        let batch = Batch::of(&sequences(&[33, 1, 64], encoder.vocab_size()));
        Machine::new(1).run(&encoder, &batch, Rows::All)
    };
    let expected = run(1000);
    for local_attention in [u64::MAX - 1, u64::MAX, 1 << 63] {
        assert!(run(local_attention) == expected, "local_attention {local_attention}");
    }
}
