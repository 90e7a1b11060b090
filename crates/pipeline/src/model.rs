//! A loaded model: the nine steps from a text to its vector.
//!
//! | step | where |
//! |---|---|
//! | 1 template, 2 tokenizer | [`TextModel::tokenize`], one text at a time, on any thread |
//! | 3 batch | [`crate::plan`] chooses it; it stays ragged, so nothing is padded |
//! | 4 forward, 5 pooling, 6 f32, 7 Matryoshka cut, 8 normalise | [`TextModel::encode`], one micro-batch at a time |
//! | 9 order | the caller's `out` slices: each row is written to its own place |
//!
//! A row's bytes depend on its ids alone: never on its batch-mates, their order, or the number of threads.

use std::fmt;
use std::sync::OnceLock;
use std::thread;

use serde_json::Value;
use simile_encoder::{Context, EncodeError, Encoder, EncoderInput, Pooling, Rows, load_simd};
use simile_hub::ModelFiles;
use simile_kernels::{Isa, l2_normalize};

use crate::chunk::{Chunk, ChunkRequest, Chunker};
use crate::contract::{ContentIdentity, Contract, TextIdentity};
use crate::dense::Dense;
use crate::descriptor::{ModelDescriptor, resolve};
use crate::error::{LoadError, NonFinite, PipelineError};
use crate::options::{LoadOptions, Precision};
use crate::registry;
use crate::sentence_transformers::{self, Files};
use crate::template::{Role, Templates};
use crate::tokenizer::{Tokenizer, Tokens};

/// A loaded model: text in, vectors out. Shared freely between threads.
pub struct TextModel {
    isa: Isa,
    precision: Precision,
    encoder: Box<dyn Encoder>,
    tokenizer: Tokenizer,
    templates: Templates,
    dense: Vec<Dense>,
    /// Rows of the last layer that the poolings read.
    rows: Rows,
    content: ContentIdentity,
    descriptor: ModelDescriptor,
    /// Contract id of the native dimension: every result carries it, and it takes a hash.
    native_contract: OnceLock<String>,
}

impl TextModel {
    /// Loads a model from its files.
    ///
    /// Cost: the weights are read once and packed; their hash is taken beside it on a thread of its own, unless it is
    /// known already (see [`ModelFiles::sha256`]).
    ///
    /// # Errors
    /// Any [`LoadError`].
    pub fn load(files: &ModelFiles, options: &LoadOptions) -> Result<TextModel, LoadError> {
        let read = sentence_transformers::read(files)?;
        let folder = &read.transformer;
        let missing = |name: &str, advice| LoadError::MissingFile {
            folder: files.folder.clone(),
            name: format!("{folder}{name}"),
            advice,
        };
        let config = files
            .read_json(&format!("{folder}config.json"))?
            .ok_or_else(|| missing("config.json", "Give the folder of a transformers model"))?;
        let tokenizer_json = files.read(&format!("{folder}tokenizer.json"))?.ok_or_else(|| {
            missing(
                "tokenizer.json",
                "Other tokenizer files are not read; save it again with transformers' AutoTokenizer",
            )
        })?;
        let tokenizer = Tokenizer::new(&files.folder, &tokenizer_json, &read.bert_keys, read.lowercase)?;

        let encoder_folder = files.folder.join(folder);
        let (encoder, content) = thread::scope(|scope| {
            let hashing = thread::Builder::new()
                .name("simile-hash".to_owned())
                .spawn_scoped(scope, || ContentIdentity::read(files, folder, &read.dense));
            let encoder = load_simd(options.isa, &config, &encoder_folder);
            let content = match hashing.map(|thread| thread.join()) {
                Ok(Ok(content)) => content,
                // No thread was to be had, or it panicked: here, where a panic is seen.
                _ => ContentIdentity::read(files, folder, &read.dense),
            };
            (encoder, content)
        });
        let parts = Parts { encoder: encoder?, tokenizer, content };
        Self::assemble(files, options, &read, &config, parts)
    }

