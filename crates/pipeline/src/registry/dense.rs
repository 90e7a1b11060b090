//! Dense models: one vector for each text.
//!
//! | group | templates |
//! |---|---|
//! | BGE v1.5, mxbai, Arctic | a sentence in front of queries, whose passages have none |
//! | E5 | `query: ` and `passage: ` |
//! | Nomic | `search_query: ` and `search_document: ` |
//! | Qwen3-Embedding | an instruction in front of queries, without a blank behind `Query:` |
//! | EmbeddingGemma | a task in front of queries, a title in front of passages |
//! | all others | none |

use super::Evidence::{RealWeights, TinyCheckpoint, Unverified};
use super::ModelFamily::{Bert, Gemma3, Gte, JinaBert, ModernBert, Mpnet, NomicBert, Qwen3, XlmRoberta};
use super::{APACHE, Evidence, MB, MIT, ModelFamily, ModelKind, PICKLE, RegistryEntry, Sizes, limited, noted, row};
use simile_encoder::Pooling::{self, Cls, LastToken, Mean};

/// The query prompt that BGE v1.5 and the models trained after it share.
const SEARCHING: Option<&str> = Some("Represent this sentence for searching relevant passages: {text}");

/// A symmetric, normalising model.
const fn dense(
    id: &'static str,
    (family, dimensions, pooling): (ModelFamily, usize, Pooling),
    licence: &'static str,
    size_bytes: u64,
    evidence: Evidence,
) -> RegistryEntry {
    RegistryEntry {
        dimensions: Some(dimensions),
        pooling: Some(pooling),
        normalize: Some(true),
        ..row(ModelKind::Dense, id, family, licence, size_bytes, evidence)
    }
}

/// Whether it normalises is not known here: its `modules.json` says.
const fn by_files(entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { normalize: None, ..entry }
}

/// Its `modules.json` has no Normalize.
const fn unscaled(entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { normalize: Some(false), ..entry }
}

const fn searching(entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { query_template: SEARCHING, ..entry }
}

const fn e5(entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { query_template: Some("query: {text}"), passage_template: Some("passage: {text}"), ..entry }
}

/// Arctic long has this architecture too, and Arctic's prompt.
const fn nomic(entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry {
        max_length: Some(8192),
        normalize: None,
        query_template: Some("search_query: {text}"),
        passage_template: Some("search_document: {text}"),
        ..entry
    }
}

const fn qwen3(id: &'static str, dimensions: usize, size_bytes: u64) -> RegistryEntry {
    RegistryEntry {
        max_length: Some(8192),
        query_template: Some("Instruct: {instruction}\nQuery:{text}"),
        default_instruction: Some("Given a web search query, retrieve relevant passages that answer the query"),
        matryoshka: Sizes::Any,
        notes: Some("its authors cut vectors to 32 dimensions at least"),
        ..dense(id, (Qwen3, dimensions, LastToken), APACHE, size_bytes, TinyCheckpoint("tiny-qwen3-embedding"))
    }
}

const BERT_CLS: Evidence = TinyCheckpoint("tiny-bert-cls");
const BERT_MEAN: Evidence = TinyCheckpoint("tiny-bert-mean-pooler");
const XLM_R: Evidence = TinyCheckpoint("tiny-xlm-roberta");

