//! What is known of a loaded sparse, multi-vector or rerank model.

use napi_derive::napi;
use simile_engine::HeadModel;

/// The facts of such a model as they are in force.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct NativeHeadInfo {
    /// Id, or the folder as it was given.
    pub id: String,
    /// Commit, where one is known.
    pub revision: Option<String>,
    /// `model_type` of `config.json`.
    pub model_type: String,
    /// `'sparse'`, `'multi-vector'` or `'rerank'`.
    pub kind: String,
    /// What computes: `'splade'`, `'colbert'`, `'classifier'`, …
    pub head: String,
    /// Words of the vocabulary, values of a token's vector, or 1.
    pub dimensions: u32,
    /// Limit in tokens.
    pub max_length: u32,
    /// Limit of a query where it has one of its own.
    pub query_length: Option<u32>,
    /// `'end'`, `'start'` or `'error'`.
    pub truncate: String,
    /// What is applied to a reranker's logit.
    pub activation: Option<String>,
    /// A pattern with `{text}`.
    pub query_template: Option<String>,
    /// A pattern with `{text}`.
    pub passage_template: Option<String>,
    /// What `{instruction}` stands for when a call gives none.
    pub default_instruction: Option<String>,
    /// Contract id of its results.
    pub contract_id: String,
}

impl NativeHeadInfo {
    pub(crate) fn of(model: &dyn HeadModel) -> NativeHeadInfo {
        let known = model.descriptor();
        NativeHeadInfo {
            id: known.id.clone(),
            revision: known.revision.clone(),
            model_type: known.model_type.clone(),
            kind: known.kind.name().to_owned(),
            head: known.head.to_owned(),
            dimensions: known.dimensions as u32,
            max_length: u32::try_from(known.max_length).unwrap_or(u32::MAX),
            query_length: known.query_length.map(|length| length as u32),
            truncate: known.truncate.name().to_owned(),
            activation: known.activation.map(str::to_owned),
            query_template: known.query_template.clone(),
            passage_template: known.passage_template.clone(),
            default_instruction: known.default_instruction.clone(),
            contract_id: model.contract().to_owned(),
        }
    }
}
