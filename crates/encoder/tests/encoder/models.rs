//! Checkpoints for tests: the committed tiny ones, and random ones of any size in a temporary folder.

use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The committed checkpoint `name`.
pub fn tiny(name: &str) -> PathBuf {
    fixtures().join("tiny").join(name)
}

/// The committed checkpoint `name` of those in odd sizes.
pub fn odd(name: &str) -> PathBuf {
    fixtures().join("odd").join(name)
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures")
}

pub fn read_json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// A BERT of random weights.
#[derive(Clone)]
pub struct Random {
    pub hidden: usize,
    pub heads: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub vocab: usize,
    pub positions: usize,
    pub activation: &'static str,
    pub epsilon: f64,
    pub dtype: Dtype,
    /// Shard files; 1 writes a single `model.safetensors`.
    pub shards: usize,
}

impl Default for Random {
    fn default() -> Self {
        Random {
            hidden: 64,
            heads: 2,
            intermediate: 128,
            layers: 3,
            vocab: 97,
            positions: 320,
            activation: "gelu",
            epsilon: 1e-12,
            dtype: Dtype::F32,
            shards: 1,
        }
    }
}

/// Name, shape and values of a tensor.
pub type Entry = (String, Vec<usize>, Vec<f32>);

impl Random {
    pub fn config(&self) -> Value {
        json!({
            "model_type": "bert",
            "architectures": ["BertModel"],
            "hidden_act": self.activation,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "layer_norm_eps": self.epsilon,
            "max_position_embeddings": self.positions,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "position_embedding_type": "absolute",
            "type_vocab_size": 2,
            "vocab_size": self.vocab,
        })
    }

    pub fn tensors(&self) -> Vec<Entry> {
        let mut random = Rng(0x9e37_79b9_7f4a_7c15);
        let mut entries = Vec::new();
        let (h, f) = (self.hidden, self.intermediate);
        let mut push = |name: String, shape: Vec<usize>, centre: f32, spread: f32| {
            let count = shape.iter().product();
            let values = (0..count).map(|_| centre + spread * random.next()).collect();
            entries.push((name, shape, values));
        };
        push("embeddings.word_embeddings.weight".into(), vec![self.vocab, h], 0.0, 1.0);
        push("embeddings.position_embeddings.weight".into(), vec![self.positions, h], 0.0, 0.5);
        push("embeddings.token_type_embeddings.weight".into(), vec![2, h], 0.0, 0.5);
        push("embeddings.LayerNorm.weight".into(), vec![h], 1.0, 0.3);
        push("embeddings.LayerNorm.bias".into(), vec![h], 0.0, 0.3);
        for layer in 0..self.layers {
            let linear = [
                ("attention.self.query", h, h, 2.5),
                ("attention.self.key", h, h, 2.5),
                ("attention.self.value", h, h, 1.7),
                ("attention.output.dense", h, h, 1.7),
                ("intermediate.dense", f, h, 1.7),
                ("output.dense", h, f, 1.7),
            ];
            for (name, outputs, inputs, gain) in linear {
                let name = format!("encoder.layer.{layer}.{name}");
                push(format!("{name}.weight"), vec![outputs, inputs], 0.0, gain / (inputs as f32).sqrt());
                push(format!("{name}.bias"), vec![outputs], 0.0, 0.2);
            }
            for name in ["attention.output.LayerNorm", "output.LayerNorm"] {
                push(format!("encoder.layer.{layer}.{name}.weight"), vec![h], 1.0, 0.3);
                push(format!("encoder.layer.{layer}.{name}.bias"), vec![h], 0.0, 0.3);
            }
        }
        entries
    }

    /// Writes the checkpoint to a folder that vanishes with the value.
    pub fn write(&self) -> TempDir {
        self.write_with(|_| {})
    }

    /// The same with the tensors changed first.
    pub fn write_with(&self, change: impl FnOnce(&mut Vec<Entry>)) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.json"), self.config().to_string()).unwrap();
        let mut entries = self.tensors();
        change(&mut entries);
        if self.shards == 1 {
            write_file(&dir.path().join("model.safetensors"), &entries, self.dtype);
            return dir;
        }
        let mut map = serde_json::Map::new();
        for (number, shard) in entries.chunks(entries.len().div_ceil(self.shards)).enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", number + 1, self.shards);
            write_file(&dir.path().join(&name), shard, self.dtype);
            map.extend(shard.iter().map(|(tensor, ..)| (tensor.clone(), json!(name))));
        }
        let index = json!({ "metadata": {}, "weight_map": map });
        std::fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        dir
    }
}

/// Writes a safetensors file of one type.
pub fn write_file(path: &Path, entries: &[Entry], dtype: Dtype) {
    let bytes: Vec<Vec<u8>> =
        entries.iter().map(|(_, _, values)| values.iter().flat_map(|&value| stored(value, dtype)).collect()).collect();
    let views = entries
        .iter()
        .zip(&bytes)
        .map(|((name, shape, _), bytes)| (name.clone(), TensorView::new(dtype, shape.clone(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn stored(value: f32, dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F32 => value.to_le_bytes().to_vec(),
        Dtype::BF16 => ((value.to_bits() >> 16) as u16).to_le_bytes().to_vec(),
        Dtype::F16 => to_half(value).to_le_bytes().to_vec(),
        other => panic!("tests do not write {other:?}"),
    }
}

/// Towards zero; small values become subnormals. Enough for weights.
fn to_half(value: f32) -> u16 {
    let sign = ((value.to_bits() >> 16) & 0x8000) as u16;
    let scaled = (f64::from(value.abs()) * 2f64.powi(24)) as u64;
    let magnitude = match scaled {
        0..1024 => scaled as u16,
        _ => {
            let top = 63 - scaled.leading_zeros();
            let mantissa = (scaled >> (top - 10)) & 0x3ff;
            ((top - 9) << 10) as u16 | mantissa as u16
        }
    };
    sign | magnitude
}

/// Uniform in -1..1; xorshift64*, so that a failure is the same everywhere.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() >> 33) as usize % limit
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
