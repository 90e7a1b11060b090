//! Multi-vector models: a vector for each token.

use super::{APACHE, Evidence, MB, MIT, ModelFamily, ModelKind, NON_COMMERCIAL, PICKLE, RegistryEntry, row};

const fn late(
    id: &'static str,
    (family, dimensions, max_length): (ModelFamily, usize, usize),
    licence: &'static str,
    size_bytes: u64,
    evidence: Evidence,
) -> RegistryEntry {
    RegistryEntry {
        dimensions: Some(dimensions),
        max_length: Some(max_length),
        normalize: Some(true),
        ..row(ModelKind::MultiVector, id, family, licence, size_bytes, evidence)
    }
}

/// Stanford's and Jina's ColBERT fill queries up to 32 tokens.
pub(super) static MODELS: [RegistryEntry; 4] = [
    late(
        "colbert-ir/colbertv2.0",
        (ModelFamily::Bert, 128, 180),
        MIT,
        440 * MB,
        Evidence::TinyCheckpoint("tiny-colbert"),
    ),
    late(
        "answerdotai/answerai-colbert-small-v1",
        (ModelFamily::Bert, 96, 300),
        APACHE,
        130 * MB,
        Evidence::TinyCheckpoint("tiny-colbert"),
    ),
    RegistryEntry {
        notes: Some("the tokens that fill a query up are attended to"),
        ..late(
            "jinaai/jina-colbert-v2",
            (ModelFamily::XlmRobertaFlash, 128, 300),
            NON_COMMERCIAL,
            1_120 * MB,
            Evidence::Unverified,
        )
    },
    RegistryEntry {
        notes: Some(PICKLE),
        ..late("BAAI/bge-m3", (ModelFamily::XlmRoberta, 1024, 8192), MIT, 2_270 * MB, Evidence::Unverified)
    },
];
