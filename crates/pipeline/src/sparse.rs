//! Sparse models: a weight for each of some words of a vocabulary.
//!
//! | head | files | weight of a word |
//! |---|---|---|
//! | `splade` | `modules.json` with SpladePooling, or an architecture `...ForMaskedLM` | largest (or sum) of `log1p(relu(logit))` over the tokens |
//! | `bge-m3` | `sparse_linear.pt` or `sparse_linear.safetensors` | largest `relu(w x + b)` of its tokens; special tokens have none |
//! | `bm42` | see `bm42.rs` | attention of the first token |
//! | `bm25` | none: see `bm25.rs` | its frequency, saturated |

use std::collections::BTreeMap;

use serde::Serialize;
use simile_encoder::{
    Context, EncodeError, Lexical, LoadError as EncoderError, MaskedLm, MlmPooling, MlmSettings, Rows, Weights,
};
use simile_hub::ModelFiles;

use crate::bm42::{Bm42, is_bm42};
use crate::error::{LoadError, PipelineError};
use crate::head_model::{Base, HeadDescriptor, HeadModel};
use crate::json::{Keys, show};
use crate::kind::ModelKind;
use crate::modules;
use crate::options::LoadOptions;
use crate::outputs::Outputs;
use crate::sentence_transformers::{self, Prompts, Task};
use crate::template::{Role, Template, Templates};
use crate::tokenizer::{Input, Tokens};

/// What weighs.
enum Head {
    Splade(MaskedLm),
    Lexical {
        weights: Lexical,
        /// Ids that get no weight: those of the tokenizer's frame, padding and unknown.
        special: Vec<u32>,
    },
}

/// The part of the contract that is the head's.
#[derive(Serialize)]
struct Settings {
    head: &'static str,
    strategy: &'static str,
    twice: bool,
    tied: bool,
}

/// A loaded sparse model.
pub(crate) struct SparseModel {
    base: Base,
    head: Head,
    templates: Templates,
    descriptor: HeadDescriptor,
    contract: String,
}

/// BGE-M3's head, the first that is there.
const LEXICAL: [&str; 2] = ["sparse_linear.safetensors", "sparse_linear.pt"];
const POOLING: &str = "1_SpladePooling/config.json";

impl SparseModel {
    /// Loads a sparse model of whichever head its files have.
    pub(crate) fn load(files: &ModelFiles, options: &LoadOptions) -> Result<Box<dyn HeadModel>, LoadError> {
        check_id(&files.id)?;
        if is_bm42(&files.id) {
            return Ok(Box::new(Bm42::load(files, options)?));
        }
        match LEXICAL.iter().find(|name| files.exists(name)) {
            Some(name) => Self::lexical(files, options, name),
            None => Self::splade(files, options),
        }
        .map(|model| Box::new(model) as Box<dyn HeadModel>)
    }

    fn splade(files: &ModelFiles, options: &LoadOptions) -> Result<SparseModel, LoadError> {
        ModelKind::Sparse.check(files)?;
        let modules = Modules::read(files)?;
        let task = Task { name: "fill-mask", output: "token_embeddings" };
        // Before the weights, which may be large.
        let config = files.read_json(&format!("{}config.json", modules.transformer))?.unwrap_or_default();
        let masked = |name: &serde_json::Value| name.as_str().is_some_and(|name| name.ends_with("ForMaskedLM"));
        if !config["architectures"].as_array().is_some_and(|names| names.iter().any(masked)) {
            let reason = format!(
                "config.json has the architectures {}; a SPLADE model has one that ends with ForMaskedLM, BGE-M3 has sparse_linear.pt",
                show(config.get("architectures"))
            );
            return Err(LoadError::NotOfKind { folder: files.folder.clone(), wanted: ModelKind::Sparse, reason });
        }
        let (base, checkpoint) = Base::load(files, options, &modules.transformer, &task)?;
        let (pooling, twice) = match &modules.pooling {
            Some(file) => pooling(files, file)?,
            None => (MlmPooling::Max, false),
        };
        let tied = Keys::new("config.json", Some(&base.config))?.flag("tie_word_embeddings")?.unwrap_or(true);
        let settings = MlmSettings { pooling, twice, tied };
        let head = MaskedLm::load(options.isa, &checkpoint.weights, &checkpoint.architecture, &base.config, settings)?;
        let strategy = if pooling == MlmPooling::Max { "max" } else { "sum" };
        let dimensions = head.vocabulary();
        let settings = Settings { head: "splade", strategy, twice, tied };
        Self::assemble(files, options, base, (Head::Splade(head), settings, dimensions), &[])
    }

