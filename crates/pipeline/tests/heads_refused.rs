//! Files and options that a sparse, multi-vector or rerank model cannot be made of: each is a typed error that names the
//! file, the key and what would do.

mod common;

use std::fs;
use std::path::Path;

use common::{copy, edit, files, tiny};
use serde_json::json;
use simile_kernels::Isa;
use simile_pipeline::{LoadError, LoadOptions, ModelKind, TextModel, Truncate, load_head};

fn refuse(kind: ModelKind, folder: &Path, options: &LoadOptions) -> LoadError {
    let files = files(folder);
    let loaded = match kind {
        ModelKind::Dense => TextModel::load(&files, options).map(drop),
        _ => load_head(kind, &files, options).map(drop),
    };
    loaded.expect_err("it loaded")
}

#[test]
fn a_folder_of_another_kind_names_the_class_that_loads_it() {
    use ModelKind::{Dense, MultiVector, Rerank, Sparse};
    let folders = [
        ("tiny-bert-cls", Dense),
        ("tiny-st6-bert", Dense),
        ("tiny-splade", Sparse),
        ("tiny-st6-splade", Sparse),
        ("tiny-colbert", MultiVector),
        ("tiny-cross-bert", Rerank),
        ("tiny-st6-cross-bert", Rerank),
        ("tiny-qwen3-reranker", Rerank),
    ];
    let mut wrong = Vec::new();
    for (name, is) in folders {
        for kind in ModelKind::ALL.into_iter().filter(|kind| *kind != is) {
            let error = refuse(kind, &tiny(name), &LoadOptions::new(Isa::best()));
            let message = error.to_string();
            let named = message.contains(is.class()) && message.contains(name) && message.contains(kind.class());
            if !matches!(error, LoadError::WrongKind { found, wanted, .. } if found == is && wanted == kind) || !named {
                wrong.push(format!("{name} as {kind}: {message}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is changed in a copy of a checkpoint, and the words that the error must have.
type Case = (ModelKind, &'static str, fn(&Path), &'static [&'static str]);

#[test]
fn files_that_ask_for_something_else_are_refused_by_name() {
    use ModelKind::{MultiVector, Rerank, Sparse};
    let cases: &[Case] = &[
        (
            Sparse,
            "tiny-splade",
            |dir| edit(dir, "1_SpladePooling/config.json", |json| json["pooling_strategy"] = json!("mean")),
            &["1_SpladePooling/config.json", "pooling_strategy", "\"mean\"", "max, sum"],
        ),
        (
            Sparse,
            "tiny-splade",
            |dir| edit(dir, "1_SpladePooling/config.json", |json| json["activation_function"] = json!("gelu")),
            &["activation_function", "\"gelu\"", "relu, log1p_relu"],
        ),
        (
            Sparse,
            "tiny-splade",
            |dir| edit(dir, "config.json", |json| json["architectures"] = json!(["BertModel"])),
            &["BertModel", "ForMaskedLM"],
        ),
        (
            Sparse,
            "tiny-splade",
            |dir| edit(dir, "config.json", |json| json["tie_word_embeddings"] = json!(false)),
            &["cls.predictions.decoder.weight"],
        ),
        (
            Sparse,
            "tiny-splade",
            |dir| {
                edit(dir, "modules.json", |json| {
                    json[1]["type"] = json!("sentence_transformers.sparse_encoder.models.CSR");
                });
            },
            &["modules.json", "CSR", "number 1", "SpladePooling"],
        ),
        (
            Sparse,
            "tiny-splade",
            |dir| edit(dir, "config_sentence_transformers.json", |json| json["model_type"] = json!("Router")),
            &["config_sentence_transformers.json", "model_type", "Router", "SparseEncoder"],
        ),
        (
            Rerank,
            "tiny-st6-cross-bert",
            |dir| edit(dir, "modules.json", |json| json[0]["type"] = json!("custom.Other")),
            &["modules.json", "custom.Other", "one Transformer"],
        ),
        (
            Rerank,
            "tiny-st6-cross-bert",
            |dir| {
                edit(dir, "modules.json", |json| {
                    let dense = json!({ "path": "1_Dense", "type": "sentence_transformers.models.Dense" });
                    json.as_array_mut().unwrap().push(dense);
                });
            },
            &["modules.json", "Dense", "number 1", "one Transformer"],
        ),
        (
            Rerank,
            "tiny-st6-cross-bert",
            |dir| edit(dir, "modules.json", |json| *json = json!([])),
            &["modules.json", "0 modules", "one Transformer"],
        ),
        (
            MultiVector,
            "tiny-colbert",
            |dir| edit(dir, "artifact.metadata", |json| json["dim"] = json!(17)),
            &["artifact.metadata", "17", "16"],
        ),
        (
            MultiVector,
            "tiny-colbert",
            |dir| edit(dir, "artifact.metadata", |json| json["similarity"] = json!("l2")),
            &["artifact.metadata", "similarity", "\"l2\"", "cosine"],
        ),
        (
            MultiVector,
            "tiny-colbert",
            |dir| edit(dir, "artifact.metadata", |json| json["query_token_id"] = json!("[QUERY]")),
            &["artifact.metadata", "query_token_id", "[QUERY]", "a token of the tokenizer"],
        ),
        (
            MultiVector,
            "tiny-colbert",
            |dir| edit(dir, "artifact.metadata", |json| json["query_maxlen"] = json!(3)),
            &["3 tokens is too small", "at least 4"],
        ),
        (
            MultiVector,
            "tiny-colbert",
            |dir| fs::remove_file(dir.join("artifact.metadata")).unwrap(),
            &["artifact.metadata", "colbert_linear.pt"],
        ),
        (
            Rerank,
            "tiny-cross-bert",
            |dir| {
                edit(dir, "config.json", |json| {
                    json["sentence_transformers"]["activation_fn"] = json!("torch.nn.modules.activation.Tanh");
                });
            },
            &["config.json", "activation_fn", "Tanh", "Identity", "Sigmoid"],
        ),
        (
            Rerank,
            "tiny-st6-cross-bert",
            |dir| {
                edit(dir, "config_sentence_transformers.json", |json| json["activation_fn"] = json!("my.own.Function"));
            },
            &["config_sentence_transformers.json", "activation_fn", "my.own.Function", "Sigmoid"],
        ),
        (
            Rerank,
            "tiny-cross-bert",
            |dir| edit(dir, "config.json", |json| json["architectures"] = json!(["BertForTokenClassification"])),
            &["BertForTokenClassification", "ForSequenceClassification"],
        ),
        (
            Rerank,
            "tiny-cross-bert",
            |dir| edit(dir, "config.json", |json| json["architectures"] = json!(["BertLMHeadModelForCausalLM"])),
            &["model_type", "\"bert\"", "qwen3"],
        ),
    ];
    let mut wrong = Vec::new();
    for (kind, name, change, words) in cases {
        let dir = copy(name);
        change(dir.path());
        let message = refuse(*kind, dir.path(), &LoadOptions::new(Isa::best())).to_string();
        if let Some(word) = words.iter().find(|word| !message.contains(**word)) {
            wrong.push(format!("{name}: no {word:?} in: {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn options_that_do_not_suit_are_refused() {
    let none = || LoadOptions::new(Isa::best());
    let start = LoadOptions { truncate: Some(Truncate::Start), ..none() };
    let short = |max_length| LoadOptions { max_length: Some(max_length), ..none() };
    let cases = [
        (ModelKind::Rerank, "tiny-cross-bert", start.clone(), "truncate"),
        (ModelKind::MultiVector, "tiny-colbert", start, "truncate"),
        (ModelKind::Rerank, "tiny-cross-bert", short(3), "at least 5"),
        (ModelKind::MultiVector, "tiny-colbert", short(3), "at least 4"),
        (ModelKind::Sparse, "tiny-splade", short(2), "at least 3"),
    ];
    for (kind, name, options, word) in cases {
        let message = refuse(kind, &tiny(name), &options).to_string();
        assert!(message.contains(word), "{name}: {message}");
    }
}
