//! What kind of result a model gives, and how its files say so.
//!
//! | files | kind |
//! |---|---|
//! | `modules.json` lists MLMTransformer, SpladePooling or another sparse module | sparse |
//! | `modules.json` lists LogitScore, or `model_type` of `config_sentence_transformers.json` is `CrossEncoder` | rerank |
//! | `modules.json` lists Pooling, StaticEmbedding or Normalize | dense |
//! | `artifact.metadata`; the architecture `HF_ColBERT`; `modules.json` with a Dense module and no Pooling | multi-vector |
//! | no `modules.json`, and an architecture `...ForSequenceClassification` or `...ForCausalLM` | rerank |
//!
//! Files that say nothing of it (a bare encoder, a masked language model) load as whatever is asked for, if they have its
//! tensors.

use std::fmt;

use simile_hub::ModelFiles;

use crate::error::LoadError;

/// What a model makes of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModelKind {
    /// One vector.
    #[default]
    Dense,
    /// A weight for each of some words.
    Sparse,
    /// A vector for each token.
    MultiVector,
    /// A score of a pair of texts.
    Rerank,
}

impl ModelKind {
    /// All kinds.
    pub const ALL: [ModelKind; 4] = [ModelKind::Dense, ModelKind::Sparse, ModelKind::MultiVector, ModelKind::Rerank];

    /// `"dense"`, `"sparse"`, `"multi-vector"` or `"rerank"`.
    pub fn name(self) -> &'static str {
        match self {
            ModelKind::Dense => "dense",
            ModelKind::Sparse => "sparse",
            ModelKind::MultiVector => "multi-vector",
            ModelKind::Rerank => "rerank",
        }
    }

    /// The class that loads it.
    pub fn class(self) -> &'static str {
        match self {
            ModelKind::Dense => "TextEmbedding",
            ModelKind::Sparse => "SparseTextEmbedding",
            ModelKind::MultiVector => "MultiVectorTextEmbedding",
            ModelKind::Rerank => "TextCrossEncoder",
        }
    }

    /// What the files of a model say that it is, if they do.
    ///
    /// # Errors
    /// [`LoadError::Hub`].
    pub(crate) fn of(files: &ModelFiles) -> Result<Option<ModelKind>, LoadError> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let modules = files.read_json("modules.json")?;
        let listed = modules.as_ref().and_then(|json| json.as_array()).map_or(&[][..], Vec::as_slice);
        let classes: Vec<String> = listed.iter().map(|module| text(&module["type"])).collect();
        let has =
            |names: &[&str]| classes.iter().any(|class| names.iter().any(|name| class.ends_with(&format!(".{name}"))));
        if has(&["MLMTransformer", "SpladePooling", "SparseAutoEncoder", "CSR", "SparseStaticEmbedding", "IDF"]) {
            return Ok(Some(ModelKind::Sparse));
        }
        let sentence_transformers = files.read_json("config_sentence_transformers.json")?.unwrap_or_default();
        let model_type = text(&sentence_transformers["model_type"]);
        if has(&["LogitScore"]) || model_type == "CrossEncoder" {
            return Ok(Some(ModelKind::Rerank));
        }
        if has(&["Pooling", "StaticEmbedding", "Normalize"]) {
            return Ok(Some(ModelKind::Dense));
        }
        let config = files.read_json("config.json")?.unwrap_or_default();
        let architectures: Vec<String> = config["architectures"].as_array().into_iter().flatten().map(text).collect();
        let colbert = architectures.iter().any(|name| name == "HF_ColBERT");
        if files.exists("artifact.metadata") || colbert || has(&["Dense"]) {
            return Ok(Some(ModelKind::MultiVector));
        }
        // A language model without a list of modules says by its answers how well two texts fit; what pools its states does
        // have a list.
        let answers = ["ForSequenceClassification", "ForCausalLM"];
        let classifies = architectures.iter().any(|name| answers.iter().any(|end| name.ends_with(end)));
        Ok((modules.is_none() && classifies).then_some(ModelKind::Rerank))
    }

    /// Refuses files that say that they are of another kind.
    ///
    /// # Errors
    /// [`LoadError::WrongKind`].
    pub(crate) fn check(self, files: &ModelFiles) -> Result<(), LoadError> {
        match ModelKind::of(files)? {
            Some(found) if found != self => {
                Err(LoadError::WrongKind { folder: files.folder.clone(), found, wanted: self })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
