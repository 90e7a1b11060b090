//! `tokenizer_config.json` against the BERT normalizer of `tokenizer.json`.
//!
//! The expected ids are those of `AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]` of transformers 5.24.0 on the
//! same changed copy of tiny-bert-cls.

mod common;

use std::path::Path;

use common::{copy, edit, files, load};
use serde_json::{Value, json};
use simile_kernels::Isa;
use simile_pipeline::{LoadError, LoadOptions, Role, TextModel};

const TEXT: &str = "Hello hello café 日本";
/// As the fixture's files have it: lower-cased, accents stripped, Chinese characters apart.
const PLAIN: [u32; 8] = [4, 172, 172, 189, 124, 80, 81, 5];

fn keys(folder: &Path, lowercase: Value, accents: Value, chinese: Value) {
    edit(folder, "tokenizer_config.json", |json| {
        json["do_lower_case"] = lowercase;
        json["strip_accents"] = accents;
        json["tokenize_chinese_chars"] = chinese;
    });
}

fn ids(model: &TextModel) -> Vec<u32> {
    model.tokenize(Role::Generic, None, TEXT).unwrap().ids
}

#[test]
fn the_keys_win_over_a_bert_normalizer() {
    // do_lower_case, strip_accents, tokenize_chinese_chars; ids.
    let cases: [(Value, Value, Value, &[u32]); 12] = [
        (json!(true), json!(null), json!(true), &[4, 172, 172, 189, 124, 80, 81, 5]),
        (json!(true), json!(null), json!(false), &[4, 172, 172, 189, 124, 80, 156, 5]),
        (json!(true), json!(true), json!(true), &[4, 172, 172, 189, 124, 80, 81, 5]),
        (json!(true), json!(true), json!(false), &[4, 172, 172, 189, 124, 80, 156, 5]),
        (json!(true), json!(false), json!(true), &[4, 172, 172, 189, 151, 80, 81, 5]),
        (json!(true), json!(false), json!(false), &[4, 172, 172, 189, 151, 80, 156, 5]),
        (json!(false), json!(null), json!(true), &[4, 3, 172, 189, 151, 80, 81, 5]),
        (json!(false), json!(null), json!(false), &[4, 3, 172, 189, 151, 80, 156, 5]),
        (json!(false), json!(true), json!(true), &[4, 3, 172, 189, 124, 80, 81, 5]),
        (json!(false), json!(true), json!(false), &[4, 3, 172, 189, 124, 80, 156, 5]),
        (json!(false), json!(false), json!(true), &[4, 3, 172, 189, 151, 80, 81, 5]),
        (json!(false), json!(false), json!(false), &[4, 3, 172, 189, 151, 80, 156, 5]),
    ];
    let mut contracts = Vec::new();
    for (lowercase, accents, chinese, want) in cases {
        let name = format!("{lowercase} {accents} {chinese}");
        let dir = copy("tiny-bert-cls");
        keys(dir.path(), lowercase, accents, chinese);
        let model = load(dir.path(), Isa::best());
        assert_eq!(ids(&model), want, "{name}");
        contracts.push(model.contract(None));
    }
    // `null` is what lower-casing says; so four of the twelve say what another one says, and the others differ.
    contracts.sort();
    contracts.dedup();
    assert_eq!(contracts.len(), 8);
}

#[test]
fn classes_that_replay_the_tokenizer_ignore_the_keys() {
    for class in ["PreTrainedTokenizerFast", "TokenizersBackend"] {
        for file in ["tokenizer_config.json", "config.json"] {
            let dir = copy("tiny-bert-cls");
            keys(dir.path(), json!(false), json!(false), json!(false));
            edit(dir.path(), "tokenizer_config.json", |json| json["tokenizer_class"] = json!(null));
            edit(dir.path(), file, |json| json["tokenizer_class"] = json!(class));
            assert_eq!(ids(&load(dir.path(), Isa::best())), PLAIN, "{class} in {file}");
        }
    }
    for class in ["BertTokenizerFast", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"] {
        let dir = copy("tiny-bert-cls");
        keys(dir.path(), json!(false), json!(null), json!(true));
        edit(dir.path(), "tokenizer_config.json", |json| json["tokenizer_class"] = json!(class));
        assert_ne!(ids(&load(dir.path(), Isa::best())), PLAIN, "{class}");
    }
}

#[test]
fn a_key_that_is_absent_leaves_the_tokenizer_s_value() {
    let dir = copy("tiny-bert-cls");
    edit(dir.path(), "tokenizer.json", |json| json["normalizer"]["strip_accents"] = json!(false));
    let load = || load(dir.path(), Isa::best());
    // Null is a value: as lower-casing.
    assert_eq!(ids(&load()), PLAIN);
    edit(dir.path(), "tokenizer_config.json", |json| {
        json.as_object_mut().unwrap().remove("strip_accents");
    });
    assert_eq!(ids(&load()), [4, 172, 172, 189, 151, 80, 81, 5]);
}

#[test]
fn contradictions_that_cannot_be_applied_are_refused() {
    // Class, normalizer, do_lower_case; whether it is refused.
    let lowercase = json!({"type": "Lowercase"});
    let bert = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true});
    let cases = [
        ("BertTokenizer", &lowercase, json!(true), true),
        ("BertTokenizer", &json!(null), json!(false), true),
        ("PreTrainedTokenizerFast", &lowercase, json!(false), false),
        ("OwnTokenizer", &bert, json!(false), true),
        ("OwnTokenizer", &bert, json!(true), false),
        ("OwnTokenizer", &lowercase, json!(false), false),
    ];
    for (class, normalizer, lowercase, refused) in cases {
        let dir = copy("tiny-bert-cls");
        edit(dir.path(), "tokenizer.json", |json| json["normalizer"] = normalizer.clone());
        edit(dir.path(), "tokenizer_config.json", |json| {
            json["tokenizer_class"] = json!(class);
            json["do_lower_case"] = lowercase.clone();
        });
        let result = TextModel::load(&files(dir.path()), &LoadOptions::new(Isa::best()));
        match result {
            Err(LoadError::UnsupportedValue { file, key, .. }) if refused => {
                assert_eq!((file.as_str(), key.as_str()), ("tokenizer_config.json", "do_lower_case"));
            }
            result => assert!(result.is_ok() && !refused, "{class} {normalizer} {lowercase}: {result:?}"),
        }
    }
}
