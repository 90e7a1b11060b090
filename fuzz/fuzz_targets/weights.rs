//! Weights files of any content: an error or a model, never a panic, a read outside the file or an endless allocation.
//!
//! An input is `[flags, length (2 bytes)]`, then text that becomes the header, then 0xff and the bytes of the data, which
//! are repeated up to `length`. Flags: 1 the input is the whole file, 2 it is `model.safetensors.index.json`, 4 the length
//! field is off by a few bytes.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use simile_encoder::{
    Architecture, Context, Encoder, EncoderInput, Flow, Pooling, Scratch, Weights, WeightsError, parse_config, simd,
};
use simile_fuzz::{bert_config, folder, parts};
use simile_kernels::{Isa, ThreadPool};
use tempfile::TempDir;

struct Place {
    folder: TempDir,
    sharded: TempDir,
    architecture: Architecture,
    pool: ThreadPool,
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let sharded = folder();
        for (shard, tensor) in [("a.safetensors", "a"), ("b.safetensors", "b")] {
            let header = format!(r#"{{"{tensor}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
            fs::write(sharded.path().join(shard), file(header.len() as u64, header.as_bytes(), &[0; 4])).unwrap();
        }
        Place {
            folder: folder(),
            sharded,
            architecture: parse_config(&bert_config(8), &|_| false).unwrap(),
            pool: ThreadPool::new(1),
        }
    })
}

fn file(length: u64, header: &[u8], data: &[u8]) -> Vec<u8> {
    [&length.to_le_bytes(), header, data].concat()
}

fuzz_target!(|data: &[u8]| {
    let Some((&[flags, low, high], rest)) = data.split_first_chunk::<3>() else { return };
    let place = place();
    if flags & 2 != 0 {
        fs::write(place.sharded.path().join("model.safetensors.index.json"), rest).unwrap();
        return look(Weights::open(place.sharded.path()), place.sharded.path());
    }
    let content = if flags & 1 != 0 {
        rest.to_vec()
    } else {
        let mut parts = parts(rest);
        let header = parts.next().unwrap_or_default();
        let pattern = parts.next().filter(|pattern| !pattern.is_empty()).unwrap_or(&[0, 0, 0, 63]);
        let length = usize::from(u16::from_le_bytes([low, high]));
        let data: Vec<u8> = pattern.iter().copied().cycle().take(length).collect();
        let off = if flags & 4 != 0 { u64::from(flags >> 3) } else { 0 };
        file((header.len() as u64).wrapping_sub(off), header, &data)
    };
    fs::write(place.folder.path().join("model.safetensors"), content).unwrap();
    look(Weights::open(place.folder.path()), place.folder.path());
});

/// Does with a file all that can be done.
fn look(weights: Result<Weights, WeightsError>, folder: &Path) {
    let weights = match weights {
        Ok(weights) => weights,
        Err(error) => return assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}"),
    };
    for name in weights.names() {
        let tensor = weights.tensor(name).unwrap();
        assert_eq!(tensor.name(), name);
        if let Ok(values) = tensor.to_vec() {
            assert_eq!(values.len(), tensor.elements());
            assert!(values.iter().all(|value| value.is_finite()));
        }
        let _ = tensor.into_table();
    }
    let place = place();
    let Ok(encoder) = simd::load(Isa::best(), &place.architecture, &weights) else { return };
    let batch = EncoderInput { input_ids: &[1, 7, 2], token_type_ids: &[], lengths: &[3], attended: &[] };
    let mut scratch = Scratch::new();
    let mut context = Context { pool: &place.pool, scratch: &mut scratch, checkpoint: &|| Flow::Continue };
    let hidden = encoder.forward(&batch, Pooling::Mean.rows(), &mut context).unwrap();
    hidden.pool(Pooling::Mean, &mut [0.0; 4]);
}
