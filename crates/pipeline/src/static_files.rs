//! What the files of a static model say besides `modules.json`.
//!
//! Two libraries write such models, and read the same tensors by different rules:
//!
//! | | model2vec | sentence-transformers' `StaticEmbedding` |
//! |---|---|---|
//! | known by | `model_type: "model2vec"`, or no `model_type` and a tensor `embeddings` | anything else |
//! | unknown tokens | dropped | kept |
//! | longest text | `max_length` of `config.json` (`null`: none), else 512 tokens; before that, as many times the vocabulary's median token length in characters | none |
//! | normalisation | `modules.json`, else `normalize` of `config.json` | `modules.json` |
//!
//! Neither adds special tokens. Sources: model2vec 0.10 `model.py`, sentence-transformers 6.2 `static_embedding.py`.

use simile_encoder::{StaticEmbedding, Weights};
use simile_hub::ModelFiles;

use crate::error::LoadError;
use crate::json::Keys;

/// Stands for "no limit": the largest number that the addon's interface has.
pub(crate) const UNLIMITED: usize = u32::MAX as usize;

/// Limit in tokens of a model2vec model whose file names none.
const MODEL2VEC_LENGTH: usize = 512;

/// What they say.
#[derive(Debug, PartialEq)]
pub(crate) struct StaticFiles {
    /// `model_type` of `config.json`, else `"static"`.
    pub(crate) model_type: String,
    /// Whether model2vec's rules hold.
    pub(crate) model2vec: bool,
    /// Limit in tokens.
    pub(crate) max_length: usize,
    /// Whether vectors get unit length, where `config.json` says it.
    pub(crate) normalize: Option<bool>,
}

impl StaticFiles {
    /// Reads `config.json`, in the module's folder or else in the model's; it may be absent.
    ///
    /// # Errors
    /// [`LoadError::Malformed`], [`LoadError::Hub`].
    pub(crate) fn read(files: &ModelFiles, folder: &str) -> Result<StaticFiles, LoadError> {
        let file = config_file(files, folder);
        let json = files.read_json(&file)?;
        let keys = Keys::new(&file, json.as_ref())?;
        let model_type = keys.text("model_type")?;
        let model2vec = match model_type {
            Some(model_type) => model_type == "model2vec",
            // What cannot be opened is for the load to say.
            None => {
                Weights::open(&files.folder.join(folder)).is_ok_and(|weights| StaticEmbedding::is_model2vec(&weights))
            }
        };
        let max_length = match keys.count("max_length")? {
            _ if !model2vec => UNLIMITED,
            Some(length) => length.min(UNLIMITED),
            None if keys.has("max_length") => UNLIMITED,
            None => MODEL2VEC_LENGTH,
        };
        let normalize = if model2vec { Some(keys.flag("normalize")?.unwrap_or(false)) } else { None };
        Ok(StaticFiles { model_type: model_type.unwrap_or("static").to_owned(), model2vec, max_length, normalize })
    }
}

/// The name of the configuration that holds for the module in `folder`.
pub(crate) fn config_file(files: &ModelFiles, folder: &str) -> String {
    let own = format!("{folder}config.json");
    if files.exists(&own) { own } else { "config.json".to_owned() }
}
