//! What a caller sees of a loaded model: descriptor, roles, dimensions, contract, errors.

mod common;

use std::fs;

use common::{Machine, bits, copy, difference, edit, files, golden, load, tiny, tokens};
use serde_json::json;
use simile_encoder::{Context, EncodeError, Flow, Scratch};
use simile_hub::{ModelFiles, Source};
use simile_kernels::{Isa, ThreadPool};
use simile_pipeline::{
    DescriptorOverrides, LoadError, LoadOptions, Matryoshka, Origin, PipelineError, Pooling, Role, TextModel, Truncate,
};

fn options() -> LoadOptions {
    LoadOptions::new(Isa::best())
}

fn overriding(change: impl FnOnce(&mut DescriptorOverrides)) -> LoadOptions {
    let mut overrides = DescriptorOverrides::default();
    change(&mut overrides);
    LoadOptions { descriptor: Some(overrides), ..options() }
}

fn tiny_with(name: &str, options: &LoadOptions) -> TextModel {
    TextModel::load(&files(&tiny(name)), options).unwrap()
}

#[test]
fn the_descriptor_is_what_is_in_force() {
    let model = load(&tiny("tiny-bert-cls"), Isa::best());
    let descriptor = model.descriptor();
    assert_eq!(descriptor.pooling, [Pooling::Cls]);
    assert_eq!(
        descriptor.query_template.as_deref(),
        Some("Represent this sentence for searching relevant passages: {text}")
    );
    assert_eq!((descriptor.passage_template.as_deref(), descriptor.origins.passage_template), (None, Origin::Default));
    assert_eq!((descriptor.max_length, descriptor.dimensions, descriptor.normalize), (64, 32, true));
    assert_eq!(
        (descriptor.model_type.as_str(), descriptor.truncate, &descriptor.matryoshka),
        ("bert", Truncate::End, &Matryoshka::None)
    );
    assert_eq!((descriptor.origins.query_template, descriptor.origins.truncate), (Origin::Files, Origin::Default));

    let changed = LoadOptions {
        max_length: Some(20),
        normalize: Some(false),
        truncate: Some(Truncate::Start),
        ..overriding(|overrides| {
            overrides.pooling = Some(vec![Pooling::Max, Pooling::Mean]);
            overrides.query_template = Some(None);
            overrides.passage_template = Some(Some("p {text}".into()));
            overrides.matryoshka = Some(Matryoshka::Dimensions(vec![8]));
        })
    };
    let model = tiny_with("tiny-bert-cls", &changed);
    let descriptor = model.descriptor();
    assert_eq!((descriptor.max_length, descriptor.normalize, descriptor.truncate), (20, false, Truncate::Start));
    assert_eq!((&descriptor.pooling[..], descriptor.dimensions), (&[Pooling::Max, Pooling::Mean][..], 64));
    assert_eq!(
        (descriptor.query_template.as_deref(), descriptor.passage_template.as_deref()),
        (None, Some("p {text}"))
    );
    assert_eq!(descriptor.origins.pooling, Origin::Option);
    // Over the model's positions.
    assert_eq!(tiny_with("tiny-bert-cls", &LoadOptions { max_length: Some(1000), ..options() }).max_length(), 64);
}

