//! Real models through the engine: loading, sharing, the same bytes whatever the company, disposal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use simile_engine::{
    CancelToken, CountJob, DescriptorOverrides, EmbedJob, EmbedOutput, Engine, ErrorKind, Failure, LazyModel,
    LoadRequest, LoadedModel, ModelRequest, Priority, Role,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures/tiny").join(name)
}

fn request(folder: &Path) -> LoadRequest {
    LoadRequest { model: ModelRequest::new(folder.to_str().unwrap()), ..LoadRequest::default() }
}

fn load(model: &LazyModel) -> Result<Arc<LoadedModel>, Failure> {
    let (sender, receiver) = channel();
    model.load(&CancelToken::new(), move |outcome| sender.send(outcome).unwrap());
    receiver.recv().unwrap()
}

fn embed(model: &LazyModel, job: EmbedJob) -> Result<EmbedOutput, Failure> {
    let (sender, receiver) = channel();
    model.embed(job, &CancelToken::new(), move |result| sender.send(result).unwrap());
    receiver.recv().unwrap()
}

/// Texts of very different lengths, empty and too long ones among them.
fn texts() -> Vec<String> {
    let words = ["search", "vector", "a", "database", "of", "the", "similar", "texts", "", "Zürich", "漢字", "!"];
    (0..60).map(|i| (0..(i * i) % 70).map(|j| words[(i + 3 * j) % words.len()]).collect::<Vec<_>>().join(" ")).collect()
}

/// A folder of this test alone.
struct Copy(PathBuf);

