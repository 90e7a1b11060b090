//! Models that are known by id: what their files cannot say.
//!
//! Registered are templates, default length, licence, size, and whether a model is gated or may be cut to fewer
//! dimensions. Whatever a model's files say beats its entry; an unregistered model of a known architecture loads as well.
//! Templates keep the blank at their end, as the models were trained with it. Sizes are those of the weights file on the
//! hub, to two digits. Source of each row: the model's page on the hub.

use simile_encoder::Pooling;

/// What is known of a model before its files are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryEntry {
    /// The model's id on the hub.
    pub id: &'static str,
    /// Native output dimension.
    pub dimensions: usize,
    /// Limit in tokens that the model was trained for, special tokens included.
    pub max_length: usize,
    /// How hidden states become one vector.
    pub pooling: Pooling,
    /// Template of queries.
    pub query_template: Option<&'static str>,
    /// Template of passages.
    pub passage_template: Option<&'static str>,
    /// What `{instruction}` in a template stands for by default.
    pub default_instruction: Option<&'static str>,
    /// Whether vectors get unit length.
    pub normalize: bool,
    /// Whether vectors may be cut to fewer dimensions (Matryoshka).
    pub matryoshka: bool,
    /// SPDX identifier.
    pub licence: &'static str,
    /// Size of the weights in bytes, to two digits.
    pub size_bytes: u64,
    /// Whether its licence has to be accepted on the hub first.
    pub gated: bool,
}

const MB: u64 = 1_000_000;
const APACHE: &str = "Apache-2.0";
const MIT: &str = "MIT";

/// The query prompt that BGE v1.5 and the models trained after it share.
const SEARCHING: Option<&str> = Some("Represent this sentence for searching relevant passages: {text}");

/// A symmetric, normalising model; the rows below say what is different.
const fn entry(
    id: &'static str,
    dimensions: usize,
    pooling: Pooling,
    licence: &'static str,
    size_bytes: u64,
) -> RegistryEntry {
    RegistryEntry {
        id,
        dimensions,
        max_length: 512,
        pooling,
        query_template: None,
        passage_template: None,
        default_instruction: None,
        normalize: true,
        matryoshka: false,
        licence,
        size_bytes,
        gated: false,
    }
}

const fn searching(entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { query_template: SEARCHING, ..entry }
}

const fn limited(max_length: usize, entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { max_length, ..entry }
}

use Pooling::{Cls, Mean};

static REGISTRY: [RegistryEntry; 14] = [
    limited(256, entry("sentence-transformers/all-MiniLM-L6-v2", 384, Mean, APACHE, 91 * MB)),
    limited(128, entry("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", 384, Mean, APACHE, 470 * MB)),
    searching(entry("BAAI/bge-small-en-v1.5", 384, Cls, MIT, 130 * MB)),
    searching(entry("BAAI/bge-base-en-v1.5", 768, Cls, MIT, 440 * MB)),
    searching(entry("BAAI/bge-large-en-v1.5", 1024, Cls, MIT, 1_340 * MB)),
    RegistryEntry {
        // The colon is full-width, as in the model's own examples.
        query_template: Some("为这个句子生成表示以用于检索相关文章：{text}"),
        ..entry("BAAI/bge-small-zh-v1.5", 512, Cls, MIT, 100 * MB)
    },
    entry("thenlper/gte-base", 768, Mean, MIT, 220 * MB),
    entry("thenlper/gte-large", 1024, Mean, MIT, 670 * MB),
    searching(entry("mixedbread-ai/mxbai-embed-large-v1", 1024, Cls, APACHE, 670 * MB)),
    searching(entry("Snowflake/snowflake-arctic-embed-xs", 384, Cls, APACHE, 90 * MB)),
    searching(entry("Snowflake/snowflake-arctic-embed-s", 384, Cls, APACHE, 130 * MB)),
    searching(entry("Snowflake/snowflake-arctic-embed-m", 768, Cls, APACHE, 440 * MB)),
    searching(entry("Snowflake/snowflake-arctic-embed-l", 1024, Cls, APACHE, 1_340 * MB)),
    RegistryEntry {
        query_template: Some("query: {text}"),
        passage_template: Some("passage: {text}"),
        ..entry("intfloat/multilingual-e5-small", 384, Mean, MIT, 470 * MB)
    },
];

/// All registered models; the default model comes first.
pub fn registry() -> &'static [RegistryEntry] {
    &REGISTRY
}

/// The entry of an id. Upper and lower case are the same, as on the hub.
pub fn registered(id: &str) -> Option<&'static RegistryEntry> {
    REGISTRY.iter().find(|entry| entry.id.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::Template;

    #[test]
    fn entries_are_sound() {
        let mut wrong = Vec::new();
        for entry in registry() {
            let templates = [entry.query_template, entry.passage_template];
            let good = simile_hub::check_model_id(entry.id).is_ok()
                && registry().iter().filter(|other| other.id.eq_ignore_ascii_case(entry.id)).count() == 1
                && templates.iter().flatten().all(|pattern| {
                    Template::parse(pattern)
                        .is_some_and(|template| !template.takes_instruction() || entry.default_instruction.is_some())
                })
                && (1..=512).contains(&entry.max_length)
                && entry.dimensions % 128 == 0
                && entry.size_bytes > 50 * MB;
            if !good {
                wrong.push(entry);
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn prompts_keep_their_last_blank_and_case_does_not_matter() {
        let template = |id| registered(id).unwrap().query_template.unwrap().replace("{text}", "|");
        assert_eq!(template("baai/BGE-small-en-v1.5"), "Represent this sentence for searching relevant passages: |");
        assert_eq!(template("BAAI/bge-small-zh-v1.5"), "为这个句子生成表示以用于检索相关文章：|");
        let e5 = registered("intfloat/multilingual-e5-small").unwrap();
        assert_eq!((e5.query_template, e5.passage_template), (Some("query: {text}"), Some("passage: {text}")));
        assert!(registered("sentence-transformers/all-MiniLM-L6-v2").unwrap().query_template.is_none());
        assert!(registered("nobody/nothing").is_none());
    }
}
