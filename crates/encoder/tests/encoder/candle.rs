//! The candle executor on the CPU: the arithmetic that CUDA and Metal run.

use std::sync::atomic::{AtomicUsize, Ordering};

use simile_encoder::spec::{AttentionPosition, AttentionSpec};
use simile_encoder::{
    Architecture, Context, Device, EncodeError, Encoder, Flow, LoadError, Precision, Rows, Weights, candle,
    load_candle, load_simd,
};
use simile_kernels::Isa;
use tempfile::TempDir;

use crate::architectures;
use crate::golden::{CHECKPOINTS, TOLERANCE};
use crate::models::{Random, read_json, tiny};
use crate::reference::{Reference, difference};
use crate::run::{Batch, Machine, sequences};
use crate::variants::{VOCAB, variant, variants, write};

fn open(architecture: &Architecture, dir: &TempDir, precision: Precision) -> Box<dyn Encoder> {
    let weights = Weights::open(dir.path()).unwrap();
    candle::load(Device::Cpu, precision, Isa::best(), architecture, &weights).unwrap()
}

fn plain() -> (Architecture, TempDir) {
    let architecture = variant("BERT").architecture;
    let dir = write(&architecture);
    (architecture, dir)
}

/// The largest difference of any row, of the row's largest component.
fn off<T: Copy + Into<f64>>(ours: &[Vec<Vec<f32>>], theirs: &[Vec<Vec<T>>]) -> f64 {
    let lengths = |len: &dyn Fn(usize) -> usize, count: usize| (0..count).map(len).collect::<Vec<_>>();
    assert_eq!(lengths(&|i| ours[i].len(), ours.len()), lengths(&|i| theirs[i].len(), theirs.len()));
    let rows = ours.iter().flatten().zip(theirs.iter().flatten());
    rows.map(|(ours, theirs)| {
        let theirs: Vec<f64> = theirs.iter().map(|&value| value.into()).collect();
        difference(ours, &theirs)
    })
    .fold(0.0, f64::max)
}

