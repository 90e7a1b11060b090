//! What can go wrong: while a model is loaded ([`LoadError`]), with one text or one option of a call
//! ([`PipelineError`]), and with one vector ([`NonFinite`]). Each carries the value at fault and what is allowed.

use std::path::PathBuf;

use simile_encoder::{Device, Precision};
use simile_hub::HubError;

use crate::{Matryoshka, ModelKind, Role};

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file could not be found or read.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The architecture is not supported, or the weights are absent, damaged or of another model.
    #[error(transparent)]
    Encoder(#[from] simile_encoder::LoadError),
    /// A model that gives no sound vectors on this device in this precision.
    #[error("precision '{precision}' on device '{device}' is refused{}: {reason}", model.as_deref().map(|model| format!(" for {model}")).unwrap_or_default())]
    Refused {
        /// Its kind, where the reason is the model's.
        model: Option<String>,
        /// The device.
        device: Device,
        /// The precision.
        precision: Precision,
        /// Why, and what to take instead.
        reason: &'static str,
    },
    /// The registry knows the model as one that cannot be loaded.
    #[error("'{id}' is not supported as a {kind} model: {reason}. Nothing was downloaded; listModels() has what is")]
    RegisteredUnsupported {
        /// The model's id.
        id: &'static str,
        /// What it was asked for as.
        kind: ModelKind,
        /// Why it is not.
        reason: &'static str,
    },
    /// The registry knows the model, as one that gives other results.
    #[error(
        "'{id}' is a {} model, not a {wanted} one: load it with {}. Nothing was downloaded",
        each(found, ModelKind::name),
        each(found, ModelKind::class)
    )]
    RegisteredKind {
        /// The model's id.
        id: String,
        /// What it was asked for as.
        wanted: ModelKind,
        /// What it is.
        found: Vec<ModelKind>,
    },
    /// A file that every model needs is not there.
    #[error("'{}' has no {name}. {advice}", folder.display())]
    MissingFile {
        /// The model's folder.
        folder: PathBuf,
        /// The file's name.
        name: String,
        /// What to do.
        advice: &'static str,
    },
    /// `modules.json` lists a module that this library does not have, or has at another place.
    #[error(
        "{file} lists the module '{module}' as number {position}, which is not supported. Supported is: {supported}"
    )]
    UnsupportedModule {
        /// `modules.json`.
        file: String,
        /// The module's class path, as the file has it.
        module: String,
        /// Its place in the list, from 0.
        position: usize,
        /// What could stand there.
        supported: &'static str,
    },
    /// A configuration file asks for something that this library does not do.
    #[error("{file}: {key} is {value}, which is not supported. Supported is: {supported}")]
    UnsupportedValue {
        /// The file, relative to the model's folder.
        file: String,
        /// The key.
        key: String,
        /// Its value, as JSON.
        value: String,
        /// The valid values.
        supported: String,
    },
    /// A configuration file does not have the form that it should have.
    #[error("{file}: {key} is {value}, expected is {expected}")]
    Malformed {
        /// The file, relative to the model's folder.
        file: String,
        /// The key.
        key: String,
        /// Its value, as JSON; `nothing` when it is absent.
        value: String,
        /// What should be there.
        expected: &'static str,
    },
    /// Two files of the model disagree about a width.
    #[error("{what} has {actual} dimensions, but {expected} come into it: the files do not belong together")]
    WidthMismatch {
        /// The module or file.
        what: String,
        /// The width that the part before it gives.
        expected: usize,
        /// The width that it is made for.
        actual: usize,
    },
    /// `tokenizer.json` could not be read.
    #[error("tokenizer.json of '{}' cannot be used: {message}", folder.display())]
    Tokenizer {
        /// The folder.
        folder: PathBuf,
        /// The reason, in the words of the tokenizers library where it gave one.
        message: String,
    },
    /// The tokenizer can give a token that the model does not have.
    #[error(
        "tokenizer.json has token ids up to {largest}, but the model's word table has {rows} rows, one for each id from 0: the files \
         do not belong together"
    )]
    VocabularyMismatch {
        /// The largest id of the tokenizer's vocabulary and of the tokens that it adds to every text.
        largest: u32,
        /// Rows of the word table, at least 1.
        rows: usize,
    },
    /// A template has no place for the text, or more than one.
    #[error("the {role} template {pattern:?} must hold {{text}} exactly once (and may hold {{instruction}})")]
    Template {
        /// Whose template it is.
        role: Role,
        /// The template.
        pattern: String,
    },
    /// The limit leaves no room for a text.
    #[error("a limit of {value} tokens is too small: the model's special tokens need {special}, so it must be at least {}", special + 1)]
    MaxLengthTooSmall {
        /// The limit.
        value: usize,
        /// Tokens that are added to every text.
        special: usize,
    },
    /// The files are of another kind of model.
    #[error("'{}' holds a {found} model: {} loads it, not {}", folder.display(), found.class(), wanted.class())]
    WrongKind {
        /// The model's folder.
        folder: PathBuf,
        /// What the files say.
        found: ModelKind,
        /// What was asked for.
        wanted: ModelKind,
    },
    /// The files have nothing of the kind that was asked for.
    #[error("'{}' holds no {wanted} model: {reason}", folder.display())]
    NotOfKind {
        /// The model's folder.
        folder: PathBuf,
        /// What was asked for.
        wanted: ModelKind,
        /// What is missing, and what would do.
        reason: String,
    },
    /// An option that this kind of model cannot follow.
    #[error("the option {option} is {value}, which a {kind} model cannot follow. Supported: {supported}")]
    UnsupportedOption {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: String,
        /// The kind.
        kind: ModelKind,
        /// What would be valid.
        supported: &'static str,
    },
    /// An override that makes no sense.
    #[error("the descriptor's {key} is {value}, allowed is {allowed}")]
    InvalidOverride {
        /// Which part of the descriptor.
        key: &'static str,
        /// What it was given as.
        value: String,
        /// What would be valid.
        allowed: &'static str,
    },
}

