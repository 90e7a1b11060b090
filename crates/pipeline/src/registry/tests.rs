use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::template::Template;

fn fixtures(folder: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures").join(folder)
}

/// `model_type` of the checkpoints of a family.
fn model_types(family: ModelFamily) -> &'static [&'static str] {
    match family {
        ModelFamily::Bert | ModelFamily::JinaBert => &["bert"],
        ModelFamily::XlmRoberta => &["xlm-roberta"],
        ModelFamily::Mpnet => &["mpnet"],
        ModelFamily::NomicBert => &["nomic_bert"],
        ModelFamily::Gte => &["new", "gte"],
        ModelFamily::ModernBert => &["modernbert"],
        ModelFamily::Gemma3 => &["gemma3_text"],
        ModelFamily::Qwen3 => &["qwen3"],
        // Nothing of its files names it.
        ModelFamily::XlmRobertaFlash | ModelFamily::Bm25 => &[],
        ModelFamily::Static => &["model2vec"],
    }
}

#[test]
fn all_models_are_there() {
    let count = |kind| registry().filter(|entry| entry.kind == kind).count();
    // 35 and all-MiniLM-L12-v2; three static ones.
    assert_eq!(ModelKind::ALL.map(count), [36 + 3, 6, 4, 8]);
    let keys: HashSet<_> = registry().map(|entry| (entry.kind, entry.id.to_ascii_lowercase())).collect();
    assert_eq!(keys.len(), registry().count(), "an id is unique within its kind");
    assert_eq!(registry().next().unwrap().id, "sentence-transformers/all-MiniLM-L6-v2");
    for family in ModelFamily::ALL {
        assert!(registry().any(|entry| entry.family == family), "{}", family.name());
    }
}

