//! Rerankers: a score for a query and a text.
//!
//! | head | how | score |
//! |---|---|---|
//! | `classifier` | both texts in one sequence, framed as `tokenizer.json` frames pairs; layers on the first token | activation of the logit |
//! | `yes-no` | both texts in a chat prompt; the logits of "yes" and "no" behind it (Qwen3-Reranker) | softmax of the two |
//!
//! The activation is read from `config_sentence_transformers.json` (`activation_fn`), else `config.json`
//! (`sentence_transformers.activation_fn`, `sbert_ce_default_activation_function`), else it is the sigmoid, as
//! sentence-transformers has it for one label. Models of several labels are refused: they classify and do not rank.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use simile_encoder::{Classifier, Context, EncodeError, LoadError as EncoderError, Rows, TokenLogits};
use simile_hub::ModelFiles;

use crate::error::{LoadError, PipelineError};
use crate::head_model::{Base, Checkpoint, HeadDescriptor, HeadModel};
use crate::json::{Keys, show};
use crate::kind::ModelKind;
use crate::modules;
use crate::options::{LoadOptions, Truncate};
use crate::outputs::Outputs;
use crate::sentence_transformers::Task;
use crate::template::{Role, Templates};
use crate::tokenizer::pairs::{PairFrame, PairTruncation};
use crate::tokenizer::{Input, Tokens};

/// What becomes of a logit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Activation {
    Identity,
    Sigmoid,
}

/// What scores.
enum Head {
    Classifier { layers: Box<Classifier>, activation: Activation, frame: PairFrame, truncation: PairTruncation },
    YesNo { logits: TokenLogits, prefix: Vec<u32>, suffix: Vec<u32> },
}

/// The part of the contract that is the head's.
#[derive(Serialize)]
struct Settings {
    head: &'static str,
    activation: &'static str,
    truncation: Option<PairTruncation>,
    prompt: Option<[&'static str; 2]>,
}

/// A loaded reranker.
pub(crate) struct CrossEncoder {
    base: Base,
    head: Head,
    descriptor: HeadDescriptor,
    contract: String,
    default_instruction: Option<String>,
    /// The query that was tokenised last, and its tokens: a call has one query and many documents.
    last_query: Mutex<Option<Arc<Query>>>,
}

/// A query and its tokens, without frame or limit.
struct Query {
    text: String,
    ids: Vec<u32>,
}

/// Models whose query is kept to three quarters of the limit: their authors' own code cuts so.
const QUERY_SHARE: [&str; 4] =
    ["BAAI/bge-reranker-base", "BAAI/bge-reranker-large", "BAAI/bge-reranker-v2-m3", "BAAI/bge-reranker-v2-gemma"];

/// Qwen3-Reranker's prompt, from its model card.
const PREFIX: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
const SUFFIX: &str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
pub(crate) const INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";
/// Its limit where no option sets one: the model card's.
const YES_NO_LENGTH: usize = 8192;

const CONFIG: &str = "config.json";
const PROMPTS: &str = "config_sentence_transformers.json";

impl CrossEncoder {
    /// Loads a reranker.
    pub(crate) fn load(files: &ModelFiles, options: &LoadOptions) -> Result<CrossEncoder, LoadError> {
        ModelKind::Rerank.check(files)?;
        if options.truncate == Some(Truncate::Start) {
            return Err(LoadError::UnsupportedOption {
                option: "truncate",
                value: "start".to_owned(),
                kind: ModelKind::Rerank,
                supported: "end, error",
            });
        }
        modules::only_a_transformer(files)?;
        // Before the weights, which may be large.
        let config = files.read_json(CONFIG)?.unwrap_or_default();
        let architectures = config["architectures"].as_array().into_iter().flatten();
        let ends = |end: &str| architectures.clone().any(|name| name.as_str().is_some_and(|name| name.ends_with(end)));
        let answers = ends("ForCausalLM");
        if answers && config["model_type"] != "qwen3" {
            return Err(LoadError::UnsupportedValue {
                file: CONFIG.to_owned(),
                key: "model_type".to_owned(),
                value: show(config.get("model_type")),
                supported: "\"qwen3\" for a reranker that answers yes or no (its prompt is the model's own)".to_owned(),
            });
        }
        if !answers && !ends("ForSequenceClassification") {
            let reason = format!(
                "{CONFIG} has the architectures {}; a reranker has one that ends with ForSequenceClassification, or Qwen3ForCausalLM",
                show(config.get("architectures"))
            );
            return Err(LoadError::NotOfKind { folder: files.folder.clone(), wanted: ModelKind::Rerank, reason });
        }
        let task = Task { name: "sequence-classification", output: "scores" };
        let (base, checkpoint) = Base::load(files, options, "", &task)?;
        match answers {
            true => Self::yes_no(files, options, base, &checkpoint),
            false => Self::classifier(files, options, base, &checkpoint),
        }
    }

