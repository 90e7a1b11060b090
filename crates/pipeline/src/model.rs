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

use simile_encoder::{Context, EncodeError, Pooling, StaticEmbedding};
use simile_hub::ModelFiles;
use simile_kernels::{Isa, l2_normalize};

use crate::backbone::Backbone;
use crate::chunk::{Chunk, ChunkRequest, Chunker};
use crate::contract::{ContentIdentity, Contract, TextIdentity};
use crate::descriptor::{ModelDescriptor, Resolved, resolve};
use crate::error::{LoadError, NonFinite, PipelineError};
use crate::kind::ModelKind;
use crate::layer_norm::LayerNorm;
use crate::options::{LoadOptions, Precision};
use crate::parts::{self, Parts, Sources};
use crate::registry::{self, RegistryEntry};
use crate::sentence_transformers::{self, Files};
use crate::static_files::{self, StaticFiles, UNLIMITED};
use crate::template::{Role, Templates};
use crate::tokenizer::{Tokenizer, Tokens};
use crate::vector_modules::VectorModule;

/// A loaded model: text in, vectors out. Shared freely between threads.
pub struct TextModel {
    isa: Isa,
    precision: Precision,
    backbone: Backbone,
    tokenizer: Tokenizer,
    templates: Templates,
    /// Modules on the pooled vector, in order.
    vector_modules: Vec<VectorModule>,
    /// What happens to a vector before it is cut, and only then.
    norm_before_cut: Option<LayerNorm>,
    content: ContentIdentity,
    descriptor: ModelDescriptor,
    /// Contract id of the native dimension: every result carries it, and it takes a hash.
    native_contract: OnceLock<String>,
}