    fn lexical(files: &ModelFiles, options: &LoadOptions, name: &str) -> Result<SparseModel, LoadError> {
        let (base, _) = Base::load(files, options, "", &Task::EMBEDDING)?;
        let weights = Weights::open_file(&files.path(name)?).map_err(EncoderError::from)?;
        let head = Lexical::load(options.isa, &weights, base.encoder.hidden_size()).map_err(EncoderError::from)?;
        let (before, after) = base.tokenizer.frame();
        let named = ["<s>", "</s>", "<pad>", "<unk>"].into_iter().filter_map(|token| base.tokenizer.id_of(token));
        let special = before.iter().chain(after).copied().chain(named).collect();
        let dimensions = base.encoder.vocab_size();
        let settings = Settings { head: "bge-m3", strategy: "max", twice: false, tied: false };
        Self::assemble(files, options, base, (Head::Lexical { weights: head, special }, settings, dimensions), &[name])
    }

    fn assemble(
        files: &ModelFiles,
        options: &LoadOptions,
        base: Base,
        (head, settings, dimensions): (Head, Settings, usize),
        own: &[&str],
    ) -> Result<SparseModel, LoadError> {
        let max_length = base.max_length(options, base.tokenizer.special_tokens())?;
        let kind = if settings.head == "splade" { "SparseEncoder" } else { "SentenceTransformer" };
        let Prompts { query, passage, .. } = sentence_transformers::prompts(files, kind)?;
        let template = |prompt: Option<String>| prompt.map(|prompt| Template::prefix(&prompt));
        let templates = Templates { query: template(query), passage: template(passage), default_instruction: None };
        let pattern = |template: &Option<Template>| template.as_ref().map(|template| template.pattern().to_owned());
        let descriptor = HeadDescriptor {
            id: files.id.clone(),
            revision: files.revision.clone(),
            model_type: base.config["model_type"].as_str().unwrap_or_default().to_owned(),
            kind: ModelKind::Sparse,
            head: settings.head,
            dimensions,
            max_length,
            query_length: None,
            truncate: base.truncate,
            activation: None,
            query_template: pattern(&templates.query),
            passage_template: pattern(&templates.passage),
            default_instruction: None,
        };
        let contract = base.contract(files, own, &descriptor, &templates, settings, options.precision)?;
        Ok(SparseModel { base, head, templates, descriptor, contract })
    }
}

impl HeadModel for SparseModel {
    fn descriptor(&self) -> &HeadDescriptor {
        &self.descriptor
    }

    fn contract(&self) -> &str {
        &self.contract
    }

    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError> {
        self.templates.choose(role, instruction).map(|_| ())
    }

    fn tokenize(&self, input: &Input<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
        self.base.tokenize(&self.templates, input, self.descriptor.max_length, go_on)
    }

    fn cost(&self, length: usize) -> u64 {
        let head = match &self.head {
            Head::Splade(head) => head.flops(length),
            Head::Lexical { .. } => 0,
        };
        self.base.encoder.flops(length) + head
    }

    fn memory_bytes(&self) -> usize {
        let head = match &self.head {
            Head::Splade(head) => head.bytes(),
            Head::Lexical { .. } => 0,
        };
        self.base.encoder.memory_bytes() + head
    }

