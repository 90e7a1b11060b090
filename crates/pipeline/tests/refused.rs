//! What is refused: models that cannot be loaded, texts that cannot be computed, vectors that are no numbers.

mod common;

use std::fs;
use std::path::Path;

use common::{copy, edit, files, golden, load, tiny, tokens};
use serde_json::json;
use simile_encoder::weights::{FORMATS, OTHER_FORMATS};
use simile_encoder::{Context, Flow, LoadError as EncoderError, Scratch, WeightsError};
use simile_hub::formats;
use simile_kernels::{Isa, ThreadPool};
use simile_pipeline::{DescriptorOverrides, LoadError, LoadOptions, PipelineError, Role, TextModel, Tokens};

fn options() -> LoadOptions {
    LoadOptions::new(Isa::best())
}

fn overriding(change: impl FnOnce(&mut DescriptorOverrides)) -> LoadOptions {
    let mut overrides = DescriptorOverrides::default();
    change(&mut overrides);
    LoadOptions { descriptor: Some(overrides), ..options() }
}

#[test]
fn what_cannot_be_loaded_is_named() {
    let remove = |name: &'static str| move |folder: &Path| fs::remove_file(folder.join(name)).unwrap();
    // Checkpoint, damage, options; part of the message.
    type Case = (&'static str, Box<dyn Fn(&Path)>, LoadOptions, &'static str);
    let cases: Vec<Case> = vec![
        ("tiny-bert-cls", Box::new(remove("tokenizer.json")), options(), "tokenizer.json"),
        (
            "tiny-bert-cls",
            Box::new(|folder| fs::write(folder.join("tokenizer.json"), "{").unwrap()),
            options(),
            "tokenizer.json",
        ),
        (
            "tiny-bert-cls",
            Box::new(|folder| {
                edit(folder, "1_Pooling/config.json", |json| json["word_embedding_dimension"] = json!(31))
            }),
            options(),
            "31 dimensions, but 32",
        ),
        (
            "tiny-bert-dense",
            Box::new(remove("3_Dense/model.safetensors")),
            options(),
            "3_Dense: expected model.safetensors",
        ),
        (
            "tiny-bert-dense",
            Box::new(|folder| edit(folder, "3_Dense/config.json", |json| json["in_features"] = json!(41))),
            options(),
            "3_Dense/config.json",
        ),
        (
            "tiny-bert-dense",
            Box::new(|folder| edit(folder, "3_Dense/config.json", |json| json["out_features"] = json!(25))),
            options(),
            "linear.weight",
        ),
        (
            "tiny-bert-dense",
            Box::new(|folder| edit(folder, "2_Dense/config.json", |json| json["bias"] = json!(false))),
            options(),
            "2_Dense/config.json: bias is false, expected is true",
        ),
        (
            // As many words as before, one of them with the first id that the table does not have.
            "tiny-bert-cls",
            Box::new(|folder| edit(folder, "tokenizer.json", |json| json["model"]["vocab"]["the"] = json!(219))),
            options(),
            "token ids up to 219, but the model's word table has 219 rows",
        ),
        (
            "tiny-bert-cls",
            Box::new(|folder| edit(folder, "config.json", |json| json["hidden_act"] = json!("mystery"))),
            options(),
            "mystery",
        ),
        ("tiny-bert-cls", Box::new(|_| ()), LoadOptions { max_length: Some(2), ..options() }, "at least 3"),
        ("tiny-bert-cls", Box::new(|_| ()), LoadOptions { max_length: Some(0), ..options() }, "at least 3"),
        (
            "tiny-bert-cls",
            Box::new(|_| ()),
            overriding(|overrides| overrides.pooling = Some(vec![])),
            "at least one pooling",
        ),
        (
            "tiny-bert-cls",
            Box::new(|_| ()),
            overriding(|overrides| overrides.query_template = Some(Some("query".into()))),
            "must hold {text} exactly once",
        ),
    ];
    let mut wrong = Vec::new();
    for (name, change, options, part) in cases {
        let dir = copy(name);
        change(dir.path());
        match TextModel::load(&files(dir.path()), &options) {
            Ok(_) => wrong.push(format!("{part}: loaded")),
            Err(error) if !error.to_string().contains(part) => wrong.push(format!("{part}: {error}")),
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_vector_that_is_not_finite_is_an_error_of_its_text_only() {
    // Dense weights of 6e37: the sum of an activated text overflows, that of another does not.
    let dir = copy("tiny-bert-dense");
    let path = dir.path().join("3_Dense/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for weight in bytes[8 + header..].chunks_exact_mut(4) {
        weight.copy_from_slice(&6e37f32.to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    let model = load(dir.path(), Isa::best());
    let golden = golden(&tiny("tiny-bert-dense"));
    let texts: Vec<Tokens> = golden.ids.iter().map(|ids| tokens(ids)).collect();
    let batch: Vec<&Tokens> = texts.iter().collect();
    let (pool, mut scratch) = (ThreadPool::new(1), Scratch::new());
    let mut ctx = Context { pool: &pool, scratch: &mut scratch, checkpoint: &|| Flow::Continue };
    let mut rows = vec![vec![0.0; 24]; batch.len()];
    let mut out: Vec<&mut [f32]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
    let results = model.encode(&batch, 24, &mut out, &mut ctx).unwrap();
    let bad = results.iter().filter(|result| result.is_err()).count();
    assert!(bad > 0 && bad < results.len(), "{results:?}");
    for (result, row) in results.iter().zip(&rows) {
        assert_eq!(result.is_ok(), row.iter().all(|value| value.is_finite()));
    }
}

#[test]
fn a_token_that_the_model_does_not_have_is_an_error_of_its_text() {
    let dir = copy("tiny-bert-cls");
    edit(dir.path(), "tokenizer.json", |json| {
        let mut added = json["added_tokens"][0].clone();
        (added["id"], added["content"]) = (json!(5000), json!("[NEW]"));
        json["added_tokens"].as_array_mut().unwrap().push(added);
    });
    let model = load(dir.path(), Isa::best());
    assert!(model.tokenize(Role::Generic, None, "a").is_ok());
    let error = model.tokenize(Role::Generic, None, "a [NEW]").unwrap_err();
    assert!(matches!(error, PipelineError::TokenOutOfRange { vocabulary: 219, .. }), "{error}");
}

#[test]
fn a_text_without_any_token_is_an_error_of_its_own() {
    let dir = copy("tiny-bert-cls");
    edit(dir.path(), "tokenizer.json", |json| json["post_processor"] = json!(null));
    let model = load(dir.path(), Isa::best());
    assert_eq!(model.tokenize(Role::Generic, None, " ").unwrap_err(), PipelineError::NoTokens);
    assert_eq!(model.tokenize(Role::Generic, None, "a").unwrap().total, 1);
}

#[test]
fn the_hub_and_the_loader_know_the_same_formats() {
    assert_eq!(formats::READ, FORMATS);
    assert_eq!(formats::OTHERS, OTHER_FORMATS);
}

#[test]
fn weights_in_other_formats_only_are_said_to_be_that() {
    // Through the hub, which must let every such model pass; and for a Dense module as for the encoder.
    for place in ["", "3_Dense"] {
        for name in OTHER_FORMATS {
            let dir = copy("tiny-bert-dense");
            let folder = dir.path().join(place);
            fs::remove_file(folder.join("model.safetensors")).unwrap();
            fs::write(folder.join(name), b"PK\x03\x04").unwrap();
            let error = TextModel::load(&files(dir.path()), &options()).unwrap_err();
            let text = error.to_string();
            match error {
                LoadError::Encoder(EncoderError::Weights(WeightsError::OnlyOtherFormats { folder, found })) => {
                    assert_eq!(found, [*name]);
                    assert!(folder.ends_with(place) && text.contains("safe_serialization"), "{text}");
                }
                other => panic!("{place} {name}: {other}"),
            }
        }
    }
}
