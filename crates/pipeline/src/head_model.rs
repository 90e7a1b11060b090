//! Models that give something else than one vector a text: what they have in common.
//!
//! [`HeadModel`] is one of them, loaded; [`load_head`] makes it. Contract: as [`crate::TextModel`]'s. A row's bytes depend on
//! its text (or pair) alone, and nothing that changes a result is ignored.

use serde::Serialize;
use simile_encoder::{
    Architecture, Context, EncodeError, Encoder, EncoderInput, Hidden, LoadError as EncoderError, Rows, Weights,
    parse_config,
};
use simile_hub::ModelFiles;

use crate::contract::{ContentIdentity, id_of};
use crate::cross_encoder::CrossEncoder;
use crate::descriptor::limit;
use crate::error::{LoadError, PipelineError};
use crate::kind::ModelKind;
use crate::multi_vector::MultiVectorModel;
use crate::normalizer::BertValues;
use crate::options::{LoadOptions, Precision, Truncate};
use crate::outputs::Outputs;
use crate::parts::{Parts, Sources};
use crate::sentence_transformers::{self, Limit, Task, Transformer};
use crate::sparse::SparseModel;
use crate::template::{Role, Template, Templates};
use crate::tokenizer::{Input, Tokenizer, Tokens};

/// A loaded sparse, multi-vector or rerank model. Shared freely between threads.
pub trait HeadModel: Send + Sync {
    /// The model's facts as they are in force.
    fn descriptor(&self) -> &HeadDescriptor;

    /// What its results may be compared with: those of the same id, 16 hexadecimal digits.
    fn contract(&self) -> &str;

    /// Whether texts of `role` can be computed with this instruction, or without one: the same for every text.
    ///
    /// # Errors
    /// [`PipelineError::InstructionNotSupported`] or [`PipelineError::InstructionMissing`].
    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError>;

    /// The tokens of a text or pair; `go_on` is asked every few milliseconds, `None` when it says no.
    ///
    /// # Errors
    /// [`PipelineError`] of this text.
    fn tokenize(&self, input: &Input<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError>;

    /// Estimated work of a text of `length` tokens in floating point operations.
    fn cost(&self, length: usize) -> u64;

    /// Bytes of memory that the weights hold.
    fn memory_bytes(&self) -> usize;

    /// Computes one micro-batch: appends a row to `out` for each text.
    ///
    /// # Errors
    /// [`EncodeError`], of the whole batch.
    fn encode(&self, batch: &[&Tokens], out: &mut Outputs, ctx: &mut Context<'_>) -> Result<(), EncodeError>;
}

/// The facts of a loaded [`HeadModel`].
#[derive(Clone, Debug, PartialEq)]
pub struct HeadDescriptor {
    /// The model's id; for a folder, the folder as it was given.
    pub id: String,
    /// The commit of its files, where one is known.
    pub revision: Option<String>,
    /// `model_type` of `config.json`; empty for a model without one.
    pub model_type: String,
    /// What it gives.
    pub kind: ModelKind,
    /// What computes it: `"splade"`, `"colbert"`, `"classifier"`, …
    pub head: &'static str,
    /// Sparse: words of the vocabulary; multi-vector: values of a token's vector; rerank: 1, the score.
    pub dimensions: usize,
    /// Limit in tokens, special tokens counted; of a pair for a reranker.
    pub max_length: usize,
    /// Limit of a query where it has one of its own.
    pub query_length: Option<usize>,
    /// What happens to longer texts.
    pub truncate: Truncate,
    /// Rerank: what is applied to the logit, `"identity"`, `"sigmoid"` or `"softmax"`.
    pub activation: Option<&'static str>,
    /// Template of queries.
    pub query_template: Option<String>,
    /// Template of passages.
    pub passage_template: Option<String>,
    /// What `{instruction}` stands for when a call gives none.
    pub default_instruction: Option<String>,
}

/// Loads a model of one of the kinds that are not dense.
///
/// # Errors
/// Any [`LoadError`]; [`LoadError::WrongKind`] for files of another kind.
///
/// # Panics
/// For the dense kind: that is [`crate::TextModel`].
pub fn load_head(kind: ModelKind, files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn HeadModel>, LoadError> {
    Ok(match kind {
        ModelKind::Dense => panic!("a dense model is a TextModel"),
        ModelKind::Sparse => SparseModel::load(files, options)?,
        ModelKind::MultiVector => Box::new(MultiVectorModel::load(files, options)?),
        ModelKind::Rerank => Box::new(CrossEncoder::load(files, options)?),
    })
}

/// Encoder and tokenizer of such a model, and the values that all of them have.
pub(crate) struct Base {
    pub(crate) encoder: Box<dyn Encoder>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) config: serde_json::Value,
    pub(crate) limit: Limit,
    pub(crate) truncate: Truncate,
    lowercase: bool,
    content: ContentIdentity,
}

/// The encoder's checkpoint, from which a head reads its own tensors.
pub(crate) struct Checkpoint {
    pub(crate) weights: Weights,
    pub(crate) architecture: Architecture,
}

/// What decides the results of such a model. Serialised with its fields in the order of their declaration.
#[derive(Serialize)]
struct HeadContract<'a, S> {
    version: u32,
    kind: &'static str,
    content: &'a ContentIdentity,
    /// SHA-256 of the head's own files.
    files: Vec<String>,
    lowercase: bool,
    normalizer: Option<BertValues>,
    /// The head's settings.
    head: S,
    query_template: Option<Template>,
    passage_template: Option<Template>,
    default_instruction: Option<String>,
    max_length: usize,
    truncate: &'static str,
    precision: &'static str,
}

impl Base {
    /// Reads encoder and tokenizer of the model in `folder` (empty, or with a trailing `/`).
    pub(crate) fn load(
        files: &ModelFiles,
        options: &LoadOptions,
        folder: &str,
        task: &Task,
    ) -> Result<(Base, Checkpoint), LoadError> {
        let Transformer { limit, lowercase, bert_keys, truncation_side, .. } =
            sentence_transformers::transformer(files, folder, task)?;
        let sources = Sources { transformer: folder, bert_keys: &bert_keys, lowercase, modules: &[] };
        let Parts { config, encoder, tokenizer, content } = Parts::load(files, options, &sources)?;
        let weights = Weights::open(&files.folder.join(folder)).map_err(EncoderError::from)?;
        let architecture = parse_config(&config, &|name| weights.get(name).is_some()).map_err(EncoderError::from)?;
        let truncate = options.truncate.or(truncation_side).unwrap_or_default();
        let content = content?;
        let base = Base { encoder, tokenizer, config, limit, truncate, lowercase, content };
        Ok((base, Checkpoint { weights, architecture }))
    }

