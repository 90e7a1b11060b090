//! What `tokenizer_config.json` says about BERT's normalizer, against what `tokenizer.json` says.
//!
//! The reference does not replay a BERT normalizer from `tokenizer.json`: its BERT classes build it anew from the keys
//! `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` of `tokenizer_config.json` (seen with transformers
//! 5.24). So where the two files contradict each other, the keys win. A class that replays `tokenizer.json` ignores the
//! keys, and so do we. Under any other class, or on another normalizer, a contradiction is refused by name.
//!
//! A key that is absent leaves the value of `tokenizer.json`. (The reference takes its own default then: lower-cased, by
//! lower-casing, Chinese characters apart. Files that were saved by transformers have all three keys.)

use serde::Serialize;
use tokenizers::ModelWrapper;
use tokenizers::normalizers::{BertNormalizer, NormalizerWrapper};

use crate::error::LoadError;
use crate::json::Keys;

/// Classes (without `Fast`) that build a BERT normalizer from the keys.
const BUILT: [&str; 4] = ["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer"];
/// Classes that take everything from `tokenizer.json`.
const REPLAYED: [&str; 2] = ["PreTrainedTokenizerFast", "TokenizersBackend"];

const LOWERCASE: &str = "do_lower_case";
const ACCENTS: &str = "strip_accents";
const CHINESE: &str = "tokenize_chinese_chars";

/// What the reference's class does with the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Class {
    /// Builds the normalizer from them. Also when no file names a class: BERT's is the one of the model type.
    #[default]
    Built,
    /// Ignores them.
    Replayed,
    /// We do not know.
    Other,
}

/// The three keys; `None` where the file does not have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BertKeys {
    file: String,
    class: Class,
    lowercase: Option<bool>,
    /// `Some(None)` is `null`: as lower-casing.
    strip_accents: Option<Option<bool>>,
    chinese: Option<bool>,
}

/// A BERT normalizer's values in force; part of the contract, because they need not be those of the hashed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct BertValues {
    pub(crate) lowercase: bool,
    pub(crate) strip_accents: bool,
    pub(crate) chinese_apart: bool,
}

impl BertValues {
    fn of(normalizer: &BertNormalizer) -> BertValues {
        BertValues {
            lowercase: normalizer.lowercase,
            strip_accents: normalizer.strip_accents.unwrap_or(normalizer.lowercase),
            chinese_apart: normalizer.handle_chinese_chars,
        }
    }
}

impl BertKeys {
    /// Reads the keys of `tokenizer_config.json`; the class is named there or in `config`, the model's `config.json`.
    ///
    /// # Errors
    /// [`LoadError::Malformed`].
    pub(crate) fn read(tokenizer: &Keys<'_>, config: &Keys<'_>) -> Result<BertKeys, LoadError> {
        const CLASS: &str = "tokenizer_class";
        let class = match tokenizer.text(CLASS)?.or(config.text(CLASS)?) {
            None => Class::Built,
            Some(name) if BUILT.contains(&name.strip_suffix("Fast").unwrap_or(name)) => Class::Built,
            Some(name) if REPLAYED.contains(&name) => Class::Replayed,
            Some(_) => Class::Other,
        };
        let strip_accents = if tokenizer.has(ACCENTS) { Some(tokenizer.flag(ACCENTS)?) } else { None };
        Ok(BertKeys {
            file: tokenizer.file().to_owned(),
            class,
            lowercase: tokenizer.flag(LOWERCASE)?,
            strip_accents,
            chinese: tokenizer.flag(CHINESE)?,
        })
    }

    /// Applies the keys to a tokenizer as its file has it. Returns the values in force, if it has a BERT normalizer.
    ///
    /// # Errors
    /// [`LoadError::UnsupportedValue`] for a key that contradicts the file and cannot be applied.
    pub(crate) fn apply(&self, inner: &mut tokenizers::Tokenizer) -> Result<Option<BertValues>, LoadError> {
        let Some(NormalizerWrapper::BertNormalizer(given)) = inner.get_normalizer() else {
            // The reference would put a BERT normalizer in the place of this one.
            return match self.stated().into_iter().flatten().next() {
                Some((key, value))
                    if self.class == Class::Built && matches!(inner.get_model(), ModelWrapper::WordPiece(_)) =>
                {
                    Err(self.refuse(key, &value, "nothing, because tokenizer.json has no BertNormalizer"))
                }
                _ => Ok(None),
            };
        };
        let given = *given;
        let mut wanted = given;
        wanted.lowercase = self.lowercase.unwrap_or(given.lowercase);
        wanted.strip_accents = self.strip_accents.unwrap_or(given.strip_accents);
        wanted.handle_chinese_chars = self.chinese.unwrap_or(given.handle_chinese_chars);
        let (before, after) = (BertValues::of(&given), BertValues::of(&wanted));
        match self.class {
            Class::Replayed => Ok(Some(before)),
            Class::Built => {
                inner.with_normalizer(Some(wanted)).map_err(|error| LoadError::Malformed {
                    file: self.file.clone(),
                    key: "the normalizer".to_owned(),
                    value: error.to_string(),
                    expected: "one that the tokenizer takes",
                })?;
                Ok(Some(after))
            }
            Class::Other => {
                let differs = [
                    before.lowercase != after.lowercase,
                    before.strip_accents != after.strip_accents,
                    before.chinese_apart != after.chinese_apart,
                ];
                match self.stated().into_iter().zip(differs).find_map(|(key, differs)| key.filter(|_| differs)) {
                    Some((key, value)) => Err(self.refuse(key, &value, "what tokenizer.json says")),
                    None => Ok(Some(before)),
                }
            }
        }
    }

    /// Each key that the file has, with its value as JSON.
    fn stated(&self) -> [Option<(&'static str, String)>; 3] {
        let json = |flag: Option<bool>| flag.map_or("null".to_owned(), |flag| flag.to_string());
        [
            self.lowercase.map(|flag| (LOWERCASE, json(Some(flag)))),
            self.strip_accents.map(|flag| (ACCENTS, json(flag))),
            self.chinese.map(|flag| (CHINESE, json(Some(flag)))),
        ]
    }

    fn refuse(&self, key: &str, value: &str, supported: &str) -> LoadError {
        LoadError::UnsupportedValue {
            file: self.file.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            supported: supported.to_owned(),
        }
    }
}
