//! The same numbers as the reference: token ids equal, vectors within 1e-5, on every instruction set of this processor.

mod common;

use common::{
    Golden, Machine, STATIC, TINY, TOLERANCE, copy, difference, files, golden, real, reference, rows,
    saved_by_sentence_transformers, static_reference, tiny,
};
use simile_kernels::Isa;
use simile_pipeline::{LoadOptions, Origin, Role, TextModel};

/// Compares ids, totals, raw and final vectors; returns every difference as a line, and the largest one seen.
fn compare(model: &TextModel, raw: &TextModel, golden: &Golden) -> (Vec<String>, f32) {
    let mut machine = Machine::new(2);
    let mut wrong = Vec::new();
    let mut largest = 0f32;
    // Where no file states a limit, ours is 512 and the reference's the position table.
    if let Some(max_length) = golden.max_length
        && model.descriptor().origins.max_length != Origin::Default
    {
        assert_eq!(model.max_length(), max_length);
    }
    for (i, text) in golden.texts.iter().enumerate() {
        let shown: String = text.chars().take(40).collect();
        let tokens = model.tokenize(Role::Generic, None, text).unwrap();
        if tokens.ids != golden.ids[i] {
            wrong.push(format!("{i} {shown:?}: ids {:?} instead of {:?}", tokens.ids, golden.ids[i]));
            continue;
        }
        if let Some(totals) = golden.totals.as_ref().filter(|totals| totals[i] != tokens.total) {
            wrong.push(format!("{i} {shown:?}: {} tokens before truncation instead of {}", tokens.total, totals[i]));
        }
        let raw = golden.raw.as_ref().map(|vectors| (raw, &vectors[i]));
        for (model, want) in [(model, &golden.vectors[i])].into_iter().chain(raw) {
            let got = machine.encode(model, &[&tokens.ids], model.dimensions()).remove(0);
            let difference = difference(&got, want);
            largest = largest.max(difference);
            if difference.is_nan() || difference > TOLERANCE {
                wrong.push(format!("{i} {shown:?}: differs by {difference:e}"));
            }
        }
    }
    (wrong, largest)
}

