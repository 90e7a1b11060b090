//! What is known of models: before they are loaded (the registry), and after.

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use simile_engine::{Matryoshka, ModelDescriptor, Origin, RegistryEntry, TextModel, registry};

/// A row of the registry.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct NativeRegistryEntry {
    /// Id on the hub.
    pub id: String,
    /// `'dense'`, `'sparse'`, `'multi-vector'` or `'rerank'`.
    pub kind: String,
    /// Its architecture.
    pub family: String,
    /// Names of sentence-transformers; empty where nothing is pooled.
    pub pooling: Vec<String>,
    /// A pattern with `{text}` and perhaps `{instruction}`.
    pub query_template: Option<String>,
    /// A pattern with `{text}` and perhaps `{instruction}`.
    pub passage_template: Option<String>,
    /// What `{instruction}` stands for when a call gives none.
    pub default_instruction: Option<String>,
    /// Limit in tokens.
    pub max_length: Option<u32>,
    /// Whether vectors get unit length; `null`: its files say.
    pub normalize: Option<bool>,
    /// Whether LayerNorm is applied between pooling and cut.
    pub layer_norm_before_cut: bool,
    /// Length of a vector, a token's vector or of the sparse space.
    pub dimensions: Option<u32>,
    /// Whether vectors may be cut: not, to any length, or to these.
    pub matryoshka: Either<bool, Vec<u32>>,
    /// SPDX identifier.
    pub license: String,
    /// Size of the weights in bytes.
    pub size_bytes: Option<f64>,
    /// Whether a licence has to be accepted on the hub.
    pub gated: bool,
    /// The commit whose weights were compared.
    pub revision: Option<String>,
    /// `'real weights'`, `'tiny checkpoint'` or `'unverified'`.
    pub evidence: String,
    /// What a user should know besides.
    pub notes: Option<String>,
    /// Why it cannot be loaded.
    pub unsupported: Option<String>,
}

/// The facts of a loaded model as they are in force.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct NativeModelDescriptor {
    /// Id, or the folder as it was given.
    pub id: String,
    /// Commit, where one is known.
    pub revision: Option<String>,
    /// `model_type` of `config.json`.
    pub model_type: String,
    /// Names of sentence-transformers.
    pub pooling: Vec<String>,
    /// A pattern with `{text}` and perhaps `{instruction}`.
    pub query_template: Option<String>,
    /// A pattern with `{text}` and perhaps `{instruction}`.
    pub passage_template: Option<String>,
    /// What `{instruction}` stands for when a call gives none.
    pub default_instruction: Option<String>,
    /// Limit in tokens.
    pub max_length: u32,
    /// `'end'`, `'start'` or `'error'`.
    pub truncate: String,
    /// Whether vectors get unit length.
    pub normalize: bool,
    /// Native length of a vector.
    pub dimensions: u32,
    /// Whether vectors may be cut: not, to any length, or to these.
    pub matryoshka: Either<bool, Vec<u32>>,
    /// Whether texts are lower-cased first.
    pub lowercase: bool,
    /// SPDX identifier.
    pub license: Option<String>,
    /// Size of the weights in bytes.
    pub size_bytes: Option<f64>,
    /// Whether a licence has to be accepted on the hub.
    pub gated: bool,
    /// Where the values come from.
    pub origins: NativeOrigins,
}

/// Where values come from: `'option'`, `'files'`, `'registry'` or `'default'`.
#[napi(object, object_from_js = false)]
pub struct NativeOrigins {
    /// Of `pooling`.
    pub pooling: String,
    /// Of `normalize`.
    pub normalize: String,
    /// Of `maxLength`.
    pub max_length: String,
    /// Of `truncate`.
    pub truncate: String,
    /// Of `queryTemplate`.
    pub query_template: String,
    /// Of `passageTemplate`.
    pub passage_template: String,
}