/// Why a text or an option of a call was refused. The next text of the same call may be fine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineError {
    /// The text is longer than the limit, and the policy is [`crate::Truncate::Error`].
    #[error(
        "the text has {actual} tokens, the limit is {limit} (special tokens and template included); chunkText splits it into texts that fit"
    )]
    TextTooLong {
        /// The model's effective limit in tokens.
        limit: usize,
        /// The text's tokens.
        actual: usize,
    },
    /// The policy is [`crate::Truncate::Start`], and the template alone is longer than the limit.
    #[error("the template has {actual} tokens, the limit is {limit} (special tokens included): no room for the text")]
    TemplateTooLong {
        /// The model's effective limit in tokens.
        limit: usize,
        /// Tokens of template and special tokens.
        actual: usize,
    },
    /// Chunks of so few tokens have no room for a text, or not for one of its characters.
    #[error("chunks of {actual} tokens are too small: prompt, special tokens and one character need {least}")]
    ChunkTooSmall {
        /// The tokens of a chunk that were asked for.
        actual: usize,
        /// The least that would do.
        least: usize,
    },
    /// Chunks of so many tokens would be cut when they are embedded.
    #[error("chunks of {actual} tokens are too large: the model embeds {limit} tokens at most")]
    ChunkTooLarge {
        /// The tokens of a chunk that were asked for.
        actual: usize,
        /// The model's effective limit in tokens.
        limit: usize,
    },
    /// Chunks would share all that they have room for, and never get on.
    #[error("an overlap of {actual} tokens is too large: a chunk has room for {room} tokens of the text, so it must be at most {}", room - 1)]
    OverlapTooLarge {
        /// The overlap that was asked for.
        actual: usize,
        /// Tokens of a chunk that are left for the text.
        room: usize,
    },
    /// The model cannot give vectors of this dimension.
    #[error("{actual} dimensions are not available, {}", allowed_dimensions(*native, allowed))]
    InvalidDimensions {
        /// The dimension that was asked for.
        actual: usize,
        /// The model's own.
        native: usize,
        /// Which others there are.
        allowed: Matryoshka,
    },
    /// An instruction was given, but the template of this role has no place for it.
    #[error("an instruction was given, but the {role} side of this model has no place for one ({})", match pattern { Some(pattern) => format!("its template is {pattern:?}"), None => "it has no template".to_owned() })]
    InstructionNotSupported {
        /// The role.
        role: Role,
        /// Its template, if it has one.
        pattern: Option<String>,
    },
    /// The template of this role needs an instruction, none was given and the model has no default.
    #[error("the {role} template {pattern:?} needs an instruction, and the model has no default one")]
    InstructionMissing {
        /// The role.
        role: Role,
        /// Its template.
        pattern: String,
    },
    /// There is nothing to compute: the text has no tokens and the model adds none.
    #[error("the text has no tokens, and this model adds none of its own")]
    NoTokens,
    /// The text holds an added token that the model does not have. (A model whose vocabulary itself is larger than its word
    /// table is refused when it is loaded.)
    #[error(
        "the tokenizer gave the token id {id}, but the model knows {vocabulary} tokens: the files do not belong together"
    )]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Number of tokens that the model knows.
        vocabulary: usize,
    },
    /// The tokenizer refused the text.
    #[error("the tokenizer failed on the text: {message}")]
    Tokenizer {
        /// In the words of the tokenizers library.
        message: String,
    },
    /// The tokenizer panicked: a bug in it, or in ours. Other texts are not affected.
    #[error("the tokenizer panicked on the text: {message}")]
    TokenizerPanicked {
        /// What the panic said.
        message: String,
    },
}

fn each(kinds: &[ModelKind], name: fn(ModelKind) -> &'static str) -> String {
    kinds.iter().map(|&kind| name(kind)).collect::<Vec<_>>().join(" or ")
}

fn allowed_dimensions(native: usize, allowed: &Matryoshka) -> String {
    match allowed {
        Matryoshka::None => format!("this model gives {native} only"),
        Matryoshka::Any => format!("this model gives 1 to {native}"),
        Matryoshka::Dimensions(some) => {
            let list: Vec<String> = some.iter().map(usize::to_string).collect();
            format!("this model gives {} and {native}", list.join(", "))
        }
    }
}

/// A vector that the model computed has a component that is not a finite number. Its batch-mates are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("component {component} of the vector is not a finite number")]
pub struct NonFinite {
    /// The first such component.
    pub component: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_table_without_rows_can_be_told() {
        let message = LoadError::VocabularyMismatch { largest: 7, rows: 0 }.to_string();
        assert!(message.contains("up to 7, but the model's word table has 0 rows"), "{message}");
    }
}