    fn assemble(
        files: &ModelFiles,
        options: &LoadOptions,
        read: &Files,
        config: &Value,
        parts: Parts,
    ) -> Result<TextModel, LoadError> {
        let entry = registry::registered(&files.id);
        let resolved = resolve(options, read, entry, parts.encoder.max_position_embeddings())?;
        let special = parts.tokenizer.special_tokens();
        if resolved.max_length <= special {
            return Err(LoadError::MaxLengthTooSmall { value: resolved.max_length, special });
        }
        let (largest, table) = (parts.tokenizer.largest_id(), parts.encoder.vocab_size());
        if largest as usize >= table {
            return Err(LoadError::VocabularyMismatch { largest, rows: table });
        }
        let dimensions = widths(read, parts.encoder.hidden_size(), resolved.pooling.len())?;
        let dense = read.dense.iter().map(|config| Dense::load(options.isa, files, config));
        let dense = dense.collect::<Result<Vec<_>, _>>()?;
        let pattern = |role| resolved.templates.of(role).map(|template| template.pattern().to_owned());
        let descriptor = ModelDescriptor {
            id: files.id.clone(),
            revision: files.revision.clone(),
            model_type: config["model_type"].as_str().unwrap_or_default().to_owned(),
            query_template: pattern(Role::Query),
            passage_template: pattern(Role::Passage),
            default_instruction: resolved.templates.default_instruction.clone(),
            max_length: resolved.max_length,
            truncate: resolved.truncate,
            normalize: resolved.normalize,
            dimensions,
            matryoshka: resolved.matryoshka,
            lowercase: read.lowercase,
            licence: entry.map(|entry| entry.licence.to_owned()),
            size_bytes: entry.and_then(|entry| entry.size_bytes),
            gated: entry.is_some_and(|entry| entry.gated),
            origins: resolved.origins,
            pooling: resolved.pooling,
        };
        Ok(TextModel {
            isa: options.isa,
            precision: options.precision,
            encoder: parts.encoder,
            tokenizer: parts.tokenizer,
            templates: resolved.templates,
            dense,
            rows: rows(&descriptor.pooling),
            // Last: other errors say more about weights than a hash that could not be taken.
            content: parts.content?,
            descriptor,
            native_contract: OnceLock::new(),
        })
    }

    /// The model's facts as they are in force.
    pub fn descriptor(&self) -> &ModelDescriptor {
        &self.descriptor
    }

    /// Native output dimension.
    pub fn dimensions(&self) -> usize {
        self.descriptor.dimensions
    }

    /// Limit in tokens, special tokens and template included.
    pub fn max_length(&self) -> usize {
        self.descriptor.max_length
    }

    /// The contract id of vectors of `dimensions` (`None`: native), 16 hexadecimal digits: what they may be compared with.
    /// The dimension is not checked. Cost: one hash of about a kilobyte.
    pub fn contract(&self, dimensions: Option<usize>) -> String {
        match dimensions {
            Some(cut) if cut != self.dimensions() => self.contract_fields(cut).id(),
            _ => self.native_contract.get_or_init(|| self.contract_fields(self.dimensions()).id()).clone(),
        }
    }

    fn contract_fields(&self, dimensions: usize) -> Contract {
        let texts = TextIdentity { normalizer: self.tokenizer.normalizer(), templates: self.templates.clone() };
        Contract::new(self.content.clone(), texts, &self.descriptor, self.precision, dimensions)
    }

    /// The output dimension of a call that asks for `dimensions` (`None`: native).
    ///
    /// # Errors
    /// [`PipelineError::InvalidDimensions`].
    pub fn check_dimensions(&self, dimensions: Option<usize>) -> Result<usize, PipelineError> {
        let native = self.dimensions();
        match dimensions {
            None => Ok(native),
            Some(some) if self.descriptor.matryoshka.allows(some, native) => Ok(some),
            Some(actual) => {
                Err(PipelineError::InvalidDimensions { actual, native, allowed: self.descriptor.matryoshka.clone() })
            }
        }
    }