    fn classifier(
        files: &ModelFiles,
        options: &LoadOptions,
        base: Base,
        checkpoint: &Checkpoint,
    ) -> Result<CrossEncoder, LoadError> {
        let activation = activation(files, &base.config)?;
        let layers = Classifier::load(options.isa, &checkpoint.weights, base.encoder.hidden_size());
        let layers = layers.map_err(EncoderError::from)?;
        if layers.labels() != 1 {
            return Err(LoadError::UnsupportedValue {
                file: CONFIG.to_owned(),
                key: "the number of labels".to_owned(),
                value: layers.labels().to_string(),
                supported: "1 (a score of relevance)".to_owned(),
            });
        }
        let frame = base.tokenizer.pair_frame()?;
        let max_length = base.max_length(options, frame.special_tokens() + 1)?;
        let share = QUERY_SHARE.iter().any(|id| id.eq_ignore_ascii_case(&files.id));
        let truncation = if share { PairTruncation::QueryShare } else { PairTruncation::LongestFirst };
        let name = match activation {
            Activation::Identity => "identity",
            Activation::Sigmoid => "sigmoid",
        };
        let settings = Settings { head: "classifier", activation: name, truncation: Some(truncation), prompt: None };
        let head = Head::Classifier { layers: Box::new(layers), activation, frame, truncation };
        Self::assemble(files, options, base, head, settings, max_length)
    }

    fn yes_no(
        files: &ModelFiles,
        options: &LoadOptions,
        base: Base,
        checkpoint: &Checkpoint,
    ) -> Result<CrossEncoder, LoadError> {
        let id = |token: &str| {
            let known = base.tokenizer.id_of(token).filter(|id| (*id as usize) < base.encoder.vocab_size());
            known.ok_or_else(|| LoadError::Tokenizer {
                folder: files.folder.clone(),
                message: format!("it has no token {token:?}, whose logit is the model's answer"),
            })
        };
        let logits =
            TokenLogits::load(options.isa, &checkpoint.weights, &checkpoint.architecture, &[id("no")?, id("yes")?]);
        let logits = logits.map_err(EncoderError::from)?;
        let bare = |text: &str| {
            let ids = base.tokenizer.bare(text, &|| true).map_err(|error| LoadError::Tokenizer {
                folder: files.folder.clone(),
                message: format!("it fails on the model's prompt: {error}"),
            })?;
            Ok::<_, LoadError>(ids.unwrap_or_default())
        };
        let (prefix, suffix) = (bare(PREFIX)?, bare(SUFFIX)?);
        let around = prefix.len() + suffix.len();
        let asked = options.max_length.or(Some(YES_NO_LENGTH));
        let max_length = base.max_length(&LoadOptions { max_length: asked, ..options.clone() }, around)?;
        let settings =
            Settings { head: "yes-no", activation: "softmax", truncation: None, prompt: Some([PREFIX, SUFFIX]) };
        Self::assemble(files, options, base, Head::YesNo { logits, prefix, suffix }, settings, max_length)
    }

    fn assemble(
        files: &ModelFiles,
        options: &LoadOptions,
        base: Base,
        head: Head,
        settings: Settings,
        max_length: usize,
    ) -> Result<CrossEncoder, LoadError> {
        let default_instruction = matches!(head, Head::YesNo { .. }).then(|| INSTRUCTION.to_owned());
        let descriptor = HeadDescriptor {
            id: files.id.clone(),
            revision: files.revision.clone(),
            model_type: base.config["model_type"].as_str().unwrap_or_default().to_owned(),
            kind: ModelKind::Rerank,
            head: settings.head,
            dimensions: 1,
            max_length,
            query_length: None,
            truncate: if base.truncate == Truncate::Error { Truncate::Error } else { Truncate::End },
            activation: Some(settings.activation),
            query_template: None,
            passage_template: None,
            default_instruction: default_instruction.clone(),
        };
        let templates = Templates { default_instruction: default_instruction.clone(), ..Templates::default() };
        let contract = base.contract(files, &[], &descriptor, &templates, settings, options.precision)?;
        let last_query = Mutex::default();
        Ok(CrossEncoder { base, head, descriptor, contract, default_instruction, last_query })
    }

