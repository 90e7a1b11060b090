use std::fs;

use super::*;

fn service(qwen_dir: Option<&Path>, home: Option<&Path>) -> Service {
    Service { dimensions: None, qwen_dir: qwen_dir.map(Path::to_path_buf), home: home.map(Path::to_path_buf) }
}

fn fill(folder: &Path, names: &[&str]) {
    fs::create_dir_all(folder).unwrap();
    names.iter().for_each(|name| fs::write(folder.join(name), "{}").unwrap());
}

const ID: &str = "Qwen/Qwen3-Embedding-0.6B";

#[test]
fn where_a_qwen_model_is() {
    let dir = tempfile::tempdir().unwrap();
    let (named, home, bare) = (dir.path().join("named"), dir.path().join("home"), dir.path().join("bare"));
    fill(&named, &FILES);
    let below = home.join(".simile/models/qwen3-embedding-0.6b");
    fill(&below, &["config.json", "tokenizer.json", "model.safetensors.index.json"]);
    fs::create_dir(&bare).unwrap();
    let other = "sentence-transformers/all-MiniLM-L6-v2";
    // (SIMILE_QWEN_MODEL_DIR, home, model, folder by the rule)
    let cases = [
        (Some(&named), Some(&home), ID, Some(&named)),
        (None, Some(&home), ID, Some(&below)),
        (None, Some(&home), "qwen/qwen3-embedding-0.6b", Some(&below)),
        // Not there: the usual places.
        (None, Some(&home), "Qwen/Qwen3-Embedding-4B", None),
        (None, Some(&bare), ID, None),
        (None, None, ID, None),
        // The rule is about Qwen3-Embedding by its id.
        (Some(&named), Some(&home), other, None),
        (Some(&named), Some(&home), "./qwen3-embedding-0.6b", None),
        (Some(&named), Some(&home), "Qwen/Qwen3-Reranker-0.6B", None),
    ];
    for (qwen_dir, home, model, expected) in cases {
        let service = service(qwen_dir.map(|dir| &**dir), home.map(|dir| &**dir));
        let files = service.files(&ModelRequest::new(model)).unwrap();
        assert_eq!(files.as_ref().map(|files| &files.folder), expected, "{qwen_dir:?} {home:?} {model}");
        // The id is the registry's, so that prompts and dimensions are.
        assert!(files.is_none_or(|files| files.id == ID));
    }
    let revised = ModelRequest { revision: Some("main".to_owned()), ..ModelRequest::new(ID) };
    assert_eq!(service(Some(&named), None).files(&revised).unwrap(), None);
}

#[test]
fn a_tilde_in_the_variable_is_the_home_directory() {
    let home = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    let of = |value: &str| {
        let lookup = |name: &str| match name {
            QWEN_VARIABLE => Some(value.to_owned()),
            name if name == home => Some("/home/u".to_owned()),
            _ => None,
        };
        Service::from_environment(None, &lookup).qwen_dir
    };
    let cases = [("~/qwen", Some("/home/u/qwen")), ("/models/~q", Some("/models/~q")), (" ", None)];
    for (value, expected) in cases {
        assert_eq!(of(value), expected.map(PathBuf::from), "{value}");
    }
}

#[test]
fn a_folder_that_is_not_whole_is_an_error_that_says_what_to_get_and_where() {
    let dir = tempfile::tempdir().unwrap();
    let (named, home) = (dir.path().join("named"), dir.path().join("home"));
    fill(&named, &["config.json"]);
    fill(&home.join(".simile/models/qwen3-embedding-0.6b"), &["config.json", "model.safetensors"]);
    let absent = dir.path().join("absent");
    let cases = [
        (Some(&named), None, "has no tokenizer.json, model.safetensors"),
        (None, Some(&home), "has no tokenizer.json"),
        (Some(&absent), Some(&home), "is not there"),
    ];
    for (qwen_dir, home, words) in cases {
        let service = service(qwen_dir.map(|dir| &**dir), home.map(|dir| &**dir));
        let failure = service.files(&ModelRequest::new(ID)).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::ModelInitialization);
        for part in
            [words, "https://huggingface.co/Qwen/Qwen3-Embedding-0.6B", QWEN_VARIABLE, "config.json, tokenizer.json"]
        {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }
}

