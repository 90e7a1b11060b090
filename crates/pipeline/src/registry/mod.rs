//! Models that are known by id: what their files cannot say.
//!
//! Registered are templates, default length, licence, size, and whether a model is gated or may be cut to fewer
//! dimensions. Whatever a model's files say beats its entry; an unregistered model of a known architecture loads as well.
//! Templates keep the blank at their end, as the models were trained with it. Sizes are those of the weights file on the
//! hub, to two digits. Source of each row: the model's page on the hub.
//!
//! One file for each kind of model, and one for static models, which are dense. A model that gives several kinds of
//! result has a row in each: an id is unique within its kind only.
//!
//! Each row says what its numbers rest on ([`Evidence`]), strictly: "real weights" is a row whose own weights were
//! compared with the reference, and a comment says which were.

mod dense;
mod lookup;
mod multi_vector;
mod rerank;
mod sparse;
mod static_models;

use simile_encoder::Pooling;

use crate::descriptor::Matryoshka;
use crate::kind::ModelKind;

pub use lookup::{check_registered, hint, registered, registered_as, registry};

/// What is known of a model before its files are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryEntry {
    /// The model's id on the hub.
    pub id: &'static str,
    /// What it makes of a text.
    pub kind: ModelKind,
    /// Its architecture.
    pub family: ModelFamily,
    /// Length of a vector: of a text's, a token's, or of the sparse space. `None`: a score, or a space without an end.
    pub dimensions: Option<usize>,
    /// Limit in tokens that the model was trained for, special tokens included. `None`: there is none.
    pub max_length: Option<usize>,
    /// How hidden states become one vector; `None` where they do not.
    pub pooling: Option<Pooling>,
    /// Template of queries.
    pub query_template: Option<&'static str>,
    /// Template of passages.
    pub passage_template: Option<&'static str>,
    /// What `{instruction}` in a template stands for by default.
    pub default_instruction: Option<&'static str>,
    /// Whether vectors get unit length. `None`: `modules.json` says, and a folder without one gives unit length. Of dense
    /// models only: a multi-vector row says it of token vectors, and for sparse vectors and scores it means nothing.
    pub normalize: Option<bool>,
    /// Whether a vector that is cut is layer-normalised before (whole, without weights, eps 1e-5), as the model's page says
    /// and no file of it does. Uncut it is not, as in sentence-transformers.
    pub layer_norm_before_cut: bool,
    /// To which dimensions vectors may be cut (Matryoshka).
    pub matryoshka: Sizes,
    /// SPDX identifier.
    pub licence: &'static str,
    /// Size of the weights in bytes, to two digits, where it is known.
    pub size_bytes: Option<u64>,
    /// Whether its licence has to be accepted on the hub first.
    pub gated: bool,
    /// The commit whose weights were compared, where it is known.
    pub revision: Option<&'static str>,
    /// What its numbers rest on.
    pub evidence: Evidence,
    /// What a user should know of it besides.
    pub notes: Option<&'static str>,
    /// Why it cannot be loaded, if it cannot.
    pub unsupported: Option<&'static str>,
}

/// The architecture of a registered model, as `model_type` has it where that tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ModelFamily {
    Bert,
    XlmRoberta,
    Mpnet,
    JinaBert,
    NomicBert,
    Gte,
    ModernBert,
    Gemma3,
    Qwen3,
    XlmRobertaFlash,
    Static,
    Bm25,
}

impl ModelFamily {
    /// All families.
    pub const ALL: [ModelFamily; 12] = [
        ModelFamily::Bert,
        ModelFamily::XlmRoberta,
        ModelFamily::Mpnet,
        ModelFamily::JinaBert,
        ModelFamily::NomicBert,
        ModelFamily::Gte,
        ModelFamily::ModernBert,
        ModelFamily::Gemma3,
        ModelFamily::Qwen3,
        ModelFamily::XlmRobertaFlash,
        ModelFamily::Static,
        ModelFamily::Bm25,
    ];

    /// `"bert"`, `"xlm-roberta"`, …
    pub fn name(self) -> &'static str {
        match self {
            ModelFamily::Bert => "bert",
            ModelFamily::XlmRoberta => "xlm-roberta",
            ModelFamily::Mpnet => "mpnet",
            ModelFamily::JinaBert => "jina-bert",
            ModelFamily::NomicBert => "nomic-bert",
            ModelFamily::Gte => "gte",
            ModelFamily::ModernBert => "modernbert",
            ModelFamily::Gemma3 => "gemma3",
            ModelFamily::Qwen3 => "qwen3",
            ModelFamily::XlmRobertaFlash => "xlm-roberta-flash",
            ModelFamily::Static => "static",
            ModelFamily::Bm25 => "bm25",
        }
    }
}

/// What the numbers of a registered model rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Its own weights: vectors of the test texts are within the tolerance of the reference. Named are the references, in
    /// `__test__/fixtures/reference`.
    RealWeights(&'static str),
    /// A tiny checkpoint of the same architecture, head and options, in `__test__/fixtures/tiny`. The weights that users
    /// load were never seen.
    TinyCheckpoint(&'static str),
    /// Nothing of the kind: facts of its page and formulas of its authors.
    Unverified,
}

impl Evidence {
    /// `"real weights"`, `"tiny checkpoint"` or `"unverified"`.
    pub fn name(self) -> &'static str {
        match self {
            Evidence::RealWeights(_) => "real weights",
            Evidence::TinyCheckpoint(_) => "tiny checkpoint",
            Evidence::Unverified => "unverified",
        }
    }
}

/// To which dimensions vectors may be cut: a [`Matryoshka`] that a table can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Not at all.
    Native,
    /// To any.
    Any,
    /// To these.
    These(&'static [usize]),
}

impl From<Sizes> for Matryoshka {
    fn from(sizes: Sizes) -> Matryoshka {
        match sizes {
            Sizes::Native => Matryoshka::None,
            Sizes::Any => Matryoshka::Any,
            Sizes::These(some) => Matryoshka::Dimensions(some.to_vec()),
        }
    }
}

const MB: u64 = 1_000_000;
const APACHE: &str = "Apache-2.0";
const MIT: &str = "MIT";
const NON_COMMERCIAL: &str = "CC-BY-NC-4.0";

/// A row of which everything is as in most rows of its kind; the tables say what is different.
const fn row(
    kind: ModelKind,
    id: &'static str,
    family: ModelFamily,
    licence: &'static str,
    size_bytes: u64,
    evidence: Evidence,
) -> RegistryEntry {
    RegistryEntry {
        id,
        kind,
        family,
        dimensions: None,
        max_length: Some(512),
        pooling: None,
        query_template: None,
        passage_template: None,
        default_instruction: None,
        normalize: Some(false),
        layer_norm_before_cut: false,
        matryoshka: Sizes::Native,
        licence,
        size_bytes: Some(size_bytes),
        gated: false,
        revision: None,
        evidence,
        notes: None,
        unsupported: None,
    }
}

const fn limited(max_length: usize, entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { max_length: Some(max_length), ..entry }
}

const fn noted(notes: &'static str, entry: RegistryEntry) -> RegistryEntry {
    RegistryEntry { notes: Some(notes), ..entry }
}

const PICKLE: &str = "the repository has pickle weights only (pytorch_model.bin)";

#[cfg(test)]
mod tests;
