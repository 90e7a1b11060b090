//! What the fuzz targets share: the committed checkpoints, folders in memory, a checkpoint of any vocabulary, and inputs
//! of several parts.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use simile_hub::{ModelFiles, Source};
use tempfile::TempDir;

/// The committed checkpoint `name`.
pub fn tiny(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../__test__/fixtures/tiny").join(name)
}

/// A folder in memory where the system has such a place: every input writes files.
pub fn folder() -> TempDir {
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
    tempfile::tempdir_in(place).expect("a temporary folder")
}

/// A folder as the hub would hand it on.
pub fn files(folder: &Path) -> ModelFiles {
    ModelFiles {
        id: folder.display().to_string(),
        revision: None,
        folder: folder.to_path_buf(),
        source: Source::Folder,
    }
}

/// The parts of an input: text may hold anything but 0xff, which no UTF-8 has.
pub fn parts(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    data.split(|byte| *byte == 0xff)
}

/// `config.json` of a BERT of one layer, four values wide.
pub fn bert_config(vocabulary: usize) -> Value {
    json!({
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": 4,
        "intermediate_size": 8,
        "max_position_embeddings": 512,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "type_vocab_size": 2,
        "vocab_size": vocabulary,
    })
}

/// Name and shape of the tensors of [`bert_config`].
pub fn bert_tensors(vocabulary: usize) -> Vec<(String, Vec<usize>)> {
    let mut tensors = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![vocabulary, 4]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![512, 4]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, 4]),
        ("embeddings.LayerNorm.weight".to_owned(), vec![4]),
        ("embeddings.LayerNorm.bias".to_owned(), vec![4]),
    ];
    let linear = [
        ("attention.self.query", 4, 4),
        ("attention.self.key", 4, 4),
        ("attention.self.value", 4, 4),
        ("attention.output.dense", 4, 4),
        ("intermediate.dense", 8, 4),
        ("output.dense", 4, 8),
    ];
    for (name, outputs, inputs) in linear {
        tensors.push((format!("encoder.layer.0.{name}.weight"), vec![outputs, inputs]));
        tensors.push((format!("encoder.layer.0.{name}.bias"), vec![outputs]));
    }
    for name in ["attention.output.LayerNorm", "output.LayerNorm"] {
        tensors.push((format!("encoder.layer.0.{name}.weight"), vec![4]));
        tensors.push((format!("encoder.layer.0.{name}.bias"), vec![4]));
    }
    tensors
}

/// Writes a checkpoint that goes with the tokenizer at `tokenizer`, whatever its vocabulary.
pub fn write_checkpoint(folder: &Path, tokenizer: &Path) {
    let read = tokenizers::Tokenizer::from_file(tokenizer).expect("a tokenizer.json");
    let vocabulary = read.get_vocab(true).values().max().map_or(1, |id| *id as usize + 1);
    fs::copy(tokenizer, folder.join("tokenizer.json")).expect("a writable folder");
    fs::write(folder.join("config.json"), bert_config(vocabulary).to_string()).expect("a writable folder");
    let tensors: Vec<_> = bert_tensors(vocabulary)
        .into_iter()
        .map(|(name, shape)| {
            let count: usize = shape.iter().product();
            let bytes: Vec<u8> = (0..count).flat_map(|i| ((i * 7 % 13) as f32 / 8.0 - 0.7).to_le_bytes()).collect();
            (name, shape, bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor"))
    });
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("a writable folder");
}