#[test]
fn tiny_checkpoints() {
    let mut wrong = Vec::new();
    for name in TINY.into_iter().chain(STATIC) {
        let mut golden = golden(&tiny(name));
        if name == "tiny-static-f16" {
            // Its own reference rounds every mean to 16 bits.
            golden.vectors = rows(&static_reference()["f32"]);
        }
        for isa in Isa::available() {
            // The reference of these normalises, though their files list no Normalize module.
            let normalize = name.starts_with("tiny-jina").then_some(true);
            let options = LoadOptions { normalize, ..LoadOptions::new(isa) };
            let model = TextModel::load(&files(&tiny(name)), &options).unwrap();
            let options = LoadOptions { normalize: Some(false), ..LoadOptions::new(isa) };
            let raw = TextModel::load(&common::files(&tiny(name)), &options).unwrap();
            let (lines, _) = compare(&model, &raw, &golden);
            wrong.extend(lines.into_iter().map(|line| format!("{name} {}: {line}", isa.name())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn static_models_that_sentence_transformers_saved_keep_unknown_tokens() {
    let mut wrong = Vec::new();
    for (name, prefix) in [("tiny-static", ""), ("tiny-static", "0_StaticEmbedding/"), ("tiny-static-plain", "")] {
        let golden = golden(&tiny(name));
        let dir = saved_by_sentence_transformers(name, prefix);
        // The plain checkpoint has no Normalize module, ours has one.
        let options = LoadOptions { normalize: Some(name != "tiny-static-plain"), ..LoadOptions::new(Isa::best()) };
        let model = TextModel::load(&files(dir.path()), &options).unwrap();
        assert_eq!((model.max_length(), model.descriptor().model_type.as_str()), (u32::MAX as usize, "static"));
        let mut unknown = 0;
        for (i, (text, want)) in golden.texts.iter().zip(golden.by_sentence_transformers.unwrap()).enumerate() {
            let ids = model.tokenize(Role::Generic, None, text).unwrap().ids;
            unknown += ids.len() - golden.ids[i].len();
            let difference = difference(&Machine::new(1).encode(&model, &[&ids], model.dimensions())[0], &want);
            if difference.is_nan() || difference > TOLERANCE {
                wrong.push(format!("{name} {prefix} {i} {text:?}: differs by {difference:e}"));
            }
        }
        assert!(unknown > 0, "the texts hold unknown tokens");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn model2vec_s_tensors_are_read_by_its_rules_although_no_file_says_whose_they_are() {
    // As model2vec saves today.
    let dir = copy("tiny-static-quant");
    std::fs::write(dir.path().join("config.json"), r#"{"normalize": true, "embedding_dtype": "int8"}"#).unwrap();
    let golden = golden(&tiny("tiny-static-quant"));
    let model = TextModel::load(&files(dir.path()), &LoadOptions::new(Isa::best())).unwrap();
    assert_eq!((model.max_length(), model.descriptor().model_type.as_str()), (512, "static"));
    let ids: Vec<_> = golden.texts.iter().map(|text| model.tokenize(Role::Generic, None, text).unwrap().ids).collect();
    assert_eq!(ids, golden.ids);
}

#[test]
fn a_static_model_s_limit_cuts_characters_before_tokens() {
    let golden = golden(&tiny("tiny-static"));
    let mut wrong = Vec::new();
    let mut cut = 0;
    for (limit, want) in static_reference()["limits"].as_object().unwrap() {
        let options = LoadOptions { max_length: Some(limit.parse().unwrap()), ..LoadOptions::new(Isa::best()) };
        let model = TextModel::load(&files(&tiny("tiny-static")), &options).unwrap();
        for (i, (text, want)) in golden.texts.iter().zip(rows(want)).enumerate() {
            let tokens = model.tokenize(Role::Generic, None, text).unwrap();
            cut += usize::from(tokens.truncated());
            // Whatever was cut, all known tokens of the text are counted.
            assert_eq!(tokens.total, golden.ids[i].len(), "{text}");
            let difference = difference(&Machine::new(1).encode(&model, &[&tokens.ids], 32)[0], &want);
            if difference.is_nan() || difference > TOLERANCE {
                wrong.push(format!("limit {limit}, {i} {text:?}: differs by {difference:e}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cut > 20, "{cut} texts were cut");
}

fn real_model(id: &str) -> TextModel {
    let files = real(id);
    let golden = reference(id);
    assert_eq!(golden.texts.len(), 64);
    let isa = Isa::best();
    let model = TextModel::load(&files, &LoadOptions::new(isa)).unwrap();
    let raw = TextModel::load(&files, &LoadOptions { normalize: Some(false), ..LoadOptions::new(isa) }).unwrap();
    let (wrong, largest) = compare(&model, &raw, &golden);
    assert!(wrong.is_empty(), "{id}:\n{}", wrong.join("\n"));
    // The reference's own batches differ from its single texts by up to 7e-7.
    assert!(largest > 0.0, "equal in every bit to another library: not plausible");
    model
}

#[test]
fn all_minilm_l6_v2() {
    let model = real_model("sentence-transformers/all-MiniLM-L6-v2");
    let descriptor = model.descriptor();
    assert_eq!((descriptor.dimensions, descriptor.max_length, descriptor.normalize), (384, 256, true));
    assert_eq!((descriptor.origins.pooling, descriptor.origins.max_length), (Origin::Files, Origin::Files));
    assert_eq!((descriptor.licence.as_deref(), descriptor.gated), (Some("Apache-2.0"), false));
    assert_eq!(descriptor.revision.as_deref(), Some("1110a243fdf4706b3f48f1d95db1a4f5529b4d41"));
}

#[test]
fn paraphrase_minilm_l3_v2() {
    let model = real_model("sentence-transformers/paraphrase-MiniLM-L3-v2");
    assert_eq!((model.max_length(), model.descriptor().normalize), (128, false));
}

#[test]
fn a_copy_of_the_files_in_a_folder_is_under_the_same_contract_as_the_cache() {
    let cached = real("sentence-transformers/all-MiniLM-L6-v2");
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("1_Pooling")).unwrap();
    let names =
        ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"];
    for name in names.into_iter().chain(["tokenizer.json", "tokenizer_config.json"]) {
        std::fs::copy(cached.path(name).unwrap(), dir.path().join(name)).unwrap();
    }
    let contract = |files| TextModel::load(&files, &LoadOptions::new(Isa::best())).unwrap().contract(None);
    assert_eq!(contract(common::files(dir.path())), contract(cached));
}