#[test]
fn rows_are_sound() {
    let mut wrong = Vec::new();
    for entry in registry() {
        let templates = [entry.query_template, entry.passage_template];
        let mut check = |what: &str, good: bool| {
            if !good {
                wrong.push(format!("{} ({}): {what}", entry.id, entry.kind));
            }
        };
        check("id", simile_hub::check_model_id(entry.id).is_ok() && entry.id.contains('/'));
        check(
            "templates",
            templates.iter().flatten().all(|pattern| {
                Template::parse(pattern)
                    .is_some_and(|template| !template.takes_instruction() || entry.default_instruction.is_some())
            }),
        );
        let dense = entry.kind == ModelKind::Dense;
        check("pooling", entry.pooling.is_some() == dense);
        check("length", entry.max_length.is_none_or(|length| (128..=8192).contains(&length)));
        check(
            "dimensions",
            match (entry.kind, entry.dimensions) {
                (ModelKind::Dense, Some(width)) => width % 128 == 0 && width <= 4096,
                (ModelKind::Sparse, Some(vocabulary)) => vocabulary > 10_000,
                (ModelKind::Sparse, None) => entry.family == ModelFamily::Bm25,
                (ModelKind::MultiVector, Some(width)) => width % 32 == 0 && width <= 1024,
                (ModelKind::Rerank, None) => true,
                _ => false,
            },
        );
        check(
            "sizes",
            match entry.matryoshka {
                Sizes::Native => true,
                Sizes::Any => dense,
                Sizes::These(sizes) => {
                    dense && sizes.is_sorted() && sizes.iter().all(|&size| Some(size) < entry.dimensions)
                }
            },
        );
        check("bytes", entry.size_bytes.is_none_or(|bytes| bytes > 20 * MB || entry.family == ModelFamily::Bm25));
        check("licence", !entry.licence.is_empty() && !entry.licence.contains(' '));
        check("revision", entry.revision.is_none_or(|revision| revision.len() == 40));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn families_are_those_of_the_encoder() {
    let supported = simile_encoder::families::SUPPORTED_MODEL_TYPES;
    let wrong: Vec<_> = ModelFamily::ALL
        .into_iter()
        .filter(|family| !matches!(family, ModelFamily::Static))
        .flat_map(|family| model_types(family).iter().filter(|name| !supported.contains(name)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?} of {supported:?}");
}

#[test]
fn evidence_is_in_the_repository_and_of_the_same_family() {
    let mut wrong = Vec::new();
    for entry in registry() {
        let good = match entry.evidence {
            Evidence::RealWeights(name) => {
                fixtures("reference").join(format!("{name}.json")).is_file()
                    && name == entry.id.replace('/', "--")
                    && entry.unsupported.is_none()
            }
            Evidence::TinyCheckpoint(name) => {
                let folder = fixtures("tiny").join(name);
                let config: Option<Value> =
                    fs::read(folder.join("config.json")).ok().and_then(|text| serde_json::from_slice(&text).ok());
                config.is_some_and(|config| {
                    let model_type = config["model_type"].as_str().unwrap_or_default();
                    let alibi = config["position_embedding_type"] == "alibi";
                    folder.join("golden.json").is_file()
                        && model_types(entry.family).contains(&model_type)
                        && alibi == (entry.family == ModelFamily::JinaBert)
                }) && entry.unsupported.is_none()
            }
            Evidence::Unverified => true,
        };
        if !good {
            wrong.push((entry.id, entry.evidence));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn prompts_are_those_of_the_models_to_the_last_blank() {
    let qwen = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:";
    let cases = [
        ("baai/BGE-small-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("Snowflake/snowflake-arctic-embed-m-long", "Represent this sentence for searching relevant passages: ", ""),
        ("BAAI/bge-small-zh-v1.5", "为这个句子生成表示以用于检索相关文章：", ""),
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("nomic-ai/nomic-embed-text-v1.5", "search_query: ", "search_document: "),
        ("Qwen/Qwen3-Embedding-0.6B", qwen, ""),
        ("google/embeddinggemma-300m", "task: search result | query: ", "title: none | text: "),
        ("BAAI/bge-m3", "", ""),
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
    ];
    for (id, query, passage) in cases {
        let entry = registered(id).unwrap_or_else(|| panic!("{id}"));
        let rendered = |pattern: Option<&str>| {
            let instruction = entry.default_instruction.unwrap_or_default();
            pattern.map_or(String::new(), |pattern| {
                Template::parse(pattern).unwrap().render("", instruction).whole.into_owned()
            })
        };
        assert_eq!(
            (rendered(entry.query_template), rendered(entry.passage_template)),
            (query.into(), passage.into()),
            "{id}"
        );
    }
    assert!(registered("nobody/nothing").is_none());
    // Known as another kind only.
    assert!(registered("Qdrant/bm25").is_none());
    assert!(registered_as(ModelKind::Sparse, "qdrant/BM25").is_some());
}

#[test]
fn what_is_known_to_fail_fails_before_a_download() {
    // (kind, id, words of the error; none: allowed)
    let cases: [(ModelKind, &str, &[&str]); 8] = [
        (ModelKind::Dense, "sentence-transformers/all-MiniLM-L6-v2", &[]),
        (ModelKind::Dense, "nobody/nothing", &[]),
        (ModelKind::Dense, "jinaai/jina-embeddings-v2-small-en", &[]),
        (ModelKind::Sparse, "jinaai/jina-embeddings-v2-small-en", &["miniCOIL", "sparse"]),
        (ModelKind::Sparse, "naver/splade-code-06B", &["naver/splade-code-06B", "Qwen3"]),
        (ModelKind::Rerank, "jinaai/jina-reranker-v1-tiny-en", &["jina-reranker-v1-tiny-en", "slopes"]),
        (ModelKind::Dense, "colbert-ir/colbertv2.0", &["multi-vector", "MultiVectorTextEmbedding", "dense"]),
        (ModelKind::Dense, "qdrant/bm25", &["qdrant/bm25", "sparse", "SparseTextEmbedding"]),
    ];
    for (kind, id, words) in cases {
        let result = check_registered(kind, id).map_err(|error| error.to_string());
        match result {
            Ok(()) => assert!(words.is_empty(), "{kind} {id} is allowed"),
            Err(message) => {
                assert!(!words.is_empty() && words.iter().all(|word| message.contains(word)), "{kind} {id}: {message}")
            }
        }
    }
}

#[test]
fn hints_for_ids_that_are_almost_right() {
    let cases = [
        ("all-MiniLM-L6-v2", Some("'sentence-transformers/all-MiniLM-L6-v2'")),
        ("ALL-minilm-l6-V2", Some("'sentence-transformers/all-MiniLM-L6-v2'")),
        ("baai/bge-small-en-v1.5", Some("'BAAI/bge-small-en-v1.5'")),
        ("someone/bge-m3", Some("'BAAI/bge-m3'")),
        ("google/embeddinggemma-300m", Some("gated")),
        ("BAAI/bge-m3", None),
        ("nobody/nothing", None),
        ("", None),
    ];
    for (id, expected) in cases {
        let hint = hint(id);
        assert_eq!(hint.is_some(), expected.is_some(), "{id}: {hint:?}");
        assert!(hint.unwrap_or_default().contains(expected.unwrap_or_default()), "{id}");
    }
}
