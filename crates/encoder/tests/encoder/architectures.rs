//! Every part of a spec against the plain f64 encoder, in sizes that fit no tile; and that the comparison would see each
//! part done wrong.

use simile_encoder::spec::{AttentionPosition, EncoderSpec, Norm, NormPlacement, Positions, RopeScaling};
use simile_encoder::{Architecture, Context};
use simile_encoder::{Encoder, EncoderInput, Flow, Rows, Teamwork, Weights, simd};
use simile_kernels::{Activation, Isa};

use crate::reference::{Reference, difference};
use crate::run::{Batch, Machine, sequences};
use crate::variants::{VOCAB, variant, variants, write};

/// Of a row's largest component. f32 rounding through three layers is about 1e-6.
const TOLERANCE: f64 = 1e-5;

const LENGTHS: [usize; 7] = [1, 2, 12, 13, 33, 70, 130];

pub fn load(isa: Isa, architecture: &Architecture, dir: &std::path::Path) -> Box<dyn Encoder> {
    Box::new(simd::load(isa, architecture, &Weights::open(dir).unwrap()).unwrap_or_else(|error| panic!("{error}")))
}

/// The largest difference of any row.
fn off(ours: &[Vec<Vec<f32>>], theirs: &[Vec<Vec<f64>>]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let rows = ours.iter().flatten().zip(theirs.iter().flatten());
    rows.map(|(ours, theirs)| difference(ours, theirs)).fold(0.0, f64::max)
}

/// Texts in which the padding token of [`variants`] occurs.
fn texts() -> Vec<Vec<u32>> {
    let mut texts = sequences(&LENGTHS, VOCAB);
    texts[3][5] = 1;
    texts
}