impl TextModel {
    /// Loads a model from its files.
    ///
    /// Cost: the weights are read once and packed, and hashed beside it.
    ///
    /// # Errors
    /// Any [`LoadError`].
    pub fn load(files: &ModelFiles, options: &LoadOptions) -> Result<TextModel, LoadError> {
        ModelKind::Dense.check(files)?;
        let read = sentence_transformers::read(files)?;
        let entry = registry::registered(&files.id);
        let loaded = match &read.static_model {
            None => Loaded::transformer(files, options, &read, entry)?,
            Some(static_files) => Loaded::static_model(files, options, &read, static_files, entry)?,
        };
        let Loaded { backbone, tokenizer, resolved, dimensions, model_type, content } = loaded;
        let vector_modules = read.vector_modules.iter().map(|config| VectorModule::load(options.isa, files, config));
        let vector_modules = vector_modules.collect::<Result<Vec<_>, _>>()?;
        let normed = entry.is_some_and(|entry| entry.layer_norm_before_cut);
        let norm_before_cut = normed.then(|| LayerNorm::plain(options.isa, dimensions));
        let pattern = |role| resolved.templates.of(role).map(|template| template.pattern().to_owned());
        let descriptor = ModelDescriptor {
            id: files.id.clone(),
            revision: files.revision.clone(),
            model_type,
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
            include_prompt: resolved.include_prompt,
            pooling: resolved.pooling,
        };
        Ok(TextModel {
            isa: options.isa,
            precision: options.precision,
            backbone,
            tokenizer,
            templates: resolved.templates,
            vector_modules,
            norm_before_cut,
            // Last: other errors say more about weights than a hash that could not be taken.
            content: content?,
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
        let mut contract = Contract::new(self.content.clone(), texts, &self.descriptor, self.precision, dimensions);
        contract.layer_norm = self.norm_before_cut.is_some() && dimensions < self.dimensions();
        contract
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
        let vocabulary = self.backbone.vocab_size();
        // Said here, where each is an error of this text: in a batch it would be one of its batch-mates too.
        match tokens.ids.iter().find(|id| **id as usize >= vocabulary) {
            Some(&id) => Err(PipelineError::TokenOutOfRange { id, vocabulary }),
            None if tokens.ids.is_empty() && !self.backbone.takes_no_tokens() => Err(PipelineError::NoTokens),
            None => {
                let prompt = &rendered.whole[..rendered.text.start];
                let counted = !prompt.is_empty() && !self.backbone.includes_prompt();
                let prompt = if counted { self.tokenizer.prompt_length(prompt)? } else { 0 };
                Ok(Some(Tokens { prompt, ..tokens }))
            }
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
        let limit = self.descriptor.max_length;
        let count = |part: &str| self.tokenizer.needed(&self.templates.apply(role, instruction, part)?, limit);
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
        self.backbone.flops(length)
    }

    /// Bytes of memory that the weights hold.
    pub fn memory_bytes(&self) -> usize {
        self.backbone.memory_bytes() + self.vector_modules.iter().map(VectorModule::bytes).sum::<usize>()
    }

    /// Computes one micro-batch: row i of `out` becomes the vector of the text `batch[i]`.
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
        batch: &[&Tokens],
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
        let mut vectors = self.backbone.pooled(batch, ctx)?;
        for module in &self.vector_modules {
            vectors = module.apply(vectors, batch.len());
        }
        if let Some(norm) = self.norm_before_cut.as_ref().filter(|_| dimensions < self.dimensions()) {
            vectors = norm.apply(vectors);
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

/// What is different between the kinds of models, behind it.
struct Loaded {
    backbone: Backbone,
    tokenizer: Tokenizer,
    resolved: Resolved,
    dimensions: usize,
    model_type: String,
    content: Result<ContentIdentity, LoadError>,
}

impl Loaded {
    fn transformer(
        files: &ModelFiles,
        options: &LoadOptions,
        read: &Files,
        entry: Option<&RegistryEntry>,
    ) -> Result<Loaded, LoadError> {
        let sources = Sources {
            transformer: &read.transformer,
            bert_keys: &read.bert_keys,
            lowercase: read.lowercase,
            modules: &read.vector_modules,
        };
        let parts = Parts::load(files, options, &sources)?;
        let resolved = resolve(options, read, entry, parts.encoder.max_position_embeddings())?;
        parts.check(resolved.max_length)?;
        let dimensions = widths(read, parts.encoder.hidden_size(), resolved.pooling.len())?;
        let model_type = parts.model_type();
        let backbone = Backbone::transformer(parts.encoder, &resolved.pooling, resolved.include_prompt);
        Ok(Loaded { backbone, tokenizer: parts.tokenizer, resolved, dimensions, model_type, content: parts.content })
    }

    fn static_model(
        files: &ModelFiles,
        options: &LoadOptions,
        read: &Files,
        static_files: &StaticFiles,
        entry: Option<&RegistryEntry>,
    ) -> Result<Loaded, LoadError> {
        let folder = &read.transformer;
        let tokenizer = parts::tokenizer_json(files, folder)?;
        let tokenizer = Tokenizer::of_static(&files.folder, &tokenizer, static_files.model2vec)?;
        let table = StaticEmbedding::load(&files.folder.join(folder))?;
        let resolved = resolve(options, read, entry, UNLIMITED)?;
        if resolved.pooling != [Pooling::Mean] {
            let value = format!("{:?}", resolved.pooling.iter().map(|pooling| pooling.name()).collect::<Vec<_>>());
            let allowed = "mean, because a static model is the mean of its tokens' vectors";
            return Err(LoadError::InvalidOverride { key: "pooling", value, allowed });
        }
        parts::check(&tokenizer, table.tokens(), resolved.max_length)?;
        let dimensions = widths(read, table.width(), 1)?;
        let config = static_files::config_file(files, folder);
        let content = ContentIdentity::read(files, &config, folder, &read.vector_modules);
        let model_type = static_files.model_type.clone();
        Ok(Loaded { backbone: Backbone::Static(table), tokenizer, resolved, dimensions, model_type, content })
    }
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
    for module in &read.vector_modules {
        check(&format!("{}config.json", module.folder()), width, module.inputs())?;
        width = module.outputs();
    }
    Ok(width)
}
