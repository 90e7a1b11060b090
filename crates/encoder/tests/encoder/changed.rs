//! Weights files that change under a model: an error where vectors could be wrong, nothing where the open file stays what
//! it was, and never the end of the process.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use safetensors::Dtype;
use simile_encoder::{
    EncodeError, Encoder, Flow, LoadError, Rows, Weights, WeightsError, load_simd, parse_config, simd,
};
use simile_kernels::Isa;
use tempfile::TempDir;

use crate::models::{Random, read_json};
use crate::run::{Batch, Machine, load, sequences};

const VOCAB: usize = 300;

/// A checkpoint that was written a while ago, as those of users are: a change has another time.
fn checkpoint(dtype: Dtype) -> TempDir {
    let dir = Random { vocab: VOCAB, dtype, ..Random::default() }.write();
    let file = File::options().append(true).open(weights(dir.path())).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    dir
}

fn weights(dir: &Path) -> std::path::PathBuf {
    dir.join("model.safetensors")
}

fn cut_to(path: &Path, part: impl Fn(u64) -> u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(part(file.metadata().unwrap().len())).unwrap();
}

fn overwrite(path: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut content = fs::read(path).unwrap();
    change(&mut content);
    // Writes into the file that is there.
    let mut file = File::options().write(true).truncate(true).open(path).unwrap();
    file.write_all(&content).unwrap();
}

fn replace_by_rename(path: &Path) {
    let fresh = path.with_extension("new");
    fs::write(&fresh, vec![0; fs::metadata(path).unwrap().len() as usize]).unwrap();
    fs::rename(fresh, path).unwrap();
}

/// What is done to the file.
type Change = fn(&Path);

const HARMFUL: [(&str, Change); 5] = [
    ("cut to half", |path| cut_to(path, |bytes| bytes / 2)),
    ("cut to nothing", |path| cut_to(path, |_| 0)),
    ("made longer", |path| cut_to(path, |bytes| bytes + 4096)),
    ("overwritten, same size", |path| {
        overwrite(path, |content| content.iter_mut().rev().take(1000).for_each(|b| *b = 0))
    }),
    ("the same bytes written again", |path| overwrite(path, |_| {})),
];

const HARMLESS: [(&str, Change); 3] = [
    ("deleted", |path| fs::remove_file(path).unwrap()),
    ("replaced by a rename", replace_by_rename),
    ("renamed", |path| fs::rename(path, path.with_extension("old")).unwrap()),
];

/// Batches that one thread computes, that threads share out, and that they compute together.
fn batches() -> [(usize, Batch); 3] {
    let of = |lengths: &[usize]| Batch::of(&sequences(lengths, VOCAB));
    [(1, of(&[7, 3])), (3, of(&[90, 80, 70, 60, 50, 40])), (2, of(&[12]))]
}

fn states(encoder: &dyn Encoder, threads: usize, batch: &Batch) -> Result<Vec<Vec<u32>>, EncodeError> {
    let mut machine = Machine::new(threads);
    let hidden = machine.try_run(encoder, batch, Rows::All, &|| Flow::Continue)?;
    let rows = (0..hidden.sequences()).map(|i| hidden.rows(i).iter().flatten().map(|value| value.to_bits()).collect());
    Ok(rows.collect())
}

#[test]
fn a_file_that_is_changed_in_place_is_an_error_of_every_later_batch() {
    for (name, change) in HARMFUL {
        for (threads, batch) in batches() {
            let dir = checkpoint(Dtype::F32);
            let encoder = load(Isa::best(), dir.path());
            states(&*encoder, threads, &batch).unwrap_or_else(|error| panic!("{name}: {error}"));
            change(&weights(dir.path()));
            for _ in 0..2 {
                let error = states(&*encoder, threads, &batch).expect_err(name);
                assert_eq!(
                    error,
                    EncodeError::WeightsChanged { path: weights(dir.path()) },
                    "{name}, {threads} threads"
                );
                let message = error.to_string();
                assert!(message.contains("model.safetensors changed while"), "{name}: {message}");
                assert!(message.contains("load the model again"), "{name}: {message}");
            }
        }
    }
}

#[test]
fn a_file_that_is_gone_or_replaced_by_another_changes_no_byte() {
    for dtype in [Dtype::F32, Dtype::F16] {
        for (name, change) in HARMLESS {
            for (threads, batch) in batches() {
                let dir = checkpoint(dtype);
                let encoder = load(Isa::best(), dir.path());
                let before = states(&*encoder, threads, &batch).unwrap();
                change(&weights(dir.path()));
                assert_eq!(states(&*encoder, threads, &batch), Ok(before), "{name}, {threads} threads");
            }
        }
    }
}

/// The file was opened, its header read, and then somebody wrote to it.
#[test]
fn a_file_that_is_changed_while_it_is_loaded_is_an_error_of_the_load() {
    for (name, change) in HARMFUL {
        let dir = checkpoint(Dtype::F32);
        let architecture = parse_config(&read_json(&dir.path().join("config.json")), &|_| false).unwrap();
        let opened = Weights::open(dir.path()).unwrap();
        opened.check().unwrap();
        change(&weights(dir.path()));
        let error = simd::load(Isa::best(), &architecture, &opened).err().expect(name);
        assert!(matches!(error, WeightsError::Changed { .. }), "{name}: {error}");
        assert!(matches!(opened.check(), Err(WeightsError::Changed { .. })), "{name}");
    }
    for (name, change) in HARMLESS {
        let dir = checkpoint(Dtype::F32);
        let architecture = parse_config(&read_json(&dir.path().join("config.json")), &|_| false).unwrap();
        let opened = Weights::open(dir.path()).unwrap();
        change(&weights(dir.path()));
        simd::load(Isa::best(), &architecture, &opened).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_changed_file_can_be_loaded_again() {
    let dir = checkpoint(Dtype::F32);
    let encoder = load(Isa::best(), dir.path());
    let (threads, batch) = &batches()[0];
    let before = states(&*encoder, *threads, batch).unwrap();
    overwrite(&weights(dir.path()), |content| content.truncate(content.len() / 2));
    let torn = load_simd(Isa::best(), &read_json(&dir.path().join("config.json")), dir.path()).err();
    assert!(matches!(torn, Some(LoadError::Weights(WeightsError::Truncated { .. }))), "{torn:?}");
    fs::copy(weights(checkpoint(Dtype::F32).path()), weights(dir.path())).unwrap();
    assert!(states(&*encoder, *threads, batch).is_err(), "the old one stays refused");
    assert_eq!(states(&*load(Isa::best(), dir.path()), *threads, batch), Ok(before));
}

/// A mapped file that gets shorter ends the process when it is read (SIGBUS).
#[cfg(target_os = "linux")]
#[test]
fn no_weights_file_is_mapped() {
    let dir = checkpoint(Dtype::F32);
    let encoder = load(Isa::best(), dir.path());
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(dir.path().to_str().unwrap()), "{maps}");
    drop(encoder);
}