#[test]
fn tiny_checkpoints_give_the_vectors_of_their_references() {
    let mut failures = Vec::new();
    for (name, pooling) in CHECKPOINTS {
        let dir = tiny(name);
        let (golden, config) = (read_json(&dir.join("golden.json")), read_json(&dir.join("config.json")));
        let ids: Vec<Vec<u32>> = serde_json::from_value(golden["ids"].clone()).unwrap();
        let raw: Vec<Vec<f64>> = serde_json::from_value(golden["raw"].clone()).unwrap();
        let encoder = load_candle(Device::Cpu, Precision::F32, Isa::best(), &config, &dir).unwrap();
        let mut machine = Machine::new(1);
        let hidden = machine.try_run(&*encoder, &Batch::of(&ids), pooling.rows(), &|| Flow::Continue).unwrap();
        let mut pooled = vec![0.0f32; ids.len() * encoder.hidden_size()];
        hidden.pool(pooling, &mut pooled);
        assert_eq!(raw.len(), ids.len(), "{name}: a vector for each text");
        for (text, (ours, theirs)) in pooled.chunks(encoder.hidden_size()).zip(&raw).enumerate() {
            let off = difference(ours, theirs);
            if off > TOLERANCE {
                failures.push(format!("{name}, text {text}: off by {off:e}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Checkpoints whose own vectors have a head or Dense modules behind the encoder: those are the pipeline's and the same
/// code on every device, so the encoder is compared with the simd executor's, which the pipeline's tests hold to them.
#[test]
fn tiny_checkpoints_with_heads_have_the_simd_executor_s_hidden_states() {
    let names = [
        "tiny-bert-dense",
        "tiny-colbert",
        "tiny-cross-bert",
        "tiny-cross-xlmr",
        "tiny-embeddinggemma",
        "tiny-qwen3-reranker",
        "tiny-splade",
        "tiny-st6-cross-bert",
        "tiny-st6-embeddinggemma",
        "tiny-st6-splade",
    ];
    let mut failures = Vec::new();
    for name in names {
        let dir = tiny(name);
        let config = read_json(&dir.join("config.json"));
        let theirs = load_simd(Isa::best(), &config, &dir).unwrap();
        let ours = load_candle(Device::Cpu, Precision::F32, Isa::best(), &config, &dir).unwrap();
        let batch = Batch::of(&sequences(&[13, 1, 40, 33], theirs.vocab_size()));
        let mut machine = Machine::new(1);
        let expected = machine.run(&*theirs, &batch, Rows::All);
        let off = off(&machine.run(&*ours, &batch, Rows::All), &expected);
        if off > TOLERANCE {
            failures.push(format!("{name}: off by {off:e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_architecture_gives_the_reference_s_numbers_in_any_batch() {
    let mut failures = Vec::new();
    let mut texts = sequences(&[13, 1, 40, 2, 33], VOCAB);
    // The padding token of the variants, in the middle of a text.
    texts[2][5] = 1;
    for variant in variants() {
        let dir = write(&variant.architecture);
        let reference = Reference::new(variant.architecture.clone(), dir.path());
        let encoder = open(&variant.architecture, &dir, Precision::F32);
        let mut machine = Machine::new(1);
        let all: Vec<Vec<Vec<f64>>> = texts.iter().map(|ids| reference.forward(ids, &[])).collect();
        for rows in [Rows::All, Rows::First, Rows::Last] {
            let pick = |states: &Vec<Vec<f64>>| match rows {
                Rows::All => states.clone(),
                Rows::First => vec![states[0].clone()],
                Rows::Last => vec![states[states.len() - 1].clone()],
            };
            let expected: Vec<Vec<Vec<f64>>> = all.iter().map(pick).collect();
            let mut note = |how: &str, off: f64| {
                if off > TOLERANCE {
                    failures.push(format!("{}, rows {rows:?}, {how}: off by {off:e}", variant.name));
                }
            };
            note("one batch", off(&machine.run(&*encoder, &Batch::of(&texts), rows), &expected));
            for (text, expected) in texts.iter().zip(&expected) {
                let alone = machine.run(&*encoder, &Batch::of(std::slice::from_ref(text)), rows);
                note("alone", off(&alone, std::slice::from_ref(expected)));
            }
            let backwards: Vec<Vec<u32>> = texts.iter().rev().cloned().collect();
            let mut turned = machine.run(&*encoder, &Batch::of(&backwards), rows);
            turned.reverse();
            note("the other way round", off(&turned, &expected));
        }
        let batch = Batch::of(&texts);
        let Machine { pool, scratch } = &mut machine;
        let mut context = Context { pool, scratch, checkpoint: &|| Flow::Continue };
        let weights = encoder.first_token_attention(&batch.input(), &mut context).unwrap();
        assert_eq!(weights.len(), batch.ids.len());
        let mut rest = &weights[..];
        for ids in &texts {
            let (own, later) = rest.split_at(ids.len());
            let off = difference(own, &reference.first_token_attention(ids));
            if off > TOLERANCE {
                failures.push(format!("{}, attention of the first of {}: off by {off:e}", variant.name, ids.len()));
            }
            rest = later;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn token_types_are_added() {
    let (architecture, dir) = plain();
    let reference = Reference::new(architecture.clone(), dir.path());
    let texts = sequences(&[7, 1, 30], VOCAB);
    let types: Vec<Vec<u32>> = texts.iter().map(|text| (0..text.len()).map(|i| u32::from(i > 3)).collect()).collect();
    let batch = Batch { types: types.concat(), ..Batch::of(&texts) };
    let ours = Machine::new(1).run(&*open(&architecture, &dir, Precision::F32), &batch, Rows::All);
    let theirs: Vec<_> = texts.iter().zip(&types).map(|(text, types)| reference.forward(text, types)).collect();
    assert!(off(&ours, &theirs) <= TOLERANCE, "off by {:e}", off(&ours, &theirs));
}

/// 2,100 tokens under the 5 heads of these layers are 22 million scores, more than a block holds. The simd executor, which
/// holds no scores, is the reference here: in f64 it would take minutes.
#[test]
fn a_long_text_is_computed_in_blocks() {
    let mut failures = Vec::new();
    type Change = fn(&mut AttentionSpec);
    let kinds: [(&str, Change); 3] = [
        ("ALiBi in a window", |it| (it.position, it.window) = (AttentionPosition::Alibi, Some(64))),
        ("causal, one key head", |it| (it.causal, it.kv_heads) = (true, 1)),
        ("relative bias", |it| it.position = AttentionPosition::RelativeBias { buckets: 32, max_distance: 128 }),
    ];
    for (what, change) in kinds {
        let mut architecture = variant("BERT").architecture;
        let spec = &mut architecture.spec;
        spec.layers.truncate(1);
        let attention = &mut spec.layers[0].attention;
        (attention.heads, attention.kv_heads, attention.head_dim) = (5, 5, 12);
        change(attention);
        (spec.max_positions, spec.embeddings.positions) = (4096, simile_encoder::spec::Positions::None);
        let dir = write(&architecture);
        let batch = Batch::of(&sequences(&[2100, 5], VOCAB));
        let run = |encoder: &dyn Encoder| Machine::new(1).run(encoder, &batch, Rows::All);
        let theirs = run(&*architectures::load(Isa::best(), &architecture, dir.path()));
        let off = off(&run(&*open(&architecture, &dir, Precision::F32)), &theirs);
        if off > TOLERANCE {
            failures.push(format!("{what}: off by {off:e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn tokens_that_are_not_attended_to_change_no_other_row() {
    let (architecture, dir) = plain();
    let encoder = open(&architecture, &dir, Precision::F32);
    let mut machine = Machine::new(1);
    let alone = machine.run(&*encoder, &Batch::of(&[vec![3, 5, 7]]), Rows::All).remove(0);
    let batch = Batch { attended: vec![3, 2], ..Batch::of(&[vec![3, 5, 7, 9, 9], vec![1, 2]]) };
    let rows = machine.run(&*encoder, &batch, Rows::All).remove(0);
    assert!(off(&[rows[..3].to_vec()], &[alone]) <= TOLERANCE);
    assert_ne!(rows[3], rows[4], "they have rows of their own");
}

/// Neither is any row of theirs another than the simd executor's, whose tests hold it to the rule: they see the tokens that
/// are attended to as mask and window allow, else the last of them.
#[test]
fn tokens_that_are_not_attended_to_see_what_they_see_in_the_simd_executor() {
    let mut failures = Vec::new();
    for (causal, window) in [(false, None), (true, None), (false, Some(3)), (true, Some(3)), (false, Some(usize::MAX))]
    {
        let mut architecture = variant("BERT").architecture;
        architecture.spec.layers.iter_mut().for_each(|layer| {
            (layer.attention.causal, layer.attention.window) = (causal, window);
        });
        let dir = write(&architecture);
        let batch = Batch { attended: vec![5, 2, 20, 1], ..Batch::of(&sequences(&[30, 2, 20, 9], VOCAB)) };
        let run = |encoder: &dyn Encoder| Machine::new(1).run(encoder, &batch, Rows::All);
        let theirs = run(&*architectures::load(Isa::best(), &architecture, dir.path()));
        let off = off(&run(&*open(&architecture, &dir, Precision::F32)), &theirs);
        if off > TOLERANCE {
            failures.push(format!("causal {causal}, window {window:?}: off by {off:e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// f16 rounds to 3 digits, bf16 to 2, in every operation of three layers; a wrong one is off by more than the largest
/// component.
#[test]
fn half_precision_is_near_f32() {
    let mut failures = Vec::new();
    for variant in variants() {
        let dir = write(&variant.architecture);
        let batch = Batch::of(&sequences(&[13, 1, 40], VOCAB));
        let run = |precision| Machine::new(1).run(&*open(&variant.architecture, &dir, precision), &batch, Rows::All);
        let expected = run(Precision::F32);
        for (precision, limit) in [(Precision::F16, 0.1), (Precision::Bf16, 0.5)] {
            let off = off(&run(precision), &expected);
            if off > limit || off == 0.0 {
                failures.push(format!("{}, {precision}: off by {off:e}", variant.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_pass_stops_between_two_layers() {
    let mut architecture = variant("BERT").architecture;
    let layer = architecture.spec.layers[0].clone();
    architecture.spec.layers = vec![layer; 4];
    let dir = write(&architecture);
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
    let (architecture, dir) = plain();
    let encoder = open(&architecture, &dir, Precision::F32);
    let mut machine = Machine::new(1);
    assert!(machine.run(&*encoder, &Batch::default(), Rows::All).is_empty());
    let outside = machine.try_run(&*encoder, &Batch::of(&[vec![1, 97]]), Rows::All, &|| Flow::Continue);
    let expected = EncodeError::TokenOutOfRange { sequence: 0, position: 1, id: 97, vocab_size: VOCAB };
    assert_eq!(outside.err(), Some(expected));
}

#[test]
fn weights_that_lack_a_tensor_are_refused_as_by_the_simd_executor() {
    let model = Random::default();
    let dir = model.write_with(|tensors| tensors.retain(|(name, ..)| !name.contains("layer.1.output.dense.bias")));
    let config = read_json(&dir.path().join("config.json"));
    let ours = load_candle(Device::Cpu, Precision::F32, Isa::best(), &config, dir.path()).err().unwrap();
    let theirs = load_simd(Isa::best(), &config, dir.path()).err().unwrap();
    assert_eq!(ours.to_string(), theirs.to_string());
    assert!(matches!(ours, LoadError::Weights(_)), "{ours}");
}

/// A checkpoint of 2^32 words in a file with a hole: as it should be, and refused with figures before a tensor is read.
#[test]
#[cfg(target_os = "linux")]
fn weights_that_cannot_fit_are_refused_before_they_are_read() {
    let (mut architecture, dir) = plain();
    let path = dir.path().join("model.safetensors");
    let file = std::fs::read(&path).unwrap();
    let (length, rest) = file.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let mut header: serde_json::Value = serde_json::from_slice(header).unwrap();
    let words = 1u64 << 32;
    let (start, bytes) = (data.len() as u64, words * architecture.spec.hidden_size as u64 * 4);
    // The small table stays in the file, under a name that nobody reads.
    let table = header.as_object_mut().unwrap().remove(architecture.names.word_embeddings).unwrap();
    header["unread"] = table;
    header[architecture.names.word_embeddings] = serde_json::json!({
        "dtype": "F32", "shape": [words, architecture.spec.hidden_size], "data_offsets": [start, start + bytes],
    });
    let header = header.to_string().into_bytes();
    let written = [&(header.len() as u64).to_le_bytes()[..], &header, data].concat();
    std::fs::write(&path, &written).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(written.len() as u64 + bytes).unwrap();
    architecture.spec.vocab_size = words as usize;
    let weights = Weights::open(dir.path()).unwrap();
    let error = candle::load(Device::Cpu, Precision::F32, Isa::best(), &architecture, &weights).err().unwrap();
    assert!(matches!(error, LoadError::NotEnoughMemory { device: Device::Cpu, .. }), "{error}");
}