    fn encode(&self, batch: &[&Tokens], out: &mut Outputs, ctx: &mut Context<'_>) -> Result<(), EncodeError> {
        let hidden = self.base.forward(batch, Rows::All, false, ctx)?;
        match &self.head {
            Head::Splade(head) => {
                head.weights(&hidden, ctx)?.into_iter().for_each(|entries| out.push_sparse(entries));
            }
            Head::Lexical { weights, special } => {
                for (i, tokens) in batch.iter().enumerate() {
                    let mut words: BTreeMap<u32, f32> = BTreeMap::new();
                    for (&id, weight) in tokens.ids.iter().zip(weights.weights(hidden.rows(i))) {
                        // Of NaN too, which is the result of its own text.
                        if weight != 0.0 && !special.contains(&id) {
                            let known = words.entry(id).or_insert(weight);
                            if weight > *known || weight.is_nan() {
                                *known = weight;
                            }
                        }
                    }
                    out.push_sparse(words);
                }
            }
        }
        hidden.recycle(ctx.scratch);
        Ok(())
    }
}

/// Refuses the ids of sparse models that are not supported, whose files would not say so.
///
/// # Errors
/// [`LoadError::NotOfKind`].
pub fn check_id(id: &str) -> Result<(), LoadError> {
    if !id.to_lowercase().contains("minicoil") {
        return Ok(());
    }
    let reason = "MiniCOIL is not supported. Supported are SPLADE, BGE-M3, BM42 and BM25".to_owned();
    Err(LoadError::NotOfKind { folder: id.into(), wanted: ModelKind::Sparse, reason })
}

/// `modules.json` of a SPLADE model: a masked language model and the pooling.
struct Modules {
    transformer: String,
    /// The pooling's configuration; `None` when nothing lists it.
    pooling: Option<String>,
}

impl Modules {
    fn read(files: &ModelFiles) -> Result<Modules, LoadError> {
        let listed = modules::list(files)?;
        let Some(listed) = listed else {
            let pooling = files.exists(POOLING).then(|| POOLING.to_owned());
            return Ok(Modules { transformer: String::new(), pooling });
        };
        let expected = ["MLMTransformer", "SpladePooling"];
        for (position, module) in listed.iter().enumerate() {
            // Since version 6 a masked language model may be a plain Transformer whose task says so.
            let known = module.class.as_deref();
            if !(known == expected.get(position).copied() || position == 0 && known == Some("Transformer")) {
                return Err(LoadError::UnsupportedModule {
                    file: "modules.json".to_owned(),
                    module: module.path.clone(),
                    position,
                    supported: "MLMTransformer, then SpladePooling",
                });
            }
        }
        let [transformer, pooling] = &listed[..] else {
            return Err(LoadError::Malformed {
                file: "modules.json".to_owned(),
                key: "the list".to_owned(),
                value: format!("{} modules", listed.len()),
                expected: "MLMTransformer and SpladePooling",
            });
        };
        Ok(Modules { transformer: transformer.folder.clone(), pooling: Some(format!("{}config.json", pooling.folder)) })
    }
}

/// Strategy of SpladePooling, and whether the logarithm is taken twice.
fn pooling(files: &ModelFiles, file: &str) -> Result<(MlmPooling, bool), LoadError> {
    let json = files.read_json(file)?;
    let keys = Keys::new(file, json.as_ref())?;
    let strategy = match keys.text("pooling_strategy")? {
        None | Some("max") => MlmPooling::Max,
        Some("sum") => MlmPooling::Sum,
        Some(_) => return Err(keys.unsupported("pooling_strategy", "max, sum")),
    };
    match keys.text("activation_function")? {
        None | Some("relu") => Ok((strategy, false)),
        Some("log1p_relu") => Ok((strategy, true)),
        Some(_) => Err(keys.unsupported("activation_function", "relu, log1p_relu")),
    }
}
