//! Weights that are absent, damaged or foreign: each says what it is and what to do.

use std::path::Path;

use safetensors::Dtype;
use simile_encoder::{LoadError, Weights, WeightsError, load_simd};
use simile_kernels::Isa;
use tempfile::TempDir;

use crate::models::{Entry, Random, read_json, write_file};

fn model() -> Random {
    Random { hidden: 16, heads: 2, intermediate: 24, layers: 1, vocab: 11, positions: 5, ..Random::default() }
}

fn load_error(dir: &Path) -> WeightsError {
    match load_simd(Isa::best(), &read_json(&dir.join("config.json")), dir) {
        Err(LoadError::Weights(error)) => error,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("loaded"),
    }
}

fn open_error(dir: &Path) -> WeightsError {
    Weights::open(dir).err().expect("opened")
}

/// A folder whose `model.safetensors` has these bytes.
fn folder(bytes: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    dir
}

fn says(error: &WeightsError, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

fn good_bytes() -> Vec<u8> {
    let dir = model().write();
    std::fs::read(dir.path().join("model.safetensors")).unwrap()
}

/// A file with this header and this much data.
fn with_header(json: &str, data: usize) -> Vec<u8> {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn nothing_to_open() {
    let dir = tempfile::tempdir().unwrap();
    let error = open_error(dir.path());
    assert!(matches!(error, WeightsError::Missing { .. }), "{error:?}");
    says(&error, &["model.safetensors", "pytorch_model.bin", ".index.json"]);
    let error = open_error(&dir.path().join("absent"));
    assert!(matches!(error, WeightsError::Io { .. }), "{error:?}");
    says(&error, &["absent"]);
}

#[test]
fn only_formats_that_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tf_model.h5"), b"\x89HDF").unwrap();
    let error = open_error(dir.path());
    assert!(matches!(&error, WeightsError::OnlyOtherFormats { found, .. } if found == &["tf_model.h5"]), "{error:?}");
    says(&error, &["tf_model.h5", "safe_serialization", "refs/pr"]);
}

#[test]
fn a_git_lfs_pointer() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:53aa51172d142c89\nsize 90868376\n";
    let error = open_error(folder(pointer.as_bytes()).path());
    assert!(matches!(error, WeightsError::GitLfsPointer { size: Some(90_868_376), .. }), "{error:?}");
    says(&error, &["git lfs pull", "90868376"]);
}

#[test]
fn foreign_files() {
    let cases: [(&[u8], &str); 8] = [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>Rate limited</body></html>", "HTML"),
        (b"\n\n  <html>", "HTML"),
        (b"PK\x03\x04 and a whole archive behind it", "zip"),
        (b"\x80\x02}q\x00(X\x05\x00\x00\x00modelq\x01", "pickle"),
        (b"GGUF\x03\x00\x00\x00\x00\x00\x00\x00", "GGUF"),
        (b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "gzip"),
        (b"{\"error\":\"Repository not found\"}", "JSON"),
    ];
    for (bytes, what) in cases {
        let error = open_error(folder(bytes).path());
        assert!(matches!(error, WeightsError::NotSafetensors { .. }), "{what}: {error:?}");
        says(&error, &[what, "model.safetensors", "again"]);
    }
}

#[test]
fn a_download_that_was_cut_off() {
    let bytes = good_bytes();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for length in [9, header - 1, header, header + 1, bytes.len() / 2, bytes.len() - 1] {
        let error = open_error(folder(&bytes[..length]).path());
        let expected = if length < header { header } else { bytes.len() };
        let WeightsError::Truncated { actual, expected: stated, .. } = error else {
            panic!("{length} bytes: {error:?}");
        };
        assert_eq!((actual, stated), (length as u64, expected as u64), "{length} bytes");
    }
    assert!(matches!(open_error(folder(&bytes[..7]).path()), WeightsError::Damaged { .. }));
}