    /// The query's tokens without frame or limit; `None` when `go_on` says no.
    fn query(&self, text: &str, go_on: &dyn Fn() -> bool) -> Result<Option<Arc<Query>>, PipelineError> {
        let lock = || self.last_query.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = lock().clone().filter(|last| last.text == text) {
            return Ok(Some(last));
        }
        let Some(ids) = self.base.tokenizer.bare(text, go_on)? else { return Ok(None) };
        let query = Arc::new(Query { text: text.to_owned(), ids });
        *lock() = Some(query.clone());
        Ok(Some(query))
    }
}

impl HeadModel for CrossEncoder {
    fn descriptor(&self) -> &HeadDescriptor {
        &self.descriptor
    }

    fn contract(&self) -> &str {
        &self.contract
    }

    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError> {
        match (instruction, &self.head) {
            (Some(_), Head::Classifier { .. }) => Err(PipelineError::InstructionNotSupported { role, pattern: None }),
            _ => Ok(()),
        }
    }

    fn tokenize(&self, input: &Input<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
        let query = input.query.unwrap_or_default();
        let HeadDescriptor { max_length, truncate, .. } = self.descriptor;
        let tokens = match &self.head {
            Head::Classifier { frame, truncation, .. } => {
                let Some(query) = self.query(query, go_on)? else { return Ok(None) };
                let how = (max_length, truncate, *truncation);
                self.base.tokenizer.pair(frame, &query.ids, input.text, how, go_on)?
            }
            Head::YesNo { prefix, suffix, .. } => {
                let instruction = input.instruction.or(self.default_instruction.as_deref()).unwrap_or_default();
                let text = input.text;
                let pair = format!("<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {text}");
                self.base.tokenizer.bare(&pair, go_on)?.map(|ids| {
                    let total = prefix.len() + ids.len() + suffix.len();
                    let room = max_length - prefix.len() - suffix.len();
                    let ids = [prefix, &ids[..ids.len().min(room)], suffix].concat();
                    Tokens { ids, total, ..Tokens::default() }
                })
            }
        };
        let Some(tokens) = tokens else { return Ok(None) };
        if tokens.total > max_length && truncate == Truncate::Error {
            return Err(PipelineError::TextTooLong { limit: max_length, actual: tokens.total });
        }
        self.base.known(tokens).map(Some)
    }

    fn cost(&self, length: usize) -> u64 {
        self.base.encoder.flops(length)
    }

    fn memory_bytes(&self) -> usize {
        let head = match &self.head {
            Head::Classifier { layers, .. } => layers.bytes(),
            Head::YesNo { .. } => 0,
        };
        self.base.encoder.memory_bytes() + head
    }

    fn encode(&self, batch: &[&Tokens], out: &mut Outputs, ctx: &mut Context<'_>) -> Result<(), EncodeError> {
        let rows = match self.head {
            Head::Classifier { .. } => Rows::First,
            Head::YesNo { .. } => Rows::Last,
        };
        let hidden = self.base.forward(batch, rows, false, ctx)?;
        match &self.head {
            Head::Classifier { layers, activation, .. } => {
                for logit in layers.logits(&hidden) {
                    out.push(&[match activation {
                        Activation::Identity => logit,
                        Activation::Sigmoid => sigmoid(f64::from(logit)),
                    }]);
                }
            }
            Head::YesNo { logits, .. } => {
                for i in 0..hidden.sequences() {
                    let answers = logits.last(hidden.rows(i));
                    // The softmax of two is the sigmoid of their distance.
                    out.push(&[sigmoid(f64::from(answers[1]) - f64::from(answers[0]))]);
                }
            }
        }
        hidden.recycle(ctx.scratch);
        Ok(())
    }
}

fn sigmoid(x: f64) -> f32 {
    (1.0 / (1.0 + (-x).exp())) as f32
}

/// The activation that the files name.
fn activation(files: &ModelFiles, config: &serde_json::Value) -> Result<Activation, LoadError> {
    let prompts = files.read_json(PROMPTS)?;
    let keys = Keys::new(PROMPTS, prompts.as_ref())?;
    keys.only("model_type", "CrossEncoder")?;
    if keys.get("default_prompt_name").is_some() {
        return Err(keys.unsupported("default_prompt_name", "null (pairs have no prompt)"));
    }
    let config = Keys::new(CONFIG, Some(config))?;
    let nested = config.object("sentence_transformers")?;
    let places =
        [(&keys, "activation_fn"), (&nested, "activation_fn"), (&config, "sbert_ce_default_activation_function")];
    for (keys, key) in places {
        let Some(path) = keys.text(key)? else { continue };
        return match path.strip_prefix("torch.nn.").and_then(|path| path.rsplit('.').next()) {
            Some("Identity") => Ok(Activation::Identity),
            Some("Sigmoid") => Ok(Activation::Sigmoid),
            _ => Err(keys.unsupported(key, "torch.nn.….Identity, torch.nn.….Sigmoid")),
        };
    }
    Ok(Activation::Sigmoid)
}
