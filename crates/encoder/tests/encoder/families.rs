//! A checkpoint of every family in awkward sizes (`tools/make_tiny_families.py`) against the hidden states of another
//! implementation, on every executor.

use std::fs;
use std::path::Path;

use safetensors::Dtype;
use serde::Deserialize;
use simile_encoder::{Encoder, Rows};
use simile_kernels::Isa;
use std::collections::BTreeMap;
use tempfile::TempDir;

use crate::golden::TOLERANCE;
use crate::models::{Entry, read_json, write_file};
use crate::reference::difference;
use crate::run::{Batch, Machine, load};

/// `golden.json`.
#[derive(Deserialize)]
struct Golden {
    tensors: BTreeMap<String, Values>,
    ids: Vec<Vec<u32>>,
    hidden: Vec<Vec<Vec<f64>>>,
}

/// How the values of a tensor are made.
#[derive(Deserialize)]
struct Values {
    shape: Vec<usize>,
    offset: f32,
    scale: f32,
}

impl Values {
    /// Of the tensor `name`: `offset + scale u`, where u comes from splitmix64 seeded with the name's FNV-1a hash.
    fn entry(&self, name: &str) -> Entry {
        let seed = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let value = |i: usize| {
            let x = seed.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let uniform = ((x ^ (x >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            self.offset + self.scale * uniform
        };
        (name.to_owned(), self.shape.clone(), (0..self.shape.iter().product()).map(value).collect())
    }
}

/// Name, folder with weights, and what the reference says.
fn checkpoints() -> Vec<(String, TempDir, Golden)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures/odd");
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.len() >= 18, "{names:?}");
    let open = |path: &Path| {
        let golden: Golden = serde_json::from_value(read_json(&path.join("golden.json"))).unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::copy(path.join("config.json"), dir.path().join("config.json")).unwrap();
        let entries: Vec<Entry> = golden.tensors.iter().map(|(name, values)| values.entry(name)).collect();
        write_file(&dir.path().join("model.safetensors"), &entries, Dtype::F32);
        (path.file_name().unwrap().to_string_lossy().into_owned(), dir, golden)
    };
    names.iter().map(|path| open(path)).collect()
}

/// What is further from the reference than [`TOLERANCE`].
fn compare(what: &str, encoder: &dyn Encoder, golden: &Golden, threads: usize) -> Vec<String> {
    let ours = Machine::new(threads).run(encoder, &Batch::of(&golden.ids), Rows::All);
    let mut failures = Vec::new();
    for (text, (ours, theirs)) in ours.iter().zip(&golden.hidden).enumerate() {
        assert_eq!(ours.len(), theirs.len(), "{what}, text {text}");
        let off = ours.iter().zip(theirs).map(|(ours, theirs)| difference(ours, theirs)).fold(0.0, f64::max);
        if off.is_nan() || off > TOLERANCE {
            failures.push(format!("{what}, text {text}: off by {off:e}"));
        }
    }
    failures
}

#[test]
fn every_family_gives_the_hidden_states_of_its_reference_in_awkward_sizes() {
    let mut failures = Vec::new();
    for (name, dir, golden) in checkpoints() {
        for isa in Isa::available() {
            let encoder = load(isa, dir.path());
            for threads in [1, 3] {
                failures.extend(compare(&format!("{name}, {}", isa.name()), &*encoder, &golden, threads));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[cfg(feature = "candle")]
#[test]
fn every_family_gives_them_on_candle_too() {
    use simile_encoder::{Device, Precision, load_candle};
    let mut failures = Vec::new();
    for (name, dir, golden) in checkpoints() {
        let config = read_json(&dir.path().join("config.json"));
        let encoder = load_candle(Device::Cpu, Precision::F32, Isa::best(), &config, dir.path()).unwrap();
        failures.extend(compare(&name, &*encoder, &golden, 1));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
