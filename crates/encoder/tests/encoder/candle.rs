//! The candle executor on the CPU: the arithmetic that CUDA and Metal run. It shares nothing with the simd executor but
//! the spec and the files, so each is the other's check at sizes and specs that no checkpoint has; what both of them
//! could have wrong is caught by the checkpoints.

use std::sync::atomic::{AtomicUsize, Ordering};

use simile_encoder::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, QkNorm, Rope, RopeScaling,
};
use simile_encoder::{
    Architecture, Context, Device, EncodeError, Encoder, Flow, LoadError, Precision, Rows, Weights, candle,
    load_candle, simd,
};
use simile_kernels::{Activation, Isa};
use tempfile::TempDir;

use crate::models::{Random, read_json};
use crate::random_spec::{LAYER_NORM, RMS_NORM, layer, spec, write};
use crate::reference::{Reference, difference};
use crate::run::{Batch, Machine, sequences};

/// Of a row's largest component.
const TOLERANCE: f64 = 1e-5;

fn rope(scaling: RopeScaling) -> AttentionPosition {
    AttentionPosition::Rope(Rope { theta: 100.0, scaling })
}

/// The layer of all specs below with another attention.
fn attending(change: impl FnOnce(&mut AttentionSpec)) -> LayerSpec {
    let mut layer = layer();
    change(&mut layer.attention);
    layer
}

fn with_mlp(kind: MlpKind, activation: Activation) -> LayerSpec {
    LayerSpec { mlp: MlpSpec { kind, activation, intermediate_size: 100 }, ..layer() }
}

/// Every value of every enum of a spec, in two layers.
fn specs() -> Vec<(&'static str, EncoderSpec)> {
    let twice = |layer: LayerSpec| spec(vec![layer.clone(), layer]);
    let placed =
        |placement, norm| EncoderSpec { final_norm: Some(norm), ..twice(LayerSpec { placement, norm, ..layer() }) };
    let embedded = |change: fn(&mut EmbeddingSpec)| {
        let mut spec = twice(layer());
        change(&mut spec.embeddings);
        spec
    };
    let gemma = Norm::RmsNorm { epsilon: 1e-6, offset: 1.0 };
    let no_beta = Norm::LayerNorm { epsilon: 0.1, bias: false };
    vec![
        ("post norm", twice(layer())),
        ("input added twice", placed(NormPlacement::Post { attention_residual: 2.0 }, LAYER_NORM)),
        ("pre norm", placed(NormPlacement::Pre { attention_norm: true }, RMS_NORM)),
        ("pre norm, input as it is", placed(NormPlacement::Pre { attention_norm: false }, no_beta)),
        ("sandwich", placed(NormPlacement::Sandwich, gemma)),
        ("scaled words", embedded(|embeddings| embeddings.scale = 7.5)),
        ("no types", embedded(|embeddings| embeddings.token_types = None)),
        ("no norm of embeddings", embedded(|embeddings| embeddings.norm = None)),
        (
            "positions of tokens that are not padding",
            embedded(|embeddings| {
                embeddings.positions = Positions::NonPad { table: 322, pad: 1 };
            }),
        ),
        ("no table of positions", embedded(|embeddings| embeddings.positions = Positions::None)),
        ("rotary", twice(attending(|it| it.position = rope(RopeScaling::None)))),
        ("rotary, NTK", twice(attending(|it| it.position = rope(RopeScaling::Ntk { factor: 3.0 })))),
        (
            "rotary, dynamic NTK by each length",
            twice(attending(|it| {
                it.position = rope(RopeScaling::DynamicNtk { factor: 2.0, trained: 20 });
            })),
        ),
        (
            "two rotations",
            spec(vec![
                attending(|it| it.position = rope(RopeScaling::None)),
                attending(|it| it.position = AttentionPosition::Rope(Rope { theta: 9.0, scaling: RopeScaling::None })),
            ]),
        ),
        ("ALiBi", twice(attending(|it| it.position = AttentionPosition::Alibi))),
        (
            "relative bias",
            twice(attending(|it| {
                it.position = AttentionPosition::RelativeBias { buckets: 8, max_distance: 20 };
            })),
        ),
        ("causal", twice(attending(|it| it.causal = true))),
        ("window", twice(attending(|it| it.window = Some(3)))),
        ("causal window", twice(attending(|it| (it.causal, it.window) = (true, Some(3))))),
        ("window and full", spec(vec![attending(|it| it.window = Some(1)), layer()])),
        ("one key head", twice(attending(|it| it.kv_heads = 1))),
        (
            "grouped keys, rotary, normed by head, head size of its own, own scale",
            twice(attending(|it| {
                (it.heads, it.kv_heads, it.head_dim, it.scale) = (6, 2, 14, 0.1);
                it.position = rope(RopeScaling::None);
                it.qk_norm = Some(QkNorm::PerHead(RMS_NORM));
            })),
        ),
        ("queries and keys normed as a whole", twice(attending(|it| it.qk_norm = Some(QkNorm::AllHeads(LAYER_NORM))))),
        ("gated GELU", twice(with_mlp(MlpKind::Gated, Activation::Gelu))),
        ("gated SiLU", twice(with_mlp(MlpKind::Gated, Activation::Silu))),
        ("gated tanh GELU", twice(with_mlp(MlpKind::Gated, Activation::GeluTanh))),
        ("ReLU", twice(with_mlp(MlpKind::Plain, Activation::Relu))),
        ("tanh", twice(with_mlp(MlpKind::Plain, Activation::Tanh))),
    ]
}

