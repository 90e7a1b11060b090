//! The embedding contract: everything that decides a model's vectors, and its hash.
//!
//! Vectors of two contracts may not be compared, so whoever stores vectors stores the id beside them. A contract holds
//! identities of content (SHA-256), never ids, paths or commits: the same files give the same contract from a folder, a
//! package and the cache. A per-call instruction, a priority or a batch size is not part of it.

use std::fmt::Write as _;

use serde::Serialize;
use sha2::{Digest, Sha256};
use simile_encoder::{LoadError as EncoderError, Weights};
use simile_hub::ModelFiles;

use crate::descriptor::ModelDescriptor;
use crate::error::LoadError;
use crate::normalizer::BertValues;
use crate::options::Precision;
use crate::template::{Template, Templates};
use crate::vector_modules::{VectorModuleConfig, weight_files};

/// Raised when the meaning of a field changes; an added field changes every id by itself.
const VERSION: u32 = 1;

/// Hexadecimal digits of an id: 64 bits, which two of a million contracts share with a chance of 3 in 100 million.
const ID_DIGITS: usize = 16;

/// Everything that decides a vector. Serialised with its fields in the order of their declaration: that text is hashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Contract {
    version: u32,
    /// Weights, configuration and tokenizer.
    content: ContentIdentity,
    /// Lower-casing before the tokenizer.
    lowercase: bool,
    /// Values in force of the tokenizer's BERT normalizer.
    normalizer: Option<BertValues>,
    pooling: Vec<&'static str>,
    /// False where a prompt's tokens are left out of the pooling; not written where they are in it.
    #[serde(skip_serializing_if = "is_true")]
    include_prompt: bool,
    /// In pieces: a pattern's text does not say which of its braces are a placeholder.
    query_template: Option<Template>,
    passage_template: Option<Template>,
    default_instruction: Option<String>,
    max_length: usize,
    truncate: &'static str,
    /// Whether vectors are layer-normalised before they are cut; not written where they are not.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) layer_norm: bool,
    normalize: bool,
    dimensions: usize,
    precision: &'static str,
    /// What happens to a vector after its normalisation.
    post: &'static str,
}

/// SHA-256 of the files that decide a vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ContentIdentity {
    /// The architecture: `config.json`.
    config: String,
    /// `tokenizer.json`.
    tokenizer: String,
    /// `model.safetensors`, or its shards in the order of their names.
    weights: Vec<String>,
    /// Configuration and weights of each module behind the pooling, Dense or LayerNorm, in order.
    dense: Vec<[String; 2]>,
}