/// The default model comes first.
pub(super) static MODELS: [RegistryEntry; 36] = [
    RegistryEntry {
        // The weights of the test are the hub's file of this commit, byte for byte.
        revision: Some("1110a243fdf4706b3f48f1d95db1a4f5529b4d41"),
        ..limited(
            256,
            dense(
                "sentence-transformers/all-MiniLM-L6-v2",
                (Bert, 384, Mean),
                APACHE,
                91 * MB,
                RealWeights("sentence-transformers--all-MiniLM-L6-v2"),
            ),
        )
    },
    limited(128, dense("sentence-transformers/all-MiniLM-L12-v2", (Bert, 384, Mean), APACHE, 130 * MB, BERT_MEAN)),
    unscaled(limited(
        128,
        dense(
            "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
            (Bert, 384, Mean),
            APACHE,
            470 * MB,
            BERT_MEAN,
        ),
    )),
    unscaled(limited(
        128,
        dense(
            "sentence-transformers/paraphrase-multilingual-mpnet-base-v2",
            (XlmRoberta, 768, Mean),
            APACHE,
            1_110 * MB,
            XLM_R,
        ),
    )),
    limited(
        384,
        dense(
            "sentence-transformers/all-mpnet-base-v2",
            (Mpnet, 768, Mean),
            APACHE,
            440 * MB,
            // Its own weights are not among those that the tests compare.
            TinyCheckpoint("tiny-mpnet"),
        ),
    ),
    searching(dense("BAAI/bge-small-en-v1.5", (Bert, 384, Cls), MIT, 130 * MB, BERT_CLS)),
    searching(dense("BAAI/bge-base-en-v1.5", (Bert, 768, Cls), MIT, 440 * MB, BERT_CLS)),
    searching(dense("BAAI/bge-large-en-v1.5", (Bert, 1024, Cls), MIT, 1_340 * MB, BERT_CLS)),
    RegistryEntry {
        // The colon is full-width, as in the model's own examples.
        query_template: Some("为这个句子生成表示以用于检索相关文章：{text}"),
        ..dense("BAAI/bge-small-zh-v1.5", (Bert, 512, Cls), MIT, 100 * MB, BERT_CLS)
    },
    noted(PICKLE, limited(8192, dense("BAAI/bge-m3", (XlmRoberta, 1024, Cls), MIT, 2_270 * MB, XLM_R))),
    // Weights dequantised from 4 bits were compared: real shapes and tokenizer, but not the model's float32 numbers.
    e5(dense("intfloat/multilingual-e5-small", (Bert, 384, Mean), MIT, 470 * MB, BERT_MEAN)),
    e5(dense("intfloat/multilingual-e5-base", (XlmRoberta, 768, Mean), MIT, 1_110 * MB, XLM_R)),
    e5(dense("intfloat/multilingual-e5-large", (XlmRoberta, 1024, Mean), MIT, 2_240 * MB, XLM_R)),
    dense("thenlper/gte-base", (Bert, 768, Mean), MIT, 220 * MB, BERT_MEAN),
    dense("thenlper/gte-large", (Bert, 1024, Mean), MIT, 670 * MB, BERT_MEAN),
    by_files(searching(dense("mixedbread-ai/mxbai-embed-large-v1", (Bert, 1024, Cls), APACHE, 670 * MB, BERT_CLS))),
    searching(dense("Snowflake/snowflake-arctic-embed-xs", (Bert, 384, Cls), APACHE, 90 * MB, BERT_CLS)),
    searching(dense("Snowflake/snowflake-arctic-embed-s", (Bert, 384, Cls), APACHE, 130 * MB, BERT_CLS)),
    searching(dense("Snowflake/snowflake-arctic-embed-m", (Bert, 768, Cls), APACHE, 440 * MB, BERT_CLS)),
    searching(dense("Snowflake/snowflake-arctic-embed-l", (Bert, 1024, Cls), APACHE, 1_340 * MB, BERT_CLS)),
    searching(limited(
        8192,
        // The checkpoint has no dynamic NTK, which begins after 2,048 tokens.
        noted(
            "rotary base grows with a text's own length past 2048 tokens",
            dense(
                "Snowflake/snowflake-arctic-embed-m-long",
                (NomicBert, 768, Cls),
                APACHE,
                550 * MB,
                TinyCheckpoint("tiny-nomic"),
            ),
        ),
    )),
    by_files(limited(
        8192,
        dense(
            "jinaai/jina-embeddings-v2-small-en",
            (JinaBert, 512, Mean),
            APACHE,
            70 * MB,
            TinyCheckpoint("tiny-jina-v2"),
        ),
    )),
    by_files(limited(
        8192,
        dense(
            "jinaai/jina-embeddings-v2-base-en",
            (JinaBert, 768, Mean),
            APACHE,
            270 * MB,
            TinyCheckpoint("tiny-jina-v2-6heads"),
        ),
    )),
    // Other block shapes than the checkpoints have; the last two also normalise queries and keys.
    by_files(limited(
        8192,
        dense("jinaai/jina-embeddings-v2-base-de", (JinaBert, 768, Mean), APACHE, 320 * MB, Unverified),
    )),
    by_files(limited(
        8192,
        dense("jinaai/jina-embeddings-v2-base-zh", (JinaBert, 768, Mean), APACHE, 320 * MB, Unverified),
    )),
    by_files(limited(
        8192,
        dense("jinaai/jina-embeddings-v2-base-es", (JinaBert, 768, Mean), APACHE, 320 * MB, Unverified),
    )),
    by_files(limited(
        8192,
        dense("jinaai/jina-embeddings-v2-base-code", (JinaBert, 768, Mean), APACHE, 320 * MB, Unverified),
    )),
    noted(
        "rotary base grows with a text's own length past 2048 tokens",
        nomic(dense(
            "nomic-ai/nomic-embed-text-v1",
            (NomicBert, 768, Mean),
            APACHE,
            550 * MB,
            TinyCheckpoint("tiny-nomic"),
        )),
    ),
    RegistryEntry {
        layer_norm_before_cut: true,
        matryoshka: Sizes::These(&[64, 128, 256, 512]),
        ..nomic(dense(
            "nomic-ai/nomic-embed-text-v1.5",
            (NomicBert, 768, Mean),
            APACHE,
            550 * MB,
            TinyCheckpoint("tiny-nomic"),
        ))
    },
    by_files(limited(
        8192,
        dense("Alibaba-NLP/gte-base-en-v1.5", (Gte, 768, Cls), APACHE, 550 * MB, TinyCheckpoint("tiny-gte-en")),
    )),
    RegistryEntry {
        matryoshka: Sizes::Any,
        normalize: None,
        notes: Some("its authors cut vectors to 128 dimensions at least"),
        ..limited(
            8192,
            dense(
                "Alibaba-NLP/gte-multilingual-base",
                (Gte, 768, Cls),
                APACHE,
                610 * MB,
                TinyCheckpoint("tiny-gte-multilingual"),
            ),
        )
    },
    by_files(limited(
        8192,
        dense(
            "Alibaba-NLP/gte-modernbert-base",
            (ModernBert, 768, Cls),
            APACHE,
            300 * MB,
            TinyCheckpoint("tiny-modernbert"),
        ),
    )),
    qwen3("Qwen/Qwen3-Embedding-0.6B", 1024, 1_190 * MB),
    qwen3("Qwen/Qwen3-Embedding-4B", 2560, 8_000 * MB),
    qwen3("Qwen/Qwen3-Embedding-8B", 4096, 15_100 * MB),
    RegistryEntry {
        max_length: Some(2048),
        query_template: Some("task: {instruction} | query: {text}"),
        passage_template: Some("title: none | text: {text}"),
        default_instruction: Some("search result"),
        matryoshka: Sizes::These(&[128, 256, 512]),
        gated: true,
        ..dense(
            "google/embeddinggemma-300m",
            (Gemma3, 768, Mean),
            "LicenseRef-Gemma",
            1_200 * MB,
            TinyCheckpoint("tiny-embeddinggemma"),
        )
    },
];