#[test]
fn a_registered_model_with_bare_files_gets_its_entry() {
    let dir = copy("tiny-bert-cls");
    for name in
        ["modules.json", "1_Pooling/config.json", "config_sentence_transformers.json", "sentence_bert_config.json"]
    {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    let named = |id: &str| ModelFiles {
        id: id.into(),
        revision: None,
        folder: dir.path().to_path_buf(),
        source: Source::Cache,
    };
    let e5 = TextModel::load(&named("intfloat/multilingual-e5-small"), &options()).unwrap();
    let descriptor = e5.descriptor();
    assert_eq!(
        (&descriptor.pooling[..], descriptor.normalize, descriptor.max_length),
        (&[Pooling::Mean][..], true, 64)
    );
    assert_eq!(descriptor.query_template.as_deref(), Some("query: {text}"));
    assert_eq!((descriptor.origins.pooling, descriptor.origins.max_length), (Origin::Registry, Origin::Registry));

    // (id, whether vectors get length one, who says so)
    let cases = [
        ("intfloat/multilingual-e5-small", true, Origin::Registry),
        ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", false, Origin::Registry),
        // The row leaves it to modules.json, which is not there.
        ("mixedbread-ai/mxbai-embed-large-v1", true, Origin::Default),
        ("owner/unknown", false, Origin::Default),
    ];
    for (id, normalize, origin) in cases {
        let model = TextModel::load(&named(id), &options()).unwrap();
        let descriptor = model.descriptor();
        assert_eq!((descriptor.normalize, descriptor.origins.normalize), (normalize, origin), "{id}");
    }

    // Nobody knows it: what sentence-transformers does with a bare transformer.
    let unknown = TextModel::load(&named("owner/unknown"), &options()).unwrap();
    let descriptor = unknown.descriptor();
    assert_eq!(
        (&descriptor.pooling[..], descriptor.normalize, descriptor.origins.pooling),
        (&[Pooling::Mean][..], false, Origin::Default)
    );
    assert_eq!(descriptor.query_template, None);
}

#[test]
fn roles_apply_their_template_once_and_embed_never_does() {
    let model = load(&tiny("tiny-bert-cls"), Isa::best());
    let ids = |role, text: &str| model.tokenize(role, None, text).unwrap().ids;
    let prompt = "Represent this sentence for searching relevant passages: ";
    assert_eq!(ids(Role::Query, "a {text}"), ids(Role::Generic, &format!("{prompt}a {{text}}")));
    assert_eq!(ids(Role::Passage, "a {text}"), ids(Role::Generic, "a {text}"));
    assert_ne!(ids(Role::Query, "a"), ids(Role::Generic, "a"));
    // A default prompt of the files changes nothing.
    let dir = copy("tiny-bert-cls");
    edit(dir.path(), "config_sentence_transformers.json", |json| json["default_prompt_name"] = json!("query"));
    let with_default = load(dir.path(), Isa::best());
    assert_eq!(
        with_default.tokenize(Role::Generic, None, "a").unwrap(),
        model.tokenize(Role::Generic, None, "a").unwrap()
    );

    let error = model.tokenize(Role::Query, Some("be brief"), "a").unwrap_err();
    assert!(matches!(error, PipelineError::InstructionNotSupported { role: Role::Query, .. }), "{error}");
}

#[test]
fn truncation_policies() {
    let text = "the dog and the fox and the world ".repeat(40);
    let policy = |truncate| tiny_with("tiny-bert-cls", &LoadOptions { truncate: Some(truncate), ..options() });
    let full = tiny_with("tiny-bert-cls", &options()).tokenize(Role::Query, None, &text).unwrap();
    assert!(full.truncated() && full.ids.len() == 64);

    let start = policy(Truncate::Start).tokenize(Role::Query, None, &text).unwrap();
    assert_eq!((start.ids.len(), start.total), (64, full.total));
    // The template stays in front, then comes the text's end.
    let template = full.total - policy(Truncate::Start).tokenize(Role::Generic, None, &text).unwrap().total;
    assert_eq!(start.ids[..1 + template], full.ids[..1 + template]);
    let generic = policy(Truncate::Start).tokenize(Role::Generic, None, &text).unwrap();
    assert_eq!(start.ids[1 + template..], generic.ids[1 + template..]);

    let error = policy(Truncate::Error).tokenize(Role::Query, None, &text).unwrap_err();
    assert_eq!(error, PipelineError::TextTooLong { limit: 64, actual: full.total });
    assert!(policy(Truncate::Error).tokenize(Role::Query, None, "a").is_ok());
    // The tokenizer's own side is a word of the files.
    let dir = copy("tiny-bert-cls");
    edit(dir.path(), "tokenizer_config.json", |json| json["truncation_side"] = json!("left"));
    let model = load(dir.path(), Isa::best());
    assert_eq!((model.descriptor().truncate, model.descriptor().origins.truncate), (Truncate::Start, Origin::Files));
}

#[test]
fn dimensions_are_cut_before_normalising() {
    let options = overriding(|overrides| overrides.matryoshka = Some(Matryoshka::Dimensions(vec![8, 16])));
    let model = tiny_with("tiny-bert-mean-pooler", &options);
    let raw = tiny_with("tiny-bert-mean-pooler", &LoadOptions { normalize: Some(false), ..options });
    assert_eq!([None, Some(8), Some(32)].map(|dimensions| model.check_dimensions(dimensions).unwrap()), [32, 8, 32]);
    for refused in [0, 1, 9, 33] {
        let error = model.check_dimensions(Some(refused)).unwrap_err();
        assert!(
            matches!(error, PipelineError::InvalidDimensions { native: 32, .. })
                && error.to_string().contains("8, 16 and 32"),
            "{error}"
        );
    }
    assert!(load(&tiny("tiny-bert-mean-pooler"), Isa::best()).check_dimensions(Some(8)).is_err());

    let mut machine = Machine::new(1);
    let golden = golden(&tiny("tiny-bert-mean-pooler"));
    for (ids, whole) in golden.ids.iter().zip(golden.raw.as_ref().unwrap()) {
        let norm = whole[..8].iter().map(|value| value * value).sum::<f32>().sqrt();
        let want: Vec<f32> = whole[..8].iter().map(|value| value / norm).collect();
        assert!(difference(&machine.encode(&model, &[ids], 8)[0], &want) < 1e-5);
        assert!(difference(&machine.encode(&raw, &[ids], 8)[0], &whole[..8]) < 1e-5);
    }
}

#[test]
fn poolings_stand_side_by_side_in_the_order_given() {
    let names = [
        (Pooling::Max, "tiny-bert-max"),
        (Pooling::MeanSqrtLen, "tiny-bert-meansqrt"),
        (Pooling::Mean, "tiny-bert-mean-pooler"),
    ];
    let options = LoadOptions {
        normalize: Some(false),
        ..overriding(|overrides| overrides.pooling = Some(names.map(|(pooling, _)| pooling).to_vec()))
    };
    // The three checkpoints have the same transformer.
    let model = tiny_with("tiny-bert-max", &options);
    let goldens = names.map(|(_, name)| golden(&tiny(name)));
    let mut machine = Machine::new(2);
    let ids: Vec<&[u32]> = goldens[0].ids.iter().map(Vec::as_slice).collect();
    for (i, vector) in machine.encode(&model, &ids, 96).iter().enumerate() {
        let want: Vec<f32> = goldens.iter().flat_map(|golden| golden.raw.as_ref().unwrap()[i].clone()).collect();
        assert!(difference(vector, &want) < 1e-5, "text {i}");
    }
}

#[test]
fn the_contract_is_that_of_the_content() {
    let golden_id = load(&tiny("tiny-bert-cls"), Isa::best()).contract(None);
    assert!(golden_id.len() == 16 && golden_id.bytes().all(|b| b.is_ascii_hexdigit()));

    // The same files as a cache holds them: blobs named by their hash, and an id and a commit.
    let cached = copy("tiny-bert-cls");
    let as_cached = ModelFiles {
        id: "owner/other".into(),
        revision: Some("c".repeat(40)),
        folder: cached.path().into(),
        source: Source::Cache,
    };
    #[cfg(unix)]
    {
        let blobs = cached.path().join("blobs");
        fs::create_dir(&blobs).unwrap();
        let weights = cached.path().join("model.safetensors");
        let blob = blobs.join(as_cached.sha256("model.safetensors").unwrap());
        fs::rename(&weights, &blob).unwrap();
        std::os::unix::fs::symlink(&blob, &weights).unwrap();
    }
    assert_eq!(TextModel::load(&as_cached, &options()).unwrap().contract(None), golden_id);

    // Whatever changes a vector changes the id.
    let variants = [
        LoadOptions { max_length: Some(63), ..options() },
        LoadOptions { normalize: Some(false), ..options() },
        LoadOptions { truncate: Some(Truncate::Error), ..options() },
        overriding(|overrides| overrides.pooling = Some(vec![Pooling::Mean])),
        overriding(|overrides| overrides.query_template = Some(None)),
        overriding(|overrides| overrides.passage_template = Some(Some("{text}".into()))),
    ];
    let mut ids = vec![golden_id.clone(), load(&tiny("tiny-bert-cls"), Isa::best()).contract(Some(16))];
    ids.extend(variants.iter().map(|options| tiny_with("tiny-bert-cls", options).contract(None)));
    for (name, pointer, value) in
        [("config.json", "/use_cache", json!(false)), ("tokenizer.json", "/model/max_input_chars_per_word", json!(99))]
    {
        let dir = copy("tiny-bert-cls");
        edit(dir.path(), name, |json| *json.pointer_mut(pointer).unwrap() = value);
        ids.push(load(dir.path(), Isa::best()).contract(None));
    }
    ids.push(load(&tiny("tiny-bert-mean-pooler"), Isa::best()).contract(None));
    let same: Vec<_> = ids.iter().enumerate().filter(|(i, id)| ids[..*i].contains(id)).collect();
    assert!(same.is_empty(), "{same:?} of {ids:?}");
    // What does not, does not: here an option that says what is so already.
    let stated =
        LoadOptions { max_length: Some(64), normalize: Some(true), truncate: Some(Truncate::End), ..options() };
    assert_eq!(tiny_with("tiny-bert-cls", &stated).contract(None), golden_id);
    assert_eq!(tiny_with("tiny-bert-cls", &stated).contract(Some(32)), golden_id);
}

#[test]
fn the_instruction_set_is_no_part_of_the_contract() {
    let ids: Vec<String> =
        Isa::available().into_iter().map(|isa| load(&tiny("tiny-bert-cls"), isa).contract(None)).collect();
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn do_lower_case_lowers_before_the_tokenizer() {
    let dir = copy("tiny-bert-cls");
    edit(dir.path(), "tokenizer.json", |json| json["normalizer"]["lowercase"] = json!(false));
    edit(dir.path(), "tokenizer_config.json", |json| json["do_lower_case"] = json!(false));
    let cased = load(dir.path(), Isa::best());
    edit(dir.path(), "sentence_bert_config.json", |json| json["do_lower_case"] = json!(true));
    let lowered = load(dir.path(), Isa::best());
    let ids = |model: &TextModel, text| model.tokenize(Role::Generic, None, text).unwrap().ids;
    assert_ne!(ids(&cased, "Hello World"), ids(&cased, "hello world"));
    assert_eq!(ids(&lowered, "Hello World"), ids(&cased, "hello world"));
    assert!(lowered.descriptor().lowercase && cased.contract(None) != lowered.contract(None));
}

#[test]
fn models_are_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<TextModel>();
}

#[test]
fn a_batch_of_nothing_and_a_stopped_one() {
    let model = load(&tiny("tiny-bert-cls"), Isa::best());
    let (pool, mut scratch) = (ThreadPool::new(1), Scratch::new());
    let mut ctx = Context { pool: &pool, scratch: &mut scratch, checkpoint: &|| Flow::Stop };
    assert_eq!(model.encode(&[], 32, &mut [], &mut ctx).unwrap(), []);
    let mut row = vec![0.0; 32];
    let error = model.encode(&[&tokens(&[4, 5])], 32, &mut [&mut row], &mut ctx).unwrap_err();
    assert_eq!(error, EncodeError::Stopped);
}

#[test]
fn loading_and_counting() {
    let model = load(&tiny("tiny-bert-dense"), Isa::best());
    assert!(model.memory_bytes() > 50_000 && model.cost(64) > model.cost(32) && model.cost(1) > 0);
    let shown = format!("{model:?}");
    assert!(shown.contains("tiny-bert-dense") && shown.contains(Isa::best().name()), "{shown}");
    let error: LoadError = TextModel::load(
        &ModelFiles { id: "x".into(), revision: None, folder: "/no/such".into(), source: Source::Folder },
        &options(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("config.json"), "{error}");
    let mut machine = Machine::new(1);
    let once = machine.encode(&model, &[&[4, 45, 5]], 24);
    assert_eq!(bits(&once[0]), bits(&machine.encode(&model, &[&[4, 45, 5]], 24)[0]));
}

#[test]
fn a_literal_prompt_and_a_pattern_that_reads_like_it_are_two_contracts() {
    let dir = copy("tiny-bert-cls");
    let prompt = json!({"query": "answer {instruction}: "});
    edit(dir.path(), "config_sentence_transformers.json", |json| json["prompts"] = prompt);
    let with = |template: Option<&str>| {
        let options = overriding(|overrides| {
            overrides.query_template = template.map(|template| Some(template.to_owned()));
            overrides.default_instruction = Some("fox".to_owned());
        });
        TextModel::load(&files(dir.path()), &options).unwrap()
    };
    let literal = with(None);
    let pattern = with(Some("answer {instruction}: {text}"));
    let mut machine = Machine::new(1);
    let mut vector = |model: &TextModel| {
        let ids = model.tokenize(Role::Query, None, "hello").unwrap().ids;
        bits(&machine.encode(model, &[&ids], 32)[0])
    };
    assert_ne!(vector(&literal), vector(&pattern));
    assert_ne!(literal.contract(None), pattern.contract(None));
    // A descriptor that is given back means what it meant.
    for model in [&literal, &pattern] {
        let again = with(model.descriptor().query_template.as_deref());
        assert_eq!(vector(&again), vector(model));
        assert_eq!(again.contract(None), model.contract(None));
    }
}