#[test]
fn every_architecture_gives_the_reference_s_numbers() {
    let texts = texts();
    let mut failures = Vec::new();
    for variant in variants() {
        let dir = write(&variant.architecture);
        let reference = Reference::new(variant.architecture.clone(), dir.path());
        let theirs: Vec<_> = texts.iter().map(|ids| reference.forward(ids, &[])).collect();
        for isa in Isa::available() {
            let encoder = load(isa, &variant.architecture, dir.path());
            for threads in [1, 3] {
                let ours = Machine::new(threads).run(&*encoder, &Batch::of(&texts), Rows::All);
                let off = off(&ours, &theirs);
                if off > TOLERANCE {
                    failures.push(format!("{}, {}, {threads} threads: off by {off:e}", variant.name, isa.name()));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_first_token_s_attention_is_the_last_layer_s_mean_over_heads() {
    let texts = texts();
    let mut failures = Vec::new();
    for variant in variants() {
        let dir = write(&variant.architecture);
        let reference = Reference::new(variant.architecture.clone(), dir.path());
        for isa in Isa::available() {
            let encoder = load(isa, &variant.architecture, dir.path());
            for threads in [1, 3] {
                let mut machine = Machine::new(threads);
                let batch = Batch::of(&texts);
                let input: EncoderInput<'_> = batch.input();
                let mut ctx =
                    Context { pool: &machine.pool, scratch: &mut machine.scratch, checkpoint: &|| Flow::Continue };
                let mut ours = &encoder.first_token_attention(&input, &mut ctx).unwrap()[..];
                for ids in &texts {
                    let (own, rest) = ours.split_at(ids.len());
                    let off = difference(own, &reference.first_token_attention(ids));
                    let sum: f32 = own.iter().sum();
                    if off > TOLERANCE || (sum - 1.0).abs() > 1e-5 {
                        let (name, length) = (variant.name, ids.len());
                        failures.push(format!("{name}, {}, {length} tokens: off by {off:e}, sum {sum}", isa.name()));
                    }
                    ours = rest;
                }
                assert!(ours.is_empty());
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A spec made wrong in one place.
type Mutation = fn(&mut EncoderSpec);

fn rope_of(spec: &mut EncoderSpec, layer: usize, change: impl Fn(&mut simile_encoder::spec::Rope)) {
    match &mut spec.layers[layer].attention.position {
        AttentionPosition::Rope(rope) => change(rope),
        other => panic!("{other:?}"),
    }
}

fn epsilon(norm: &mut Norm) {
    match norm {
        Norm::LayerNorm { epsilon, .. } | Norm::RmsNorm { epsilon, .. } => *epsilon = 1e-5,
    }
}

/// What the numbers above would not show if they were too lenient.
#[test]
fn a_part_done_wrong_is_far_from_the_reference() {
    let mutations: [(&str, &str, Mutation); 20] = [
        ("ModernBert", "window one wider", |spec| spec.layers[1].attention.window = Some(5)),
        ("ModernBert", "window one narrower", |spec| spec.layers[2].attention.window = Some(3)),
        ("ModernBert", "no window", |spec| spec.layers[1].attention.window = None),
        ("ModernBert", "local theta everywhere", |spec| rope_of(spec, 0, |rope| rope.theta = 100.0)),
        ("ModernBert", "tanh gelu", |spec| spec.layers[1].mlp.activation = Activation::GeluTanh),
        ("ModernBert", "epsilon", |spec| epsilon(&mut spec.layers[1].norm)),
        ("ModernBert", "epsilon of the final norm", |spec| epsilon(spec.final_norm.as_mut().unwrap())),
        ("Qwen3", "not causal", |spec| spec.layers[0].attention.causal = false),
        ("Qwen3", "theta", |spec| rope_of(spec, 2, |rope| rope.theta = 9_000.0)),
        ("Qwen3", "epsilon", |spec| epsilon(&mut spec.layers[2].norm)),
        ("Qwen3", "silu for gelu", |spec| spec.layers[0].mlp.activation = Activation::Gelu),
        ("Gemma 3", "causal", |spec| spec.layers[0].attention.causal = true),
        ("Gemma 3", "scale of the scores", |spec| spec.layers[1].attention.scale = 0.25),
        ("Gemma 3", "scale of the words", |spec| spec.embeddings.scale = 1.0),
        ("Gemma 3", "offset of the weights", |spec| {
            spec.layers[1].norm = Norm::RmsNorm { epsilon: 0.01, offset: 0.9 };
        }),
        ("JinaBert with norms of q and k", "one residual", |spec| {
            spec.layers[1].placement = NormPlacement::Post { twice: false };
        }),
        ("GteNew", "no scaling", |spec| rope_of(spec, 1, |rope| rope.scaling = RopeScaling::None)),
        ("NomicBert", "no scaling", |spec| rope_of(spec, 1, |rope| rope.scaling = RopeScaling::None)),
        ("MPNet", "distances", |spec| {
            spec.layers[1].attention.position = AttentionPosition::RelativeBias { buckets: 32, max_distance: 128 };
        }),
        ("JinaBert", "no slopes", |spec| spec.layers[2].attention.position = AttentionPosition::None),
    ];
    let texts = texts();
    let mut failures = Vec::new();
    for (name, what, mutate) in mutations {
        let architecture = variant(name).architecture;
        let dir = write(&architecture);
        let mut wrong = architecture.clone();
        mutate(&mut wrong.spec);
        assert_ne!(wrong.spec, architecture.spec, "{name}, {what}");
        let reference = Reference::new(wrong, dir.path());
        let theirs: Vec<_> = texts.iter().map(|ids| reference.forward(ids, &[])).collect();
        let encoder = load(Isa::best(), &architecture, dir.path());
        let ours = Machine::new(1).run(&*encoder, &Batch::of(&texts), Rows::All);
        let off = off(&ours, &theirs);
        if off < 10.0 * TOLERANCE {
            failures.push(format!("{name}, {what}: only off by {off:e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Alone on several threads a short one goes by columns, a long one by rows; together they are a team's or make groups.
const SHARED: [usize; 7] = [140, 1, 13, 12, 64, 33, 3];

/// Numbers of threads, and whether they may work together: fewer than `determinism.rs` has, for many more models.
const WAYS: [(usize, Teamwork); 4] =
    [(2, Teamwork::Always), (3, Teamwork::Always), (7, Teamwork::Always), (3, Teamwork::Never)];

#[test]
fn every_architecture_has_the_same_bytes_in_any_company_on_any_number_of_threads() {
    let texts = sequences(&SHARED, VOCAB);
    let mut failures = Vec::new();
    for variant in variants() {
        let dir = write(&variant.architecture);
        for isa in Isa::available() {
            let encoder = load(isa, &variant.architecture, dir.path());
            let mut one = Machine::new(1);
            let alone: Vec<_> = texts
                .iter()
                .map(|ids| one.run(&*encoder, &Batch::of(std::slice::from_ref(ids)), Rows::All).remove(0))
                .collect();
            for (threads, teamwork) in WAYS {
                let mut machine = Machine::new(threads);
                machine.scratch.set_teamwork(teamwork);
                let orders: [&[usize]; 4] = [&[6, 5, 4, 3, 2, 1, 0], &[0], &[2, 1], &[4]];
                for (order, rows) in
                    orders.iter().flat_map(|order| [Rows::All, Rows::First, Rows::Last].map(|rows| (order, rows)))
                {
                    let batch: Vec<Vec<u32>> = order.iter().map(|&i| texts[i].clone()).collect();
                    let result = machine.run(&*encoder, &Batch::of(&batch), rows);
                    for (&i, got) in order.iter().zip(&result) {
                        let expected = match rows {
                            Rows::All => &alone[i][..],
                            Rows::First => &alone[i][..1],
                            Rows::Last => &alone[i][alone[i].len() - 1..],
                        };
                        if got != expected {
                            let what = format!("{}, {}, {threads} threads, {teamwork:?}", variant.name, isa.name());
                            failures.push(format!("{what}, {rows:?}: {} tokens among {order:?}", SHARED[i]));
                        }
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_first_token_s_attention_has_the_same_bytes_on_any_number_of_threads() {
    let texts = sequences(&SHARED, VOCAB);
    let mut failures = Vec::new();
    for variant in variants() {
        let dir = write(&variant.architecture);
        let encoder = load(Isa::best(), &variant.architecture, dir.path());
        let weights = |machine: &mut Machine, texts: &[Vec<u32>]| {
            let batch = Batch::of(texts);
            let (pool, scratch) = (&machine.pool, &mut machine.scratch);
            let mut ctx = Context { pool, scratch, checkpoint: &|| Flow::Continue };
            encoder.first_token_attention(&batch.input(), &mut ctx).unwrap()
        };
        let mut one = Machine::new(1);
        let alone: Vec<f32> = texts.iter().flat_map(|ids| weights(&mut one, std::slice::from_ref(ids))).collect();
        for (threads, teamwork) in WAYS {
            let mut machine = Machine::new(threads);
            machine.scratch.set_teamwork(teamwork);
            if weights(&mut machine, &texts) != alone {
                failures.push(format!("{}, {threads} threads, {teamwork:?}", variant.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// No S x S matrix: 8,192 x 8,192 scores of one head would be 268 MB. Activations are a few rows for each token.
#[test]
fn memory_of_a_long_text_grows_with_its_length() {
    for name in ["BERT", "ModernBert", "Qwen3", "JinaBert"] {
        let mut architecture = variant(name).architecture;
        let spec = &mut architecture.spec;
        (spec.max_positions, spec.layers) = (4096, vec![spec.layers[1].clone()]);
        if let Positions::Absolute { table } = &mut spec.embeddings.positions {
            *table = 4096;
        }
        let dir = write(&architecture);
        let encoder = load(Isa::best(), &architecture, dir.path());
        let peak = |length: usize| {
            let mut machine = Machine::new(2);
            machine.run(&*encoder, &Batch::of(&sequences(&[length], VOCAB)), Rows::First);
            machine.scratch.peak_bytes()
        };
        let (half, whole) = (peak(2048), peak(4096));
        assert!(whole < 5 * half / 2, "{name}: {half} bytes for 2,048 tokens, {whole} for 4,096");
        assert!(whole < 4096 * 4096 * 4 / 2, "{name}: {whole} bytes for 4,096 tokens");
    }
}