impl Copy {
    fn of(name: &str, test: &str) -> Copy {
        let to = std::env::temp_dir().join(format!("simile-engine-{test}-{}", std::process::id()));
        copy(&fixture(name), &to);
        Copy(to)
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn services_that_ask_for_the_same_share_one_model() {
    let folder = fixture("tiny-bert-mean-pooler");
    let (first, second) = (LazyModel::new(request(&folder)), LazyModel::new(request(&folder)));
    let other = LazyModel::new(LoadRequest { max_length: Some(16), ..request(&folder) });
    assert!(first.get().is_none());
    let model = load(&first).unwrap();
    assert!(Arc::ptr_eq(&model, &load(&second).unwrap()));
    let shorter = load(&other).unwrap();
    assert!(!Arc::ptr_eq(&model, &shorter));
    assert_eq!(shorter.text().unwrap().max_length(), 16);
}

#[test]
fn a_folder_that_changed_is_another_model() {
    let folder = Copy::of("tiny-bert-mean-pooler", "changed");
    let first = LazyModel::new(request(&folder.0));
    let model = load(&first).unwrap();
    let config = folder.0.join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}\n")).unwrap();
    assert!(!Arc::ptr_eq(&model, &load(&LazyModel::new(request(&folder.0))).unwrap()));
}

#[test]
fn a_folder_whose_module_changed_is_another_model() {
    let folder = Copy::of("tiny-bert-mean-pooler", "module");
    let model = load(&LazyModel::new(request(&folder.0))).unwrap();
    let before = LazyModel::new(request(&folder.0));
    assert!(Arc::ptr_eq(&model, &load(&before).unwrap()), "unchanged");
    let config = folder.0.join("1_Pooling/config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let mean = r#""pooling_mode_mean_tokens": true"#;
    let cls = r#""pooling_mode_cls_token": false"#;
    assert!(text.contains(mean) && text.contains(cls), "{text}");
    let other = text.replace(mean, &mean.replace("true", "false")).replace(cls, &cls.replace("false", "true"));
    std::fs::write(&config, other).unwrap();
    let changed = load(&LazyModel::new(request(&folder.0))).unwrap();
    assert_ne!(model.text().unwrap().descriptor().pooling, changed.text().unwrap().descriptor().pooling);
}

#[test]
fn a_load_sets_the_size_of_the_pool_when_it_succeeds() {
    let engine = Engine::process().unwrap();
    let size = || engine.threads();
    let before = size();
    let other = before + 1;
    let asking = |folder: &Path| LazyModel::new(LoadRequest { threads: Some(other), ..request(folder) });
    load(&asking(&std::env::temp_dir().join("simile-engine-no-such-model"))).unwrap_err();
    let broken = Copy::of("tiny-bert-mean-pooler", "threads");
    std::fs::write(broken.0.join("tokenizer.json"), "{").unwrap();
    load(&asking(&broken.0)).unwrap_err();
    assert_eq!(size(), before, "failed loads");
    // Alive already: who joins sets it too.
    let folder = fixture("tiny-bert-mean-pooler");
    let first = LazyModel::new(request(&folder));
    load(&first).unwrap();
    assert_eq!(size(), before, "a load that names no count");
    load(&asking(&folder)).unwrap();
    assert_eq!(size(), other);
    engine.set_threads(before);
}

#[test]
fn a_model_that_is_not_there_is_a_remembered_failure_that_names_it() {
    let folder = std::env::temp_dir().join("simile-engine-no-such-model");
    let model = LazyModel::new(request(&folder));
    let failure = load(&model).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::ModelInitialization);
    assert_eq!(failure.model.as_deref(), folder.to_str());
    let job = EmbedJob { texts: texts(), ..EmbedJob::default() };
    assert_eq!(embed(&model, job).unwrap_err(), failure);
}

#[test]
fn options_that_are_not_allowed_fail_the_load() {
    let folder = fixture("tiny-bert-mean-pooler");
    for threads in [0, 100_000] {
        let model = LazyModel::new(LoadRequest { threads: Some(threads), ..request(&folder) });
        let failure = load(&model).unwrap_err();
        assert_eq!((failure.kind, failure.actual), (ErrorKind::InvalidInput, Some(threads as f64)));
    }
    let model = LazyModel::new(LoadRequest { max_length: Some(1), ..request(&folder) });
    let failure = load(&model).unwrap_err();
    assert_eq!((failure.kind, failure.limit, failure.unit), (ErrorKind::InvalidInput, Some(3.0), Some("tokens")));
}

#[test]
fn a_model_of_another_kind_is_unsupported_and_a_broken_one_is_not_initialised() {
    let cases = [
        (r#""model_type": "bert""#, r#""model_type": "mamba""#, ErrorKind::UnsupportedModel),
        (r#""hidden_act": "gelu""#, r#""hidden_act": "snake""#, ErrorKind::UnsupportedModel),
        (r#""num_hidden_layers": "#, r#""num_hidden_layers": -"#, ErrorKind::ModelInitialization),
        (r#""num_hidden_layers": "#, r#""num_hidden_layers": 1"#, ErrorKind::ModelInitialization),
    ];
    let folder = Copy::of("tiny-bert-mean-pooler", "kinds");
    let config = folder.0.join("config.json");
    let good = std::fs::read_to_string(&config).unwrap();
    for (from, to, kind) in cases {
        assert!(good.contains(from), "{from}");
        std::fs::write(&config, good.replace(from, to)).unwrap();
        let failure = load(&LazyModel::new(request(&folder.0))).unwrap_err();
        assert_eq!(failure.kind, kind, "{to}: {failure}");
    }
}

#[test]
fn a_text_has_the_same_bytes_whatever_its_company() {
    let lazy = LazyModel::new(request(&fixture("tiny-bert-mean-pooler")));
    let model = load(&lazy).unwrap();
    let run = |engine: &Engine, job: EmbedJob| {
        let (sender, receiver) = channel();
        engine.embed(model.clone(), Arc::default(), job, &[], move |result| sender.send(result).unwrap());
        receiver
    };
    let texts = texts();
    let alone: Vec<Vec<f32>> = {
        let engine = Engine::new(1);
        let one = |text: &String| {
            let job = EmbedJob { texts: vec![text.clone()], priority: Priority::Interactive, ..EmbedJob::default() };
            run(&engine, job).recv().unwrap().unwrap().data
        };
        texts.iter().map(one).collect()
    };
    let mut wrong = Vec::new();
    for threads in [1, 2, 3, 4, 7] {
        let engine = Engine::new(threads);
        for batch_size in [None, Some(1), Some(2), Some(7), Some(32), Some(64)] {
            for priority in [Priority::Bulk, Priority::Interactive] {
                let reversed: Vec<String> = texts.iter().rev().cloned().collect();
                let job = EmbedJob { texts: reversed, batch_size, priority, ..EmbedJob::default() };
                let bulk = run(&engine, job);
                let between = run(
                    &engine,
                    EmbedJob { texts: vec![texts[7].clone()], priority: Priority::Interactive, ..EmbedJob::default() },
                );
                let output = bulk.recv().unwrap().unwrap();
                let rows = output.data.chunks_exact(output.dimensions).rev().map(<[f32]>::to_vec);
                let differing = rows.zip(&alone).filter(|(row, alone)| row != *alone).count();
                if differing > 0 || between.recv().unwrap().unwrap().data != alone[7] {
                    wrong.push((threads, batch_size, priority, differing));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "(threads, batch size, priority, rows that differ): {wrong:?}");
}

#[test]
fn a_call_loads_the_model_and_reports_what_was_cut() {
    let model = LazyModel::new(LoadRequest { max_length: Some(8), ..request(&fixture("tiny-bert-mean-pooler")) });
    let texts = vec!["search ".repeat(50), "a".to_owned()];
    let output = embed(&model, EmbedJob { texts: texts.clone(), ..EmbedJob::default() }).unwrap();
    assert_eq!(output.data.len(), 2 * output.dimensions);
    assert!(output.tokens.total[0] > 50 && output.tokens.embedded[0] == 8);
    assert_eq!(output.tokens.total[1], output.tokens.embedded[1]);
    assert_eq!(output.contract_id, model.get().unwrap().unwrap().text().unwrap().contract(None));
    let (sender, receiver) = channel();
    let job = CountJob { texts, ..CountJob::default() };
    model.count(job, &CancelToken::new(), move |result| sender.send(result).unwrap());
    assert_eq!(receiver.recv().unwrap().unwrap(), output.tokens);
    let counted = model.statistics();
    assert_eq!((counted.calls, counted.texts, counted.truncated), (2, 2, 1));
}

#[test]
fn requests_that_the_model_cannot_meet_are_refused() {
    let model = LazyModel::new(request(&fixture("tiny-bert-mean-pooler")));
    let one = || EmbedJob { texts: vec!["a".to_owned()], ..EmbedJob::default() };
    for job in [
        EmbedJob { dimensions: Some(0), ..one() },
        EmbedJob { dimensions: Some(100_000), ..one() },
        EmbedJob { instruction: Some("find".to_owned()), role: Role::Query, ..one() },
    ] {
        let failure = embed(&model, job.clone()).unwrap_err();
        assert_eq!((failure.kind, failure.index), (ErrorKind::InvalidInput, None), "{job:?}");
        let option = if job.instruction.is_some() { "instruction" } else { "dimensions" };
        assert_eq!(failure.option, Some(option));
    }
    let descriptor = DescriptorOverrides {
        query_template: Some(Some("{instruction}: {text}".to_owned())),
        ..DescriptorOverrides::default()
    };
    let model =
        LazyModel::new(LoadRequest { descriptor: Some(descriptor), ..request(&fixture("tiny-bert-mean-pooler")) });
    let query = |instruction: Option<&str>| EmbedJob {
        role: Role::Query,
        instruction: instruction.map(str::to_owned),
        ..one()
    };
    embed(&model, query(Some("find"))).unwrap();
    let failure = embed(&model, query(None)).unwrap_err();
    assert_eq!((failure.kind, failure.option, failure.index), (ErrorKind::InvalidInput, Some("instruction"), None));
}

#[test]
fn disposal_ends_calls_in_flight_and_frees_the_model() {
    let folder = Copy::of("tiny-bert-mean-pooler", "disposed");
    let model = LazyModel::new(request(&folder.0));
    let loaded = Arc::downgrade(&load(&model).unwrap());
    let (sender, receiver) = channel();
    let job = EmbedJob { texts: (0..20).flat_map(|_| texts()).collect(), ..EmbedJob::default() };
    model.embed(job, &CancelToken::new(), move |result| sender.send(result).unwrap());
    model.dispose();
    match receiver.recv().unwrap() {
        // It was that quick.
        Ok(output) => assert_eq!(output.tokens.total.len(), 1200),
        Err(failure) => assert_eq!(failure.kind, ErrorKind::ModelNotLoaded),
    }
    let failure = embed(&model, EmbedJob { texts: texts(), ..EmbedJob::default() }).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::ModelNotLoaded);
    assert_eq!(failure.model.as_deref(), folder.0.to_str());
    // The dispatcher lets go after the layer that it is in. A call of another model that is answered comes after that.
    let other = LazyModel::new(request(&fixture("tiny-bert-cls")));
    embed(&other, EmbedJob { texts: texts(), ..EmbedJob::default() }).unwrap();
    assert!(loaded.upgrade().is_none());
}
