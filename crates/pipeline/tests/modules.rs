//! Modules behind the transformer, against sentence-transformers: every pooling without the prompt's tokens, LayerNorm.

mod common;

use std::fs;
use std::path::Path;

use common::{Machine, TOLERANCE, bits, copy, difference, edit, files, load, modules_reference, rows, write_vectors};
use serde_json::{Value, json};
use simile_hub::ModelFiles;
use simile_kernels::Isa;
use simile_pipeline::{DescriptorOverrides, LoadOptions, Matryoshka, PipelineError, Pooling, Role, TextModel, Tokens};

fn texts(reference: &Value) -> Vec<&str> {
    reference["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

/// Lists the modules behind the transformer anew.
fn list(folder: &Path, classes: &[(&str, &str)]) {
    let modules: Vec<Value> = [("", "Transformer")]
        .iter()
        .chain(classes)
        .map(|(path, class)| json!({"path": path, "type": format!("sentence_transformers.models.{class}")}))
        .collect();
    fs::write(folder.join("modules.json"), Value::from(modules).to_string()).unwrap();
}

/// A checkpoint that pools without the prompt's tokens.
fn without_prompt(name: &str, modes: &Value, prompt: &str) -> TextModel {
    let dir = copy(name);
    list(dir.path(), &[("1_Pooling", "Pooling")]);
    fs::create_dir_all(dir.path().join("1_Pooling")).unwrap();
    let pooling = json!({"pooling_mode": modes, "include_prompt": false});
    fs::write(dir.path().join("1_Pooling/config.json"), pooling.to_string()).unwrap();
    edit(dir.path(), "config_sentence_transformers.json", |json| json["prompts"] = json!({ "query": prompt }));
    TextModel::load(&files(dir.path()), &LoadOptions { max_length: Some(64), ..LoadOptions::new(Isa::best()) })
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_pooling_leaves_the_prompt_s_tokens_out() {
    let reference = modules_reference();
    let prompt = reference["prompt"].as_str().unwrap();
    let texts = texts(&reference);
    let mut machine = Machine::new(1);
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for case in reference["pooling"].as_array().unwrap() {
        let name = case["model"].as_str().unwrap();
        let model = without_prompt(name, &case["modes"], prompt);
        assert!(!model.descriptor().include_prompt);
        // All together: a prompt is a matter of each text.
        let mut tokens: Vec<Tokens> =
            texts.iter().map(|text| model.tokenize(Role::Query, None, text).unwrap()).collect();
        tokens.push(model.tokenize(Role::Generic, None, texts[0]).unwrap());
        assert_eq!(tokens.last().unwrap().prompt, 0);
        let batch: Vec<&Tokens> = tokens.iter().collect();
        let vectors = machine.encode_tokens(&model, &batch, model.dimensions());
        for ((text, got), want) in texts.iter().zip(&vectors).zip(rows(&case["vectors"])) {
            let difference = difference(got, &want);
            compared += 1;
            if difference.is_nan() || difference > TOLERANCE {
                wrong.push(format!("{name} {} {text:?}: differs by {difference:e}", case["modes"]));
            }
        }
        // Without a prompt nothing is left out.
        let poolings = case["modes"].as_array().unwrap().iter().map(|mode| mode.as_str().unwrap());
        let poolings: Vec<Pooling> = poolings.map(|mode| Pooling::from_name(mode).unwrap()).collect();
        let overrides = DescriptorOverrides { pooling: Some(poolings), ..DescriptorOverrides::default() };
        let options = LoadOptions {
            max_length: Some(64),
            normalize: Some(false),
            descriptor: Some(overrides),
            ..LoadOptions::new(Isa::best())
        };
        let plain = TextModel::load(&files(copy(name).path()), &options).unwrap();
        assert!(plain.descriptor().include_prompt);
        let alone = machine.encode_tokens(&plain, &batch[texts.len()..], plain.dimensions());
        if difference(&vectors[texts.len()], &alone[0]) > TOLERANCE {
            wrong.push(format!("{name} {}: without a prompt it differs", case["modes"]));
        }
        // Another contract than that of a pooling with the prompt.
        assert_ne!(model.contract(None), plain.contract(None));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(compared, 8 * 28);
}

/// The weights of the reference's LayerNorm.
fn layer_norm_weights(folder: &Path, width: u8) {
    let values = |step: f32, first: f32| (0..width).map(|i| f32::from(i) * step + first).collect::<Vec<_>>();
    let tensors = [("norm.weight", values(0.03125, 0.5)), ("norm.bias", values(0.015625, -0.25))];
    write_vectors(&folder.join("2_LayerNorm/model.safetensors"), &tensors);
}

#[test]
fn layer_norm_behind_the_pooling() {
    let reference = modules_reference();
    let texts = texts(&reference);
    let dir = copy("tiny-bert-mean-pooler");
    list(dir.path(), &[("1_Pooling", "Pooling"), ("2_LayerNorm", "LayerNorm")]);
    layer_norm_weights(dir.path(), 32);
    edit(dir.path(), "2_LayerNorm/config.json", |json| json["dimension"] = json!(32));
    let want = rows(&reference["layer_norm"]["vectors"]);
    let mut wrong = Vec::new();
    for isa in Isa::available() {
        let model = load(dir.path(), isa);
        let vectors = Machine::new(2).embed(&model, Role::Generic, &texts, 32, u64::MAX);
        for (text, (got, want)) in texts.iter().zip(vectors.iter().zip(&want)) {
            let difference = difference(got, want);
            if difference.is_nan() || difference > TOLERANCE {
                wrong.push(format!("{} {text:?}: differs by {difference:e}", isa.name()));
            }
            let alone = Machine::new(1).embed(&model, Role::Generic, &[text], 1, u64::MAX);
            assert_eq!(bits(&alone[0]), bits(got), "{text}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // What does not fit is named.
    type Damage = Box<dyn Fn(&Path)>;
    let damages: [(Damage, &str); 3] = [
        (Box::new(|folder| layer_norm_weights(folder, 31)), "norm.weight has shape [31]"),
        (
            Box::new(|folder| edit(folder, "2_LayerNorm/config.json", |json| json["dimension"] = json!(31))),
            "2_LayerNorm/config.json has 31 dimensions, but 32",
        ),
        (Box::new(|folder| fs::remove_file(folder.join("2_LayerNorm/model.safetensors")).unwrap()), "2_LayerNorm"),
    ];
    for (damage, part) in damages {
        layer_norm_weights(dir.path(), 32);
        edit(dir.path(), "2_LayerNorm/config.json", |json| json["dimension"] = json!(32));
        damage(dir.path());
        let error = TextModel::load(&files(dir.path()), &LoadOptions::new(Isa::best())).unwrap_err();
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn a_text_without_tokens_is_a_zero_vector_of_a_static_model_only() {
    let model = load(&common::tiny("tiny-static"), Isa::best());
    let tokens = model.tokenize(Role::Generic, None, " \n").unwrap();
    assert_eq!((tokens.ids.len(), tokens.total), (0, 0));
    let two = model.tokenize(Role::Generic, None, "the dog").unwrap();
    let vectors = Machine::new(1).encode_tokens(&model, &[&two, &tokens, &two], 32);
    assert_eq!(vectors[1], vec![0.0; 32]);
    assert_eq!(bits(&vectors[0]), bits(&vectors[2]));
    assert_eq!(Machine::new(1).encode_tokens(&model, &[&tokens], 32), [vec![0.0; 32]]);
    assert!(matches!(
        load(&common::tiny("tiny-static"), Isa::best()).check_dimensions(Some(8)),
        Err(PipelineError::InvalidDimensions { .. })
    ));
}

#[test]
fn a_model_that_is_normed_before_the_cut_is_so_only_when_it_is_cut() {
    // The id decides; the files are any model's.
    let dir = copy("tiny-bert-mean-pooler");
    // The registry's templates would tell the two apart otherwise.
    let overrides = DescriptorOverrides {
        matryoshka: Some(Matryoshka::Any),
        query_template: Some(None),
        passage_template: Some(None),
        ..DescriptorOverrides::default()
    };
    let options = LoadOptions { descriptor: Some(overrides), ..LoadOptions::new(Isa::best()) };
    let known = ModelFiles { id: "nomic-ai/nomic-embed-text-v1.5".to_owned(), ..files(dir.path()) };
    let model = TextModel::load(&known, &options).unwrap();
    let other = TextModel::load(&files(dir.path()), &options).unwrap();
    let raw = LoadOptions { normalize: Some(false), ..LoadOptions::new(Isa::best()) };
    let raw = TextModel::load(&files(dir.path()), &raw).unwrap();
    let (tokens, mut machine) = (model.tokenize(Role::Generic, None, "the dog").unwrap(), Machine::new(1));
    let mut vector = |model: &TextModel, dimensions| machine.encode_tokens(model, &[&tokens], dimensions).remove(0);
    assert_eq!(bits(&vector(&model, 32)), bits(&vector(&other, 32)));
    let whole: Vec<f64> = vector(&raw, 32).into_iter().map(f64::from).collect();
    let mean = whole.iter().sum::<f64>() / 32.0;
    let variance = whole.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 32.0;
    let normed: Vec<f64> = whole[..8].iter().map(|value| (value - mean) / (variance + 1e-5).sqrt()).collect();
    let length = normed.iter().map(|value| value * value).sum::<f64>().sqrt();
    let want: Vec<f32> = normed.iter().map(|value| (value / length) as f32).collect();
    let got = vector(&model, 8);
    assert!(difference(&got, &want) < TOLERANCE, "{got:?} instead of {want:?}");
    assert!(difference(&vector(&other, 8), &want) > 1e-3, "the norm makes no difference");
    assert_ne!(model.contract(Some(8)), other.contract(Some(8)));
    assert_eq!(model.contract(None), other.contract(None));
}