#[test]
fn settings_of_an_environment() {
    let of = |values: &'static [(&str, &str)]| {
        Service::from_environment(Some(7), &|name| {
            values.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned())
        })
    };
    let set = of(&[("SIMILE_QWEN_MODEL_DIR", "/q"), ("HOME", "/h"), ("USERPROFILE", "/h")]);
    assert_eq!((set.dimensions, set.qwen_dir, set.home), (Some(7), Some("/q".into()), Some("/h".into())));
    let blank = of(&[("SIMILE_QWEN_MODEL_DIR", " "), ("HOME", "")]);
    assert_eq!((blank.qwen_dir, blank.home), (None, None));
}

#[test]
fn the_file_of_saved_vectors() {
    let home = service(None, Some(Path::new("/home/u")));
    let file = |id: &str, dimensions| home.cache_file(id, dimensions).to_string_lossy().replace('\\', "/");
    assert_eq!(file(ID, 1024), "/home/u/.simile/cache/embed_qwen3-embedding-0.6b_1024d.bin");
    assert_eq!(file("/models/My Qwen é/", 64), "/home/u/.simile/cache/embed_my-qwen--_64d.bin");
    assert_eq!(file("..", 64), "/home/u/.simile/cache/embed_.._64d.bin");
    assert!(service(None, None).cache_file(ID, 64).starts_with(std::env::temp_dir()));
    assert!(file(&"x".repeat(500), 64).len() < 200);
}

fn tokens(ids: &[u32]) -> Tokens {
    Tokens { ids: ids.to_vec(), ..Tokens::default() }
}

#[test]
fn only_rows_that_are_not_found_are_computed() {
    let cache = Arc::new(SavedCache::new(Identity { space: String::new(), dimensions: 2 }));
    let computed = std::cell::RefCell::new(Vec::new());
    // The vector of a text: its first id and its length. An id of 13 gives a vector that is not finite.
    let run = |batch: &[&Tokens]| {
        let mut values = vec![0.0; 2 * batch.len()];
        let mut out: Vec<&mut [f32]> = values.chunks_exact_mut(2).collect();
        let results = through(std::slice::from_ref(&cache), batch, &mut out, |batch, out| {
            computed.borrow_mut().extend(batch.iter().map(|tokens| (*tokens).clone()));
            let one = |(tokens, out): (&&Tokens, &mut &mut [f32])| {
                out.copy_from_slice(&[tokens.ids[0] as f32, tokens.ids.len() as f32]);
                if tokens.ids[0] == 13 { Err(NonFinite { component: 1 }) } else { Ok(()) }
            };
            Ok(batch.iter().zip(out).map(one).collect())
        });
        (results.unwrap(), values)
    };
    let [first, second, third, bad] = [tokens(&[1]), tokens(&[2, 2]), tokens(&[3, 3, 3]), tokens(&[13])];
    assert_eq!(run(&[&first, &third]), (vec![Ok(()); 2], vec![1.0, 1.0, 3.0, 3.0]));
    computed.borrow_mut().clear();
    let (results, values) = run(&[&third, &second, &bad, &first, &second]);
    assert_eq!(results, [Ok(()), Ok(()), Err(NonFinite { component: 1 }), Ok(()), Ok(())]);
    assert_eq!(values[..4], [3.0, 3.0, 2.0, 2.0]);
    assert_eq!(values[6..], [1.0, 1.0, 2.0, 2.0]);
    assert_eq!(*computed.borrow(), [second.clone(), bad.clone(), second.clone()]);
    computed.borrow_mut().clear();
    run(&[&bad, &first, &second, &third]);
    assert_eq!(*computed.borrow(), [bad], "what is not finite is not kept");
    computed.borrow_mut().clear();
    let other_prompt = Tokens { prompt: 1, ..second };
    run(&[&other_prompt]);
    assert_eq!(*computed.borrow(), [other_prompt], "the same ids with other tokens left out of the pooling");
}

#[test]
fn an_error_is_about_the_row_of_the_batch() {
    let cache = Arc::new(SavedCache::new(Identity { space: String::new(), dimensions: 1 }));
    let [first, second, third] = [tokens(&[1]), tokens(&[2]), tokens(&[3])];
    cache.insert(&key(&first), &[1.0]);
    let mut values = [0.0; 3];
    let mut out: Vec<&mut [f32]> = values.chunks_exact_mut(1).collect();
    let error = through(std::slice::from_ref(&cache), &[&first, &second, &third], &mut out, |batch, _| {
        assert_eq!(batch.len(), 2);
        Err(EncodeError::EmptySequence { sequence: 1 })
    });
    assert_eq!(error, Err(EncodeError::EmptySequence { sequence: 2 }));
    assert_eq!(cache.len(), 1);
}