    /// Whether texts of `role` can be embedded with this instruction, or without one: the same for every text.
    ///
    /// # Errors
    /// [`PipelineError::InstructionNotSupported`] or [`PipelineError::InstructionMissing`].
    pub fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError> {
        self.templates.choose(role, instruction).map(|_| ())
    }

    /// Applies the template of `role` to one text, tokenises it, and cuts it to [`TextModel::max_length`] tokens.
    ///
    /// # Errors
    /// Any [`PipelineError`] but `InvalidDimensions`.
    pub fn tokenize(&self, role: Role, instruction: Option<&str>, text: &str) -> Result<Tokens, PipelineError> {
        Ok(self.tokenize_while(role, instruction, text, &|| true)?.expect("nobody said no"))
    }

    /// As [`TextModel::tokenize`]; `go_on` is asked every few milliseconds of a long text (of BERT's kind of tokenizer:
    /// others read a text in one go), and may take its time. `None` when it says no.
    ///
    /// # Errors
    /// Those of [`TextModel::tokenize`].
    pub fn tokenize_while(
        &self,
        role: Role,
        instruction: Option<&str>,
        text: &str,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Tokens>, PipelineError> {
        let rendered = self.templates.apply(role, instruction, text)?;
        let ModelDescriptor { max_length, truncate, .. } = self.descriptor;
        let Some(tokens) = self.tokenizer.encode_while(&rendered, max_length, truncate, go_on)? else {
            return Ok(None);
        };
        let vocabulary = self.encoder.vocab_size();
        // Said here, where each is an error of this text: in a batch it would be one of its batch-mates too.
        match tokens.ids.iter().find(|id| **id as usize >= vocabulary) {
            Some(&id) => Err(PipelineError::TokenOutOfRange { id, vocabulary }),
            None if tokens.ids.is_empty() => Err(PipelineError::NoTokens),
            None => Ok(Some(tokens)),
        }
    }

    /// Cuts one text into chunks that are embedded whole under `role` and `instruction`. White space alone gives none.
    /// `go_on` is asked every few milliseconds; `None` when it says no.
    ///
    /// # Errors
    /// [`PipelineError::ChunkTooSmall`], [`PipelineError::ChunkTooLarge`], [`PipelineError::OverlapTooLarge`], those of the
    /// instruction and those of the tokenizer.
    pub fn chunk(
        &self,
        role: Role,
        instruction: Option<&str>,
        text: &str,
        request: ChunkRequest,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Chunk>>, PipelineError> {
        let count = |part: &str| self.tokenizer.total(&self.templates.apply(role, instruction, part)?);
        let limit = self.descriptor.max_length;
        let (max_tokens, around) = (request.max_tokens.unwrap_or(limit), count("")?);
        if max_tokens > limit {
            return Err(PipelineError::ChunkTooLarge { actual: max_tokens, limit });
        }
        if max_tokens <= around {
            return Err(PipelineError::ChunkTooSmall { actual: max_tokens, least: around + 1 });
        }
        let (room, overlap) = (max_tokens - around, request.overlap);
        if overlap >= room {
            return Err(PipelineError::OverlapTooLarge { actual: overlap, room });
        }
        let Some(starts) = self.tokenizer.starts(text, go_on)? else { return Ok(None) };
        Chunker { text, starts: &starts, max_tokens, room, overlap, count: &count, go_on }.run()
    }

    /// Estimated work of a text of `length` tokens in floating point operations.
    pub fn cost(&self, length: usize) -> u64 {
        self.encoder.flops(length)
    }

    /// Bytes of memory that the weights hold.
    pub fn memory_bytes(&self) -> usize {
        self.encoder.memory_bytes() + self.dense.iter().map(Dense::bytes).sum::<usize>()
    }

    /// Computes one micro-batch: row i of `out` becomes the vector of the ids `batch[i]`.
    ///
    /// Forward, pooling, Dense modules, cut to `dimensions`, normalisation if the model normalises (the norm is at least
    /// 1e-12), all in f32. The result has an entry for each text; a row that is not finite is an error of its own text.
    ///
    /// # Errors
    /// [`EncodeError`], of the whole batch.
    ///
    /// # Panics
    /// When `out` has not one slice of `dimensions` values for each text, or `dimensions` is over the native one.
    pub fn encode(
        &self,
        batch: &[&[u32]],
        dimensions: usize,
        out: &mut [&mut [f32]],
        ctx: &mut Context<'_>,
    ) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
        assert!(dimensions <= self.dimensions(), "{dimensions} dimensions of {}", self.dimensions());
        assert_eq!(out.len(), batch.len(), "one slice for each text");
        assert!(out.iter().all(|row| row.len() == dimensions), "each slice holds one vector");
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let ids = batch.concat();
        let lengths: Vec<usize> = batch.iter().map(|ids| ids.len()).collect();
        let input = EncoderInput { input_ids: &ids, token_type_ids: &[], lengths: &lengths };
        let hidden = self.encoder.forward(&input, self.rows, ctx)?;
        let mut vectors = pool(&hidden, &self.descriptor.pooling);
        hidden.recycle(ctx.scratch);
        for dense in &self.dense {
            vectors = dense.apply(&vectors, batch.len());
        }
        let vectors = vectors.chunks_exact(self.dimensions());
        Ok(vectors.zip(out).map(|(vector, row)| self.finish(&vector[..dimensions], row)).collect())
    }

    /// Copies a cut vector to its place and normalises it there.
    fn finish(&self, vector: &[f32], row: &mut [f32]) -> Result<(), NonFinite> {
        row.copy_from_slice(vector);
        if let Some(component) = row.iter().position(|value| !value.is_finite()) {
            return Err(NonFinite { component });
        }
        if self.descriptor.normalize {
            l2_normalize(self.isa, row);
        }
        Ok(())
    }
}

impl fmt::Debug for TextModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextModel")
            .field("descriptor", &self.descriptor)
            .field("isa", &self.isa.name())
            .finish_non_exhaustive()
    }
}

