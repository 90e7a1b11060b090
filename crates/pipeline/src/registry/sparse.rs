//! Sparse models: weights of words.

use super::{APACHE, Evidence, MB, MIT, ModelFamily, ModelKind, PICKLE, RegistryEntry, row};

const fn sparse(
    id: &'static str,
    (family, vocabulary, max_length): (ModelFamily, usize, usize),
    licence: &'static str,
    size_bytes: u64,
    evidence: Evidence,
) -> RegistryEntry {
    RegistryEntry {
        dimensions: Some(vocabulary),
        max_length: Some(max_length),
        ..row(ModelKind::Sparse, id, family, licence, size_bytes, evidence)
    }
}

pub(super) static MODELS: [RegistryEntry; 6] = [
    RegistryEntry {
        notes: Some(PICKLE),
        ..sparse(
            "prithivida/Splade_PP_en_v1",
            (ModelFamily::Bert, 30_522, 512),
            APACHE,
            440 * MB,
            // A SPLADE of two layers with real weights was compared too; these weights were not.
            Evidence::TinyCheckpoint("tiny-splade"),
        )
    },
    RegistryEntry {
        notes: Some(PICKLE),
        ..sparse("BAAI/bge-m3", (ModelFamily::XlmRoberta, 250_002, 8192), MIT, 2_270 * MB, Evidence::Unverified)
    },
    RegistryEntry {
        size_bytes: None,
        unsupported: Some("its SPLADE head stands on a Qwen3 decoder; SPLADE is for masked language models here"),
        ..sparse(
            "naver/splade-code-06B",
            (ModelFamily::Qwen3, 151_936, 1024),
            "LicenseRef-NAVER-NonCommercial",
            0,
            Evidence::Unverified,
        )
    },
    RegistryEntry {
        notes: Some("the head is in another repository, Qdrant/minicoil-v1"),
        unsupported: Some("miniCOIL, its sparse head, has its weights in another repository, which is not read"),
        ..sparse(
            "jinaai/jina-embeddings-v2-small-en",
            (ModelFamily::JinaBert, 19_125, 8192),
            APACHE,
            70 * MB,
            Evidence::Unverified,
        )
    },
    RegistryEntry {
        notes: Some("BM42: the attention that the first token of the last layer pays to each word"),
        ..sparse(
            "sentence-transformers/all-MiniLM-L6-v2",
            (ModelFamily::Bert, 30_522, 256),
            APACHE,
            91 * MB,
            // The encoder's weights are the dense row's, which were compared; the attention weights were not.
            Evidence::Unverified,
        )
    },
    RegistryEntry {
        dimensions: None,
        max_length: None,
        notes: Some("computed: no weights, no files"),
        ..sparse("Qdrant/bm25", (ModelFamily::Bm25, 0, 0), APACHE, 0, Evidence::Unverified)
    },
];
