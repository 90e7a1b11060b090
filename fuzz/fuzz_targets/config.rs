//! Configuration files of any content in a model folder whose tokenizer and weights are sound: an error that says
//! something, or a model that works.
//!
//! An input is the files' texts, with 0xff between them, in the order of [`NAMES`]. An empty part is a file that is not
//! there.
#![no_main]

use std::fs;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use simile_encoder::{Context, Flow, Scratch};
use simile_fuzz::{files, folder, parts, tiny};
use simile_kernels::{Isa, ThreadPool};
use simile_pipeline::{LoadOptions, PipelineError, Role, TextModel};
use tempfile::TempDir;

const NAMES: [&str; 7] = [
    "modules.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "config_sentence_transformers.json",
    "config.json",
];

struct Place {
    folder: TempDir,
    pool: ThreadPool,
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let (folder, from) = (folder(), tiny("tiny-bert-dense"));
        for sub in ["1_Pooling", "2_Dense"] {
            fs::create_dir(folder.path().join(sub)).unwrap();
        }
        for name in ["tokenizer.json", "model.safetensors", "2_Dense/model.safetensors"] {
            fs::copy(from.join(name), folder.path().join(name)).unwrap();
        }
        Place { folder, pool: ThreadPool::new(1) }
    })
}

fuzz_target!(|data: &[u8]| {
    let place = place();
    let mut parts = parts(data);
    for name in NAMES {
        let path = place.folder.path().join(name);
        match parts.next() {
            Some(text) if !text.is_empty() => fs::write(path, text).unwrap(),
            _ => drop(fs::remove_file(path)),
        }
    }
    let model = match TextModel::load(&files(place.folder.path()), &LoadOptions::new(Isa::best())) {
        Ok(model) => model,
        Err(error) => return assert!(error.to_string().len() > 10, "{error}"),
    };
    assert!(model.dimensions() > 0 && model.max_length() <= 64, "{:?}", model.descriptor());
    let mut scratch = Scratch::new();
    for role in [Role::Generic, Role::Query, Role::Passage] {
        let tokens = match model.tokenize(role, None, "hello world of the quick brown fox") {
            Ok(tokens) => tokens,
            Err(PipelineError::InstructionMissing { .. } | PipelineError::TemplateTooLong { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        let mut row = vec![f32::NAN; model.dimensions()];
        let mut context = Context { pool: &place.pool, scratch: &mut scratch, checkpoint: &|| Flow::Continue };
        let outcome = model.encode(&[&tokens.ids], row.len(), &mut [&mut row], &mut context).unwrap();
        if outcome == [Ok(())] {
            assert!(row.iter().all(|value| value.is_finite()), "{row:?}");
        }
    }
});
