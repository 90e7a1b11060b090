//! PyTorch's files: what `torch.save` wrote of a state dict is read as the same numbers, anything else is refused and never
//! run. The files are made by `tools/make_torch_files.py`.

use std::path::{Path, PathBuf};

use simile_encoder::{Rows, Weights, WeightsError};
use simile_kernels::Isa;

use crate::run::{Batch, Machine, load};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures/torch").join(name)
}

fn open(name: &str) -> Weights {
    Weights::open_file(&file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn refused(path: &Path) -> WeightsError {
    Weights::open_file(path).err().unwrap_or_else(|| panic!("{} was opened", path.display()))
}

/// 0/8, 1/8, … 11/8.
fn weight() -> Vec<f32> {
    (0..12).map(|i| i as f32 / 8.0).collect()
}

#[test]
fn a_state_dict_is_read() {
    for name in ["linear.pt", "parameters.pt"] {
        let weights = open(name);
        assert_eq!(weights.names(), ["bias", "weight"], "{name}");
        let read = weights.tensor("weight").unwrap().shaped(&[3, 4]).unwrap().to_vec().unwrap();
        assert_eq!(read, weight(), "{name}");
        assert_eq!(weights.tensor("bias").unwrap().to_vec().unwrap(), [-1.0, 0.5, 2.0], "{name}");
        weights.check().unwrap();
    }
}

#[test]
fn every_type_and_view_is_read_or_refused_when_it_is_asked_for() {
    let weights = open("kinds.pt");
    let values = |name: &str| weights.tensor(name).unwrap().to_vec();
    let counted = |range: std::ops::Range<u16>| range.map(f32::from).collect::<Vec<_>>();
    let cases = [
        ("half", vec![3, 4], weight()),
        ("bfloat16", vec![3, 4], weight()),
        ("view", vec![3, 4], counted(4..16)),
        ("rest", vec![4], counted(16..20)),
        ("one_row", vec![1, 4], counted(4..8)),
        ("scalar", vec![], vec![2.5]),
        ("empty", vec![0, 4], vec![]),
    ];
    for (name, shape, expected) in cases {
        assert_eq!(weights.tensor(name).unwrap().shape(), shape, "{name}");
        assert_eq!(values(name).unwrap(), expected, "{name}");
    }
    for (name, dtype) in [("double", "F64"), ("long", "I64")] {
        let error = values(name).unwrap_err();
        assert!(matches!(&error, WeightsError::Dtype { actual, .. } if actual == dtype), "{name}: {error:?}");
    }
    for name in ["step", "name"] {
        assert!(weights.get(name).is_none(), "{name} is no tensor");
    }
    let error = open("nan.pt").tensor("weight").unwrap().to_vec().unwrap_err();
    assert!(matches!(error, WeightsError::NonFinite { index: 1, .. }), "{error:?}");
}

#[test]
fn what_is_no_state_dict_is_refused_by_name_and_not_run() {
    let cases = [
        ("runs.pt", "posix.system"),
        ("module.pt", "torch.nn.modules.linear.Linear"),
        ("nested.pt", "state_dict"),
        ("transposed.pt", "strides [1, 4]"),
        ("compressed.pt", "compressed"),
        ("big_endian.pt", "byte order"),
        ("short_storage.pt", "44 bytes"),
        ("no_storage.pt", "data/0"),
        ("no_pickle.pt", "data.pkl"),
        ("legacy.pt", "before version 1.6"),
    ];
    for (name, part) in cases {
        let message = refused(&file(name)).to_string();
        for part in [part, name] {
            assert!(message.contains(part), "{name}: {message:?} does not say {part:?}");
        }
    }
    assert!(matches!(refused(&file("runs.pt")), WeightsError::PickleGlobal { global, .. } if global == "posix.system"));
    assert!(matches!(refused(&file("legacy.pt")), WeightsError::LegacyTorch { .. }));
}

#[test]
fn a_file_that_was_cut_off_or_is_of_another_kind() {
    let bytes = std::fs::read(file("linear.pt")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pytorch_model.bin");
    for length in [4, 100, bytes.len() / 2, bytes.len() - 30, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let error = refused(&path);
        assert!(matches!(error, WeightsError::Damaged { .. }), "{length} bytes: {error:?}");
    }
    let cases: [(&[u8], &str); 5] = [
        (b"", "empty"),
        (b"<html>", "HTML"),
        (b"{\"error\": 1}", "JSON"),
        (b"GGUF\x03\0\0\0\0", "GGUF"),
        (b"\x02\0\0\0\0\0\0\0{}", "not known"),
    ];
    for (bytes, what) in cases {
        std::fs::write(&path, bytes).unwrap();
        let error = refused(&path);
        assert!(matches!(error, WeightsError::NotTorch { .. }), "{what}: {error:?}");
        assert!(error.to_string().contains(what), "{error}");
    }
    // Never unpickled under another name.
    let path = dir.path().join("model.safetensors");
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(refused(&path), WeightsError::NotSafetensors { .. }));
}

#[test]
fn any_changed_byte_is_an_answer_and_not_a_panic() {
    let bytes = std::fs::read(file("linear.pt")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pytorch_model.bin");
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= [0x01, 0x80, 0xff][at % 3];
        std::fs::write(&path, &changed).unwrap();
        if let Ok(weights) = Weights::open_file(&path) {
            for name in weights.names() {
                let _ = weights.tensor(name).unwrap().to_vec();
            }
        }
    }
}

#[test]
fn an_archive_that_two_readers_would_read_differently_is_refused() {
    let bytes = std::fs::read(file("linear.pt")).unwrap();
    let places = |name: &str| -> Vec<usize> {
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(name.as_bytes())).collect()
    };
    let (pickles, versions) = (places("/data.pkl"), places("/version"));
    assert_eq!((pickles.len(), versions.len()), (2, 2), "each name is in a header and in the directory");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pytorch_model.bin");
    let message = |changes: &[(usize, &str)]| {
        let mut changed = bytes.clone();
        for (at, text) in changes {
            changed[*at..][..text.len()].copy_from_slice(text.as_bytes());
        }
        std::fs::write(&path, changed).unwrap();
        refused(&path).to_string()
    };
    let orders = places("linear/byteorder");
    let cases: [(&[(usize, &str)], &str); 4] = [
        (
            &[(orders[0], "another/data.pkl"), (orders[1], "another/data.pkl")],
            "two pickles, another/data.pkl and linear/data.pkl",
        ),
        (&[(versions[0], "/versiom")], "where its data begins"),
        (&[(versions[1], "/versiom")], "where its data begins"),
        (&[(pickles[0], "\x1bdata.pkl"), (pickles[1], "\x1bdata.pkl")], "no <folder>/data.pkl"),
    ];
    for (changes, expected) in cases {
        let message = message(changes);
        assert!(message.contains(expected), "{changes:?}: {message}");
    }
}

#[test]
fn a_model_has_the_same_states_from_either_format() {
    let folder = file("bert");
    let dir = tempfile::tempdir().unwrap();
    for (from, to) in [("config.json", "config.json"), ("same.safetensors", "model.safetensors")] {
        std::fs::copy(folder.join(from), dir.path().join(to)).unwrap();
    }
    let batch = Batch::of(&[vec![1, 2, 3, 4, 5, 6], vec![7], vec![10, 9]]);
    let states = |folder: &Path| Machine::new(1).run(&*load(Isa::best(), folder), &batch, Rows::All);
    assert_eq!(states(&folder), states(dir.path()));
}

#[test]
fn safetensors_win_and_shards_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let put = |from: &str, to: &str| std::fs::copy(file(from), dir.path().join(to)).unwrap();
    let names = || Weights::file_names(dir.path()).unwrap();
    put("nan.pt", "pytorch_model-00002-of-00002.bin");
    put("linear.pt", "pytorch_model-00001-of-00002.bin");
    let index = r#"{"weight_map": {"bias": "pytorch_model-00001-of-00002.bin"}}"#;
    std::fs::write(dir.path().join("pytorch_model.bin.index.json"), index).unwrap();
    assert_eq!(names(), ["pytorch_model-00001-of-00002.bin"]);
    assert_eq!(Weights::open(dir.path()).unwrap().names(), ["bias", "weight"]);
    put("linear.pt", "pytorch_model.bin");
    assert_eq!(names(), ["pytorch_model.bin"]);
    std::fs::write(dir.path().join("model.safetensors"), b"\x02\0\0\0\0\0\0\0{}").unwrap();
    assert_eq!(names(), ["model.safetensors"]);
}
