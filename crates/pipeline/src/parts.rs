//! What every kind of model is made of: an encoder, a tokenizer, and the identity of the files that both come from.
//!
//! Contract: parts that passed [`Parts::check`] fit each other. Every id of the tokenizer's vocabulary is a row of the
//! encoder's word table, and the limit in tokens leaves room for a text.
//!
//! Cost: the weights are read once and packed; their hash is taken beside it on a thread of its own, unless it is known
//! already (see [`ModelFiles::sha256`]).

use std::thread;

use serde_json::Value;
use simile_encoder::{Encoder, load};
use simile_hub::ModelFiles;

use crate::contract::ContentIdentity;
use crate::error::LoadError;
use crate::normalizer::BertKeys;
use crate::options::LoadOptions;
use crate::support;
use crate::tokenizer::Tokenizer;
use crate::vector_modules::VectorModuleConfig;

/// Which files the parts are read from, and what their configuration says about the tokenizer.
pub(crate) struct Sources<'a> {
    /// Folder of the transformer, relative to the model's, with a trailing `/`; empty for the model's own.
    pub(crate) transformer: &'a str,
    /// What `tokenizer_config.json` says about BERT's normalizer.
    pub(crate) bert_keys: &'a BertKeys,
    /// Whether texts are lower-cased first.
    pub(crate) lowercase: bool,
    /// Modules behind the pooling, whose files belong to the model's identity too.
    pub(crate) modules: &'a [VectorModuleConfig],
}

/// The parts that every kind of model has.
pub(crate) struct Parts {
    /// `config.json`.
    pub(crate) config: Value,
    pub(crate) encoder: Box<dyn Encoder>,
    pub(crate) tokenizer: Tokenizer,
    /// A failure is to be reported last: other errors say more about weights than a hash that could not be taken.
    pub(crate) content: Result<ContentIdentity, LoadError>,
}

impl Parts {
    /// Reads and packs them.
    ///
    /// # Errors
    /// [`LoadError::MissingFile`], [`LoadError::Tokenizer`], those of the encoder and of the hub.
    pub(crate) fn load(files: &ModelFiles, options: &LoadOptions, sources: &Sources<'_>) -> Result<Parts, LoadError> {
        let folder = sources.transformer;
        let config_file = format!("{folder}config.json");
        let config = files.read_json(&config_file)?.ok_or_else(|| LoadError::MissingFile {
            folder: files.folder.clone(),
            name: config_file.clone(),
            advice: "Give the folder of a transformers model",
        })?;
        let model_type = config["model_type"].as_str();
        support::check(model_type, false, options.device, options.precision)?;
        let tokenizer_json = tokenizer_json(files, folder)?;
        let tokenizer = Tokenizer::new(&files.folder, &tokenizer_json, sources.bert_keys, sources.lowercase)?;

        let encoder_folder = files.folder.join(folder);
        let (encoder, content) = thread::scope(|scope| {
            let hashing = thread::Builder::new()
                .name("simile-hash".to_owned())
                .spawn_scoped(scope, || ContentIdentity::read(files, &config_file, folder, sources.modules));
            let encoder = load(options.device, options.precision, options.isa, &config, &encoder_folder);
            let content = match hashing.map(|thread| thread.join()) {
                Ok(Ok(content)) => content,
                // No thread was to be had, or it panicked: here, where a panic is seen.
                _ => ContentIdentity::read(files, &config_file, folder, sources.modules),
            };
            (encoder, content)
        });
        Ok(Parts { config, encoder: encoder?, tokenizer, content })
    }

    /// Whether the parts fit each other, at a limit of `max_length` tokens.
    ///
    /// # Errors
    /// [`LoadError::MaxLengthTooSmall`], [`LoadError::VocabularyMismatch`].
    pub(crate) fn check(&self, max_length: usize) -> Result<(), LoadError> {
        check(&self.tokenizer, self.encoder.vocab_size(), max_length)
    }

    /// `model_type` of `config.json`.
    pub(crate) fn model_type(&self) -> String {
        self.config["model_type"].as_str().unwrap_or_default().to_owned()
    }
}

/// The content of `tokenizer.json` in `folder` (with a trailing `/`).
///
/// # Errors
/// [`LoadError::MissingFile`], [`LoadError::Hub`].
pub(crate) fn tokenizer_json(files: &ModelFiles, folder: &str) -> Result<Vec<u8>, LoadError> {
    let name = format!("{folder}tokenizer.json");
    files.read(&name)?.ok_or_else(|| LoadError::MissingFile {
        folder: files.folder.clone(),
        name,
        advice: "Other tokenizer files are not read; save it again with transformers' AutoTokenizer",
    })
}

/// Whether a tokenizer fits a table of `rows` tokens, at a limit of `max_length` tokens.
///
/// # Errors
/// [`LoadError::MaxLengthTooSmall`], [`LoadError::VocabularyMismatch`].
pub(crate) fn check(tokenizer: &Tokenizer, rows: usize, max_length: usize) -> Result<(), LoadError> {
    let special = tokenizer.special_tokens();
    if max_length <= special {
        return Err(LoadError::MaxLengthTooSmall { value: max_length, special });
    }
    let largest = tokenizer.largest_id();
    if largest as usize >= rows {
        return Err(LoadError::VocabularyMismatch { largest, rows });
    }
    Ok(())
}