fn open(architecture: &Architecture, dir: &TempDir, precision: Precision) -> Box<dyn Encoder> {
    let weights = Weights::open(dir.path()).unwrap();
    candle::load(Device::Cpu, precision, Isa::best(), architecture, &weights).unwrap()
}

fn open_simd(architecture: &Architecture, dir: &TempDir) -> Box<dyn Encoder> {
    Box::new(simd::load(Isa::best(), architecture, &Weights::open(dir.path()).unwrap()).unwrap())
}

fn largest_difference(ours: &[Vec<Vec<f32>>], theirs: &[Vec<Vec<f32>>]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let rows = ours.iter().zip(theirs).flat_map(|(ours, theirs)| {
        assert_eq!(ours.len(), theirs.len());
        ours.iter().zip(theirs)
    });
    rows.map(|(ours, theirs)| {
        let theirs: Vec<f64> = theirs.iter().map(|&value| f64::from(value)).collect();
        difference(ours, &theirs)
    })
    .fold(0.0, f64::max)
}

#[test]
fn every_spec_gives_the_simd_executor_s_numbers_in_any_batch() {
    let mut failures = Vec::new();
    for (what, spec) in specs() {
        let (architecture, dir) = write(spec);
        let (ours, theirs) = (open(&architecture, &dir, Precision::F32), open_simd(&architecture, &dir));
        let mut machine = Machine::new(1);
        let texts = sequences(&[13, 1, 40, 2, 33], architecture.spec.vocab_size);
        for rows in [Rows::All, Rows::First, Rows::Last] {
            let batch = Batch::of(&texts);
            let expected = machine.run(&*theirs, &batch, rows);
            let mut note = |how: &str, off: f64| {
                if off > TOLERANCE {
                    failures.push(format!("{what}, rows {rows:?}, {how}: off by {off:e}"));
                }
            };
            note("one batch", largest_difference(&machine.run(&*ours, &batch, rows), &expected));
            for (text, expected) in texts.iter().zip(&expected) {
                let alone = machine.run(&*ours, &Batch::of(std::slice::from_ref(text)), rows);
                note("alone", largest_difference(&alone, std::slice::from_ref(expected)));
            }
            let backwards: Vec<Vec<u32>> = texts.iter().rev().cloned().collect();
            let mut turned = machine.run(&*ours, &Batch::of(&backwards), rows);
            turned.reverse();
            note("the other way round", largest_difference(&turned, &expected));
        }
        let weights = |encoder: &dyn Encoder, machine: &mut Machine| {
            let batch = Batch::of(&texts);
            let Machine { pool, scratch } = machine;
            let mut context = Context { pool, scratch, checkpoint: &|| Flow::Continue };
            encoder.first_token_attention(&batch.input(), &mut context).unwrap()
        };
        let (ours, theirs) = (weights(&*ours, &mut machine), weights(&*theirs, &mut machine));
        let off = ours.iter().zip(&theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max);
        if ours.len() != theirs.len() || off > 1e-5 {
            failures.push(format!("{what}, attention of the first token: off by {off:e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Against an encoder in f64, because the simd executor could share a mistake; with token types.
#[test]
fn bert_gives_the_reference_s_numbers() {
    let model = Random { hidden: 60, heads: 5, intermediate: 100, ..Random::default() };
    let dir = model.write();
    let reference = Reference::open(dir.path());
    let config = read_json(&dir.path().join("config.json"));
    let encoder = load_candle(Device::Cpu, Precision::F32, Isa::best(), &config, dir.path()).unwrap();
    let texts = sequences(&[7, 1, 70], model.vocab);
    let types: Vec<Vec<u32>> = texts.iter().map(|text| (0..text.len()).map(|i| u32::from(i > 3)).collect()).collect();
    let batch = Batch { types: types.concat(), ..Batch::of(&texts) };
    let states = Machine::new(1).run(&*encoder, &batch, Rows::All);
    let mut worst = 0f64;
    for ((states, text), types) in states.iter().zip(&texts).zip(&types) {
        for (ours, theirs) in states.iter().zip(&reference.forward(text, types)) {
            worst = worst.max(difference(ours, theirs));
        }
    }
    assert!(worst <= TOLERANCE, "off by {worst:e}");
}

/// 2,100 tokens under 5 heads are 22 million scores, more than a block holds.
#[test]
fn a_long_text_is_computed_in_blocks() {
    let mut failures = Vec::new();
    let kinds: [(&str, fn(&mut AttentionSpec)); 3] = [
        ("ALiBi in a window", |it| (it.position, it.window) = (AttentionPosition::Alibi, Some(64))),
        ("causal, one key head", |it| (it.causal, it.kv_heads) = (true, 1)),
        ("relative bias", |it| it.position = AttentionPosition::RelativeBias { buckets: 32, max_distance: 128 }),
    ];
    for (what, change) in kinds {
        let mut spec = spec(vec![attending(change)]);
        (spec.max_positions, spec.embeddings.positions) = (4096, Positions::None);
        let (architecture, dir) = write(spec);
        let batch = Batch::of(&sequences(&[2100, 5], 97));
        let run = |encoder: &dyn Encoder| Machine::new(1).run(encoder, &batch, Rows::All);
        let theirs = run(&*open_simd(&architecture, &dir));
        let off = largest_difference(&run(&*open(&architecture, &dir, Precision::F32)), &theirs);
        if off > TOLERANCE {
            failures.push(format!("{what}: off by {off:e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn tokens_that_are_not_attended_to_change_no_other_row() {
    let (architecture, dir) = write(spec(vec![layer(), layer()]));
    let encoder = open(&architecture, &dir, Precision::F32);
    let mut machine = Machine::new(1);
    let alone = machine.run(&*encoder, &Batch::of(&[vec![3, 5, 7]]), Rows::All).remove(0);
    let batch = Batch { attended: vec![3, 2], ..Batch::of(&[vec![3, 5, 7, 9, 9], vec![1, 2]]) };
    let rows = machine.run(&*encoder, &batch, Rows::All).remove(0);
    assert!(largest_difference(&[rows[..3].to_vec()], &[alone]) <= TOLERANCE);
    assert_ne!(rows[3], rows[4], "they have rows of their own");
}

/// f16 rounds to 3 digits; what is asked for here is that every operation exists and scores are summed in f32.
#[test]
fn half_precision_is_near_f32() {
    let mut failures = Vec::new();
    for (what, spec) in specs() {
        let (architecture, dir) = write(spec);
        let batch = Batch::of(&sequences(&[13, 1, 40], architecture.spec.vocab_size));
        let run = |precision| Machine::new(1).run(&*open(&architecture, &dir, precision), &batch, Rows::All);
        let expected = run(Precision::F32);
        for (precision, limit) in [(Precision::F16, 0.05), (Precision::Bf16, 0.3)] {
            let off = largest_difference(&run(precision), &expected);
            if off > limit || off == 0.0 {
                failures.push(format!("{what}, {precision}: off by {off:e}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_pass_stops_between_two_layers() {
    let (architecture, dir) = write(spec(vec![layer(); 4]));
    let encoder = open(&architecture, &dir, Precision::F32);
    let asked = AtomicUsize::new(0);
    let checkpoint = || match asked.fetch_add(1, Ordering::Relaxed) {
        1 => Flow::Stop,
        _ => Flow::Continue,
    };
    let stopped = Machine::new(1).try_run(&*encoder, &Batch::of(&[vec![1, 2, 3]]), Rows::All, &checkpoint);
    assert_eq!(stopped.err(), Some(EncodeError::Stopped));
    assert_eq!(asked.into_inner(), 2, "it leaves at the layer at which it is told to");
}

#[test]
fn a_batch_that_does_not_fit_is_refused_and_an_empty_one_is_empty() {
    let (architecture, dir) = write(spec(vec![layer()]));
    let encoder = open(&architecture, &dir, Precision::F32);
    let mut machine = Machine::new(1);
    assert!(machine.run(&*encoder, &Batch::default(), Rows::All).is_empty());
    let outside = machine.try_run(&*encoder, &Batch::of(&[vec![1, 97]]), Rows::All, &|| Flow::Continue);
    let expected = EncodeError::TokenOutOfRange { sequence: 0, position: 1, id: 97, vocab_size: 97 };
    assert_eq!(outside.err(), Some(expected));
}

#[test]
fn weights_that_lack_a_tensor_are_refused_as_by_the_simd_executor() {
    let model = Random::default();
    let dir = model.write_with(|tensors| tensors.retain(|(name, ..)| !name.contains("layer.1.output.dense.bias")));
    let config = read_json(&dir.path().join("config.json"));
    let ours = load_candle(Device::Cpu, Precision::F32, Isa::best(), &config, dir.path()).err().unwrap();
    let theirs = simile_encoder::load_simd(Isa::best(), &config, dir.path()).err().unwrap();
    assert_eq!(ours.to_string(), theirs.to_string());
    assert!(matches!(ours, LoadError::Weights(_)), "{ours}");
}

/// A model of 1,200 values of width that claims 2^52 words: refused with figures before any byte is read.
#[test]
fn weights_that_cannot_fit_are_refused_before_they_are_read() {
    let (mut architecture, dir) = write(spec(vec![layer()]));
    architecture.spec.vocab_size = 1 << 52;
    let weights = Weights::open(dir.path()).unwrap();
    let error = candle::load(Device::Cpu, Precision::F32, Isa::best(), &architecture, &weights).err().unwrap();
    if cfg!(target_os = "linux") {
        assert!(matches!(error, LoadError::NotEnoughMemory { device: Device::Cpu, .. }), "{error}");
    }
}