struct Parts {
    encoder: Box<dyn Encoder>,
    tokenizer: Tokenizer,
    content: Result<ContentIdentity, LoadError>,
}

/// Rows of the last layer that are read: those that all poolings agree on, else all.
fn rows(poolings: &[Pooling]) -> Rows {
    let first = poolings[0].rows();
    if poolings.iter().all(|pooling| pooling.rows() == first) { first } else { Rows::All }
}

/// Pools each sequence; several poolings stand one after the other in its row.
fn pool(hidden: &simile_encoder::Hidden, poolings: &[Pooling]) -> Vec<f32> {
    let (count, width) = (hidden.sequences(), hidden.hidden_size());
    let mut one = vec![0.0; count * width];
    if let [pooling] = poolings {
        hidden.pool(*pooling, &mut one);
        return one;
    }
    let mut all = vec![0.0; count * width * poolings.len()];
    for (place, pooling) in poolings.iter().enumerate() {
        hidden.pool(*pooling, &mut one);
        for (row, pooled) in all.chunks_exact_mut(width * poolings.len()).zip(one.chunks_exact(width)) {
            row[place * width..][..width].copy_from_slice(pooled);
        }
    }
    all
}

/// The output dimension; checks that every module is made for the width that comes into it.
fn widths(read: &Files, hidden: usize, poolings: usize) -> Result<usize, LoadError> {
    let check = |what: &str, expected, actual| match expected == actual {
        true => Ok(()),
        false => Err(LoadError::WidthMismatch { what: what.to_owned(), expected, actual }),
    };
    if let Some((file, width)) = read.pooling.as_ref().and_then(|pooling| Some((&pooling.file, pooling.width?))) {
        check(file, hidden, width)?;
    }
    let mut width = hidden * poolings;
    for dense in &read.dense {
        check(&format!("{}config.json", dense.folder), width, dense.inputs)?;
        width = dense.outputs;
    }
    Ok(width)
}