/// A loaded model.
#[napi(object, object_from_js = false)]
pub struct NativeModelInfo {
    /// Native length of a vector.
    pub dimensions: u32,
    /// Limit in tokens.
    pub max_length: u32,
    /// Contract id of vectors of native length.
    pub contract_id: String,
    /// All facts.
    pub descriptor: NativeModelDescriptor,
}

impl NativeModelInfo {
    pub(crate) fn of(model: &TextModel) -> NativeModelInfo {
        NativeModelInfo {
            dimensions: model.dimensions() as u32,
            max_length: model.max_length() as u32,
            contract_id: model.contract(None),
            descriptor: model.descriptor().into(),
        }
    }
}

impl From<&ModelDescriptor> for NativeModelDescriptor {
    fn from(known: &ModelDescriptor) -> Self {
        let origins = &known.origins;
        NativeModelDescriptor {
            id: known.id.clone(),
            revision: known.revision.clone(),
            model_type: known.model_type.clone(),
            pooling: known.pooling.iter().map(|pooling| pooling.name().to_owned()).collect(),
            query_template: known.query_template.clone(),
            passage_template: known.passage_template.clone(),
            default_instruction: known.default_instruction.clone(),
            max_length: known.max_length as u32,
            truncate: known.truncate.name().to_owned(),
            normalize: known.normalize,
            dimensions: known.dimensions as u32,
            matryoshka: matryoshka(&known.matryoshka),
            lowercase: known.lowercase,
            license: known.licence.clone(),
            size_bytes: known.size_bytes.map(|bytes| bytes as f64),
            gated: known.gated,
            origins: NativeOrigins {
                pooling: origin(origins.pooling),
                normalize: origin(origins.normalize),
                max_length: origin(origins.max_length),
                truncate: origin(origins.truncate),
                query_template: origin(origins.query_template),
                passage_template: origin(origins.passage_template),
            },
        }
    }
}

impl From<&RegistryEntry> for NativeRegistryEntry {
    fn from(entry: &RegistryEntry) -> Self {
        NativeRegistryEntry {
            id: entry.id.to_owned(),
            kind: entry.kind.name().to_owned(),
            family: entry.family.name().to_owned(),
            pooling: entry.pooling.iter().map(|pooling| pooling.name().to_owned()).collect(),
            query_template: entry.query_template.map(str::to_owned),
            passage_template: entry.passage_template.map(str::to_owned),
            default_instruction: entry.default_instruction.map(str::to_owned),
            max_length: entry.max_length.map(|tokens| tokens as u32),
            normalize: entry.normalize,
            layer_norm_before_cut: entry.layer_norm_before_cut,
            dimensions: entry.dimensions.map(|dimensions| dimensions as u32),
            matryoshka: matryoshka(&entry.matryoshka.into()),
            license: entry.licence.to_owned(),
            size_bytes: entry.size_bytes.map(|bytes| bytes as f64),
            gated: entry.gated,
            revision: entry.revision.map(str::to_owned),
            evidence: entry.evidence.name().to_owned(),
            notes: entry.notes.map(str::to_owned),
            unsupported: entry.unsupported.map(str::to_owned),
        }
    }
}

/// The registry: dense models first, and the default one first of all.
#[napi(catch_unwind)]
pub fn list_models() -> Vec<NativeRegistryEntry> {
    registry().map(NativeRegistryEntry::from).collect()
}

fn matryoshka(known: &Matryoshka) -> Either<bool, Vec<u32>> {
    match known {
        Matryoshka::None => Either::A(false),
        Matryoshka::Any => Either::A(true),
        Matryoshka::Dimensions(some) => Either::B(some.iter().map(|&one| one as u32).collect()),
    }
}

fn origin(origin: Origin) -> String {
    match origin {
        Origin::Option => "option",
        Origin::Files => "files",
        Origin::Registry => "registry",
        Origin::Default => "default",
    }
    .to_owned()
}