#[test]
fn headers_that_lie() {
    let entry = |dtype: &str, shape: &str, from: u64, to: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#)
    };
    let huge = u64::MAX;
    let cases = [
        ("not JSON", with_header("{{{{", 0)),
        ("a list", with_header("[1,2,3]", 0)),
        ("not UTF-8", {
            let mut bytes = with_header("{\"aaaa\":1}", 0);
            bytes[10] = 0xff;
            bytes
        }),
        ("a length over the limit", {
            let mut bytes = huge.to_le_bytes().to_vec();
            bytes.extend(b"{}");
            bytes
        }),
        ("shape and bytes differ", with_header(&format!(r#"{{"a":{}}}"#, entry("F32", "[2,2]", 0, 8)), 8)),
        ("a gap", with_header(&format!(r#"{{"a":{}}}"#, entry("F32", "[1]", 4, 8)), 8)),
        ("ends before it starts", with_header(&format!(r#"{{"a":{}}}"#, entry("F32", "[1]", 8, 4)), 8)),
        ("bytes that nobody owns", with_header(&format!(r#"{{"a":{}}}"#, entry("F32", "[1]", 0, 4)), 8)),
        ("an unknown type", with_header(&format!(r#"{{"a":{}}}"#, entry("F33", "[1]", 0, 4)), 4)),
        (
            "a shape that overflows",
            with_header(&format!(r#"{{"a":{}}}"#, entry("F32", &format!("[{huge},{huge}]"), 0, 4)), 4),
        ),
    ];
    for (what, bytes) in cases {
        let error = open_error(folder(&bytes).path());
        assert!(matches!(error, WeightsError::Damaged { .. }), "{what}: {error:?}");
        says(&error, &["model.safetensors", "damaged"]);
    }
    // An end far behind the file is a cut-off download as far as anyone can tell; it must not overflow.
    let far = with_header(&format!(r#"{{"a":{}}}"#, entry("F32", "[1]", huge - 4, huge)), 4);
    assert!(matches!(open_error(folder(&far).path()), WeightsError::Truncated { .. }));
}

#[test]
fn a_name_twice_in_one_header() {
    let entry = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    let error = open_error(folder(&with_header(&format!(r#"{{"a":{entry},"a":{entry}}}"#), 4)).path());
    assert!(matches!(&error, WeightsError::DuplicateTensor { tensor, .. } if tensor == "a"), "{error:?}");
}

#[test]
fn a_tensor_that_is_missing_or_there_twice() {
    let name = "encoder.layer.0.output.dense.bias";
    let dir = model().write_with(|entries| entries.retain(|(entry, ..)| entry != name));
    let error = load_error(dir.path());
    assert!(matches!(&error, WeightsError::MissingTensor { tried, .. } if tried == &[name]), "{error:?}");
    says(&error, &[name, "more"]);

    let name = "encoder.layer.0.output.LayerNorm.weight";
    let dir = model().write_with(|entries| entries.retain(|(entry, ..)| entry != name));
    says(&load_error(dir.path()), &["LayerNorm.weight or encoder.layer.0.output.LayerNorm.gamma"]);

    let again = |from: &'static str, to: &'static str| {
        move |entries: &mut Vec<Entry>| {
            let (_, shape, values) = entries.iter().find(|(entry, ..)| entry == from).unwrap().clone();
            entries.push((to.to_owned(), shape, values));
        }
    };
    let twice = [
        (name, "encoder.layer.0.output.LayerNorm.gamma"),
        ("embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight"),
    ];
    for (first, second) in twice {
        let error = load_error(model().write_with(again(first, second)).path());
        assert!(matches!(error, WeightsError::DuplicateTensor { .. }), "{error:?}");
        says(&error, &[first, second]);
    }

    let dir = model().write_with(Vec::clear);
    says(&load_error(dir.path()), &["embeddings.word_embeddings.weight or bert.embeddings", "no tensors at all"]);
}

#[test]
fn a_tensor_of_another_shape() {
    let cases = [
        ("embeddings.word_embeddings.weight", vec![12, 16], "[11, 16]"),
        ("embeddings.position_embeddings.weight", vec![16, 5], "[5, 16]"),
        ("embeddings.LayerNorm.bias", vec![15], "[16]"),
        ("encoder.layer.0.attention.self.query.weight", vec![16, 17], "[16, 16]"),
        ("encoder.layer.0.attention.self.value.bias", vec![1, 16], "[16]"),
        ("encoder.layer.0.intermediate.dense.weight", vec![16, 24], "[24, 16]"),
    ];
    for (name, shape, expected) in cases {
        let change = |entries: &mut Vec<Entry>| {
            let entry = entries.iter_mut().find(|(entry, ..)| entry == name).unwrap();
            entry.1 = shape.clone();
            entry.2.resize(shape.iter().product(), 0.5);
        };
        let error = load_error(model().write_with(change).path());
        assert!(
            matches!(&error, WeightsError::Shape { tensor, actual, .. } if tensor == name && actual == &shape),
            "{name}: {error:?}"
        );
        says(&error, &[name, expected, &format!("{shape:?}")]);
    }
}

#[test]
fn weights_that_are_not_finite() {
    let names: Vec<String> = model().tensors().into_iter().map(|(name, ..)| name).collect();
    for (i, name) in names.iter().enumerate() {
        let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][i % 3];
        let mut at = 0;
        let dir = model().write_with(|entries| {
            let values = &mut entries[i].2;
            at = values.len() * 2 / 3;
            values[at] = value;
        });
        let error = load_error(dir.path());
        assert!(
            matches!(&error, WeightsError::NonFinite { tensor, index, .. } if tensor == name && *index == at),
            "{name}[{at}] = {value}: {error:?}"
        );
        says(&error, &[name, &value.to_string(), &at.to_string()]);
    }
}

#[test]
fn a_type_that_is_not_read() {
    let dir = model().write();
    let path = dir.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(13).position(|window| window == b"\"dtype\":\"F32\"").unwrap();
    bytes[at..at + 13].copy_from_slice(b"\"dtype\":\"I32\"");
    std::fs::write(&path, bytes).unwrap();
    let error = load_error(dir.path());
    assert!(matches!(&error, WeightsError::Dtype { actual, .. } if actual == "I32"), "{error:?}");
    says(&error, &["I32", "F32, F16, BF16"]);
}

#[test]
fn tensors_that_no_encoder_reads_are_ignored() {
    let dir = model().write_with(|entries| {
        entries.push(("pooler.dense.weight".to_owned(), vec![2], vec![f32::NAN; 2]));
        entries.push(("cls.predictions.bias".to_owned(), vec![3], vec![f32::INFINITY; 3]));
        entries.push(("embeddings.position_ids".to_owned(), vec![1, 5], vec![0.0; 5]));
    });
    assert!(load_simd(Isa::best(), &read_json(&dir.path().join("config.json")), dir.path()).is_ok());
}

#[test]
fn a_single_file_wins_over_shards() {
    let dir = model().write();
    std::fs::write(dir.path().join("model.safetensors.index.json"), "nonsense").unwrap();
    assert!(Weights::open(dir.path()).is_ok());
}

#[test]
fn shards_that_are_wrong() {
    let sharded = || Random { shards: 3, ..model() }.write();
    let index = "model.safetensors.index.json";

    let dir = sharded();
    std::fs::remove_file(dir.path().join("model-00002-of-00003.safetensors")).unwrap();
    let error = open_error(dir.path());
    assert!(matches!(error, WeightsError::MissingShard { .. }), "{error:?}");
    says(&error, &["model-00002-of-00003.safetensors", index, "incomplete"]);

    let cases = [
        ("{", "JSON"),
        ("{}", "weight_map"),
        (r#"{"weight_map":[]}"#, "weight_map"),
        (r#"{"weight_map":{}}"#, "empty"),
        (r#"{"weight_map":{"a":7}}"#, "not a string"),
        (r#"{"weight_map":{"a":"../../etc/passwd"}}"#, "plain file name"),
        (r#"{"weight_map":{"a":"C:\\model.safetensors"}}"#, "plain file name"),
        (r#"{"weight_map":{"a":""}}"#, "plain file name"),
    ];
    for (json, what) in cases {
        let dir = sharded();
        std::fs::write(dir.path().join(index), json).unwrap();
        let error = open_error(dir.path());
        assert!(matches!(error, WeightsError::Index { .. }), "{json}: {error:?}");
        says(&error, &[index, what]);
    }

    let dir = sharded();
    let extra = [("embeddings.LayerNorm.bias".to_owned(), vec![1], vec![0.0])];
    write_file(&dir.path().join("model-00003-of-00003.safetensors"), &extra, Dtype::F32);
    let error = open_error(dir.path());
    assert!(matches!(error, WeightsError::DuplicateTensor { .. }), "{error:?}");
    says(&error, &["embeddings.LayerNorm.bias", "model-00001", "model-00003"]);
}

#[test]
fn one_file_can_be_opened_by_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    write_file(&path, &[("linear.weight".to_owned(), vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])], Dtype::F16);
    let weights = Weights::open_file(&path).unwrap();
    assert_eq!(weights.names(), ["linear.weight"]);
    let tensor = weights.tensor("linear.weight").unwrap().shaped(&[2, 3]).unwrap();
    assert_eq!(tensor.to_vec().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert!(weights.get("linear.bias").is_none());
}

/// A header of 60 bytes must not keep the loader busy for hours.
#[test]
fn a_table_of_a_million_million_empty_rows_takes_no_time() {
    let json = r#"{"table":{"dtype":"F32","shape":[1000000000000,0],"data_offsets":[0,0]}}"#;
    let dir = folder(&with_header(json, 0));
    let table = Weights::open(dir.path()).unwrap().tensor("table").unwrap().into_table().unwrap();
    assert_eq!((table.rows(), table.width()), (1_000_000_000_000, 0));
}

#[test]
fn sizes_of_another_model_are_named_before_memory_is_asked_for() {
    let cases = [
        ("hidden_size", 1u64 << 40, "embeddings.word_embeddings.weight"),
        ("vocab_size", 1 << 40, "embeddings.word_embeddings.weight"),
        ("intermediate_size", 1 << 40, "encoder.layer.0.intermediate.dense.weight"),
        ("num_hidden_layers", 1000, "encoder.layer."),
    ];
    for (key, value, tensor) in cases {
        let dir = model().write();
        let path = dir.path().join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config[key] = value.into();
        std::fs::write(&path, config.to_string()).unwrap();
        says(&load_error(dir.path()), &[tensor]);
    }
}

#[test]
fn layers_that_would_not_be_computed_are_an_error() {
    let dir = model().write_with(|entries| {
        let more: Vec<Entry> =
            entries.iter().filter(|(name, ..)| name.starts_with("encoder.layer.0.")).cloned().collect();
        let number = (0..).find(|n| entries.iter().all(|(name, ..)| !name.contains(&format!("layer.{n}.")))).unwrap();
        entries.extend(
            more.into_iter()
                .map(|(name, shape, values)| (name.replace("layer.0.", &format!("layer.{number}.")), shape, values)),
        );
    });
    says(&load_error(dir.path()), &["num_hidden_layers", "self.query.weight"]);
}

#[test]
fn a_static_table_that_is_no_matrix_says_what_it_should_be() {
    for (shape, actual) in
        [(vec![6], "[6]"), (vec![2, 3, 1], "[2, 3, 1]"), (vec![0, 3], "[0, 3]"), (vec![3, 0], "[3, 0]")]
    {
        let dir = tempfile::tempdir().unwrap();
        let values = vec![0.5; shape.iter().product()];
        let entries = [("embeddings".to_owned(), shape, values)];
        crate::models::write_file(&dir.path().join("model.safetensors"), &entries, safetensors::Dtype::F32);
        let error = simile_encoder::StaticEmbedding::load(dir.path()).err().unwrap().to_string();
        assert!(error.contains(actual) && error.contains("a matrix [rows, width]"), "{error}");
        assert!(!error.contains("config.json"), "{error}");
    }
}
