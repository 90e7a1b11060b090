//! Rerankers: a score of a query and a text.

use crate::cross_encoder::INSTRUCTION;

use super::{APACHE, Evidence, MB, MIT, ModelFamily, ModelKind, NON_COMMERCIAL, RegistryEntry, limited, row};

const fn rerank(
    id: &'static str,
    family: ModelFamily,
    licence: &'static str,
    size_bytes: u64,
    evidence: Evidence,
) -> RegistryEntry {
    row(ModelKind::Rerank, id, family, licence, size_bytes, evidence)
}

/// Qwen3-Reranker: its prompt is the head's, and takes a task.
const fn judging(entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { default_instruction: Some(INSTRUCTION), ..limited(8192, entry) }
}

const TINY_XLM_R: Evidence = Evidence::TinyCheckpoint("tiny-cross-xlmr");
const TINY_QWEN3: Evidence = Evidence::TinyCheckpoint("tiny-qwen3-reranker");

pub(super) static MODELS: [RegistryEntry; 8] = [
    rerank(
        "cross-encoder/ms-marco-MiniLM-L6-v2",
        ModelFamily::Bert,
        APACHE,
        91 * MB,
        Evidence::TinyCheckpoint("tiny-cross-bert"),
    ),
    RegistryEntry {
        size_bytes: None,
        notes: Some("its ALiBi slopes are not those of the formula, which no file of it tells"),
        // No checkpoint has a Jina encoder with a head, or these slopes.
        ..rerank("jinaai/jina-reranker-v1-tiny-en", ModelFamily::JinaBert, APACHE, 0, Evidence::Unverified)
    },
    rerank("BAAI/bge-reranker-base", ModelFamily::XlmRoberta, MIT, 1_110 * MB, TINY_XLM_R),
    rerank("BAAI/bge-reranker-v2-m3", ModelFamily::XlmRoberta, APACHE, 2_270 * MB, TINY_XLM_R),
    judging(rerank("Qwen/Qwen3-Reranker-0.6B", ModelFamily::Qwen3, APACHE, 1_190 * MB, TINY_QWEN3)),
    judging(rerank("Qwen/Qwen3-Reranker-4B", ModelFamily::Qwen3, APACHE, 8_000 * MB, TINY_QWEN3)),
    // The only one with a decoder of its own; the checkpoint's is the word table.
    judging(rerank("Qwen/Qwen3-Reranker-8B", ModelFamily::Qwen3, APACHE, 16_400 * MB, Evidence::Unverified)),
    limited(
        1024,
        rerank(
            "jinaai/jina-reranker-v2-base-multilingual",
            ModelFamily::XlmRobertaFlash,
            NON_COMMERCIAL,
            560 * MB,
            Evidence::Unverified,
        ),
    ),
];