    /// The limit in tokens in force, of which `special` must leave room for a text.
    pub(crate) fn max_length(&self, options: &LoadOptions, special: usize) -> Result<usize, LoadError> {
        let (_, value) = limit(options.max_length, &self.limit, None, self.encoder.max_position_embeddings());
        self.check(value, special)?;
        Ok(value)
    }

    /// Whether encoder and tokenizer fit each other, at a limit of `max_length` tokens.
    pub(crate) fn check(&self, max_length: usize, special: usize) -> Result<(), LoadError> {
        if max_length <= special {
            return Err(LoadError::MaxLengthTooSmall { value: max_length, special });
        }
        let (largest, rows) = (self.tokenizer.largest_id(), self.encoder.vocab_size());
        if largest as usize >= rows {
            return Err(LoadError::VocabularyMismatch { largest, rows });
        }
        Ok(())
    }

    /// The contract's id, for a head with these settings and files.
    pub(crate) fn contract(
        &self,
        files: &ModelFiles,
        own: &[&str],
        descriptor: &HeadDescriptor,
        templates: &Templates,
        head: impl Serialize,
        precision: Precision,
    ) -> Result<String, LoadError> {
        Ok(id_of(&HeadContract {
            version: 1,
            kind: descriptor.kind.name(),
            content: &self.content,
            files: own.iter().map(|name| files.sha256(name)).collect::<Result<_, _>>()?,
            lowercase: self.lowercase,
            normalizer: self.tokenizer.normalizer(),
            head,
            query_template: templates.query.clone(),
            passage_template: templates.passage.clone(),
            default_instruction: templates.default_instruction.clone(),
            max_length: descriptor.max_length,
            truncate: descriptor.truncate.name(),
            precision: precision.name(),
        }))
    }

    /// A text's tokens in its template, within the limit and the vocabulary.
    pub(crate) fn tokenize(
        &self,
        templates: &Templates,
        input: &Input<'_>,
        max_length: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Tokens>, PipelineError> {
        let rendered = templates.apply(input.role, input.instruction, input.text)?;
        let tokens = self.tokenizer.encode_while(&rendered, max_length, self.truncate, go_on)?;
        tokens.map(|tokens| self.known(Tokens { role: input.role, ..tokens })).transpose()
    }

    /// The tokens, if the encoder knows them all and there is one.
    pub(crate) fn known(&self, tokens: Tokens) -> Result<Tokens, PipelineError> {
        let vocabulary = self.encoder.vocab_size();
        match tokens.ids.iter().find(|id| **id as usize >= vocabulary) {
            Some(&id) => Err(PipelineError::TokenOutOfRange { id, vocabulary }),
            None if tokens.ids.is_empty() => Err(PipelineError::NoTokens),
            None => Ok(tokens),
        }
    }

    /// The hidden states of a batch. With `apart`, padding is not attended to.
    pub(crate) fn forward(
        &self,
        batch: &[&Tokens],
        rows: Rows,
        apart: bool,
        ctx: &mut Context<'_>,
    ) -> Result<Hidden, EncodeError> {
        let flat = Flat::new(batch, apart);
        self.encoder.forward(&flat.input(), rows, ctx)
    }
}

/// A batch's tokens one after the other.
pub(crate) struct Flat {
    ids: Vec<u32>,
    types: Vec<u32>,
    lengths: Vec<usize>,
    attended: Vec<usize>,
}

impl Flat {
    pub(crate) fn new(batch: &[&Tokens], apart: bool) -> Flat {
        let mut flat = Flat { ids: Vec::new(), types: Vec::new(), lengths: Vec::new(), attended: Vec::new() };
        let typed = batch.iter().any(|tokens| !tokens.types.is_empty());
        for tokens in batch {
            flat.ids.extend_from_slice(&tokens.ids);
            flat.types.extend_from_slice(&tokens.types);
            if typed {
                flat.types.resize(flat.ids.len(), 0);
            }
            flat.lengths.push(tokens.ids.len());
            if apart {
                flat.attended.push(tokens.embedded());
            }
        }
        flat
    }

    pub(crate) fn input(&self) -> EncoderInput<'_> {
        EncoderInput {
            input_ids: &self.ids,
            token_type_ids: &self.types,
            lengths: &self.lengths,
            attended: &self.attended,
        }
    }
}