impl ContentIdentity {
    /// Hashes the files of a model: its `config` (which a static model need not have), the tokenizer and weights in the
    /// folder of its input module (empty, or with a trailing `/`), and the modules behind the pooling.
    ///
    /// # Errors
    /// As [`ModelFiles::sha256`] and [`Weights::file_names`].
    pub(crate) fn read(
        files: &ModelFiles,
        config: &str,
        folder: &str,
        modules: &[VectorModuleConfig],
    ) -> Result<ContentIdentity, LoadError> {
        // The files that the loader chooses.
        let weights = Weights::file_names(&files.folder.join(folder)).map_err(EncoderError::from)?;
        let hash = |name: &str| files.sha256(&format!("{folder}{name}"));
        let module = |module: &VectorModuleConfig| -> Result<[String; 2], LoadError> {
            let folder = module.folder();
            let weights = weight_files(files, folder)?;
            let weights = weights.iter().map(|name| files.sha256(name)).collect::<Result<Vec<_>, _>>()?;
            Ok([files.sha256(&format!("{folder}config.json"))?, weights.join("+")])
        };
        Ok(ContentIdentity {
            config: if files.exists(config) { files.sha256(config)? } else { String::new() },
            tokenizer: hash("tokenizer.json")?,
            weights: weights.iter().map(|name| hash(name)).collect::<Result<_, _>>()?,
            dense: modules.iter().map(module).collect::<Result<_, _>>()?,
        })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_true(flag: &bool) -> bool {
    *flag
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// What decides the ids of a text, besides its tokenizer's file.
pub(crate) struct TextIdentity {
    /// Values in force of the tokenizer's BERT normalizer.
    pub(crate) normalizer: Option<BertValues>,
    pub(crate) templates: Templates,
}

impl Contract {
    /// The contract of a loaded model at one output dimension.
    pub(crate) fn new(
        content: ContentIdentity,
        texts: TextIdentity,
        descriptor: &ModelDescriptor,
        precision: Precision,
        dimensions: usize,
    ) -> Contract {
        Contract {
            version: VERSION,
            content,
            lowercase: descriptor.lowercase,
            normalizer: texts.normalizer,
            pooling: descriptor.pooling.iter().map(|pooling| pooling.name()).collect(),
            include_prompt: descriptor.include_prompt,
            query_template: texts.templates.query,
            passage_template: texts.templates.passage,
            default_instruction: texts.templates.default_instruction,
            max_length: descriptor.max_length,
            truncate: descriptor.truncate.name(),
            layer_norm: false,
            normalize: descriptor.normalize,
            dimensions,
            precision: precision.name(),
            post: "none",
        }
    }

    /// The contract as JSON, always the same text for the same contract.
    #[cfg(test)]
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a struct of texts and numbers is always JSON")
    }

    /// The id: the first 16 hexadecimal digits of the SHA-256 of [`Contract::to_json`].
    pub(crate) fn id(&self) -> String {
        id_of(self)
    }
}

/// The first 16 hexadecimal digits of the SHA-256 of a contract's JSON.
pub(crate) fn id_of(contract: &impl Serialize) -> String {
    let json = serde_json::to_string(contract).expect("a struct of texts and numbers is always JSON");
    let mut hex = String::with_capacity(2 * ID_DIGITS);
    for byte in &Sha256::digest(json)[..ID_DIGITS / 2] {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract() -> Contract {
        Contract {
            version: VERSION,
            content: ContentIdentity {
                config: "c".into(),
                tokenizer: "t".into(),
                weights: vec!["w".into()],
                dense: vec![["dc".into(), "dw".into()]],
            },
            lowercase: false,
            normalizer: Some(BertValues { lowercase: true, strip_accents: true, chinese_apart: true }),
            pooling: vec!["mean"],
            include_prompt: true,
            query_template: Template::parse("query: {text}"),
            passage_template: None,
            default_instruction: None,
            max_length: 256,
            truncate: "end",
            layer_norm: false,
            normalize: true,
            dimensions: 384,
            precision: "f32",
            post: "none",
        }
    }

    #[test]
    fn every_field_changes_the_id() {
        type Change = fn(&mut Contract);
        let changes: Vec<(&str, Change)> = vec![
            ("version", |c| c.version += 1),
            ("config", |c| c.content.config.push('x')),
            ("tokenizer", |c| c.content.tokenizer.push('x')),
            ("weights", |c| c.content.weights[0].push('x')),
            ("one more shard", |c| c.content.weights.push("x".into())),
            ("dense config", |c| c.content.dense[0][0].push('x')),
            ("dense weights", |c| c.content.dense[0][1].push('x')),
            ("no dense", |c| c.content.dense.clear()),
            ("lowercase", |c| c.lowercase = true),
            ("normalizer", |c| c.normalizer.as_mut().unwrap().strip_accents = false),
            ("no normalizer", |c| c.normalizer = None),
            ("a placeholder", |c| c.query_template = Template::parse("query: {instruction}{text}")),
            ("its name", |c| c.query_template = Some(Template::prefix("query: {instruction}"))),
            ("pooling", |c| c.pooling = vec!["cls"]),
            ("no prompt in it", |c| c.include_prompt = false),
            ("more pooling", |c| c.pooling.push("cls")),
            ("query template", |c| c.query_template = Template::parse("query:{text}")),
            ("no query template", |c| c.query_template = None),
            ("passage template", |c| c.passage_template = Template::parse("query: {text}")),
            ("instruction", |c| c.default_instruction = Some(String::new())),
            ("max length", |c| c.max_length = 255),
            ("truncate", |c| c.truncate = "error"),
            ("layer norm", |c| c.layer_norm = true),
            ("normalize", |c| c.normalize = false),
            ("dimensions", |c| c.dimensions = 256),
            ("precision", |c| c.precision = "int8"),
            ("post", |c| c.post = "binary"),
        ];
        let mut ids = vec![("nothing", contract().id())];
        for (name, change) in changes {
            let mut changed = contract();
            change(&mut changed);
            ids.push((name, changed.id()));
        }
        // A field that this list forgets would be missed: there are as many keys as the changes above name.
        let all = Contract { include_prompt: false, layer_norm: true, ..contract() };
        let keys = serde_json::from_str::<serde_json::Value>(&all.to_json()).unwrap().as_object().unwrap().len();
        assert_eq!(keys, 16, "a new field needs a line here");
        let same: Vec<_> =
            ids.iter().enumerate().filter(|(i, (_, id))| ids[..*i].iter().any(|(_, other)| other == id)).collect();
        assert!(same.is_empty(), "{same:?}");
    }

    #[test]
    fn the_id_is_stable_across_versions_of_this_library() {
        // Stored beside vectors by users: a change here makes their indices unusable, so it must be meant.
        let json = r#"{"version":1,"content":{"config":"c","tokenizer":"t","weights":["w"],"dense":[["dc","dw"]]},"lowercase":false,"normalizer":{"lowercase":true,"strip_accents":true,"chinese_apart":true},"pooling":["mean"],"query_template":{"before":[{"literal":"query: "}],"after":[]},"passage_template":null,"default_instruction":null,"max_length":256,"truncate":"end","normalize":true,"dimensions":384,"precision":"f32","post":"none"}"#;
        assert_eq!(contract().to_json(), json);
        // As `sha256sum` has it.
        assert_eq!(contract().id(), "8681e89559918613");
    }
}
