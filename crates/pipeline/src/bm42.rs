//! BM42: a word's weight is how much the first token attends to it.
//!
//! The attention of the first token in the last layer, mean over the heads, is summed over the pieces of each word; stop
//! words, punctuation and special tokens are left out; of the words with one stem the largest sum counts, and its weight is
//! `sqrt(ln(1 + sum))`. A query's weight is 1, and the model is not run for it. Words' inverse document frequency is for
//! whoever keeps the documents to multiply in. Stems and numbers: [`crate::words`]. English; models of BERT's word pieces.

use std::collections::BTreeMap;

use simile_encoder::{Context, EncodeError};
use simile_hub::ModelFiles;

use crate::error::{LoadError, PipelineError};
use crate::head_model::{Base, Flat, HeadDescriptor, HeadModel};
use crate::kind::ModelKind;
use crate::options::LoadOptions;
use crate::outputs::Outputs;
use crate::sentence_transformers::Task;
use crate::template::{Role, Templates};
use crate::tokenizer::{Input, Tokens};
use crate::words;

/// The dense model whose attention is read, and what its parts are called where there is an ONNX file of its own for this.
const IDS: [&str; 3] = [
    "sentence-transformers/all-MiniLM-L6-v2",
    "Qdrant/all_miniLM_L6_v2_with_attentions",
    "Qdrant/bm42-all-minilm-l6-v2-attentions",
];

/// Whether a sparse model of that id is BM42.
pub(crate) fn is_bm42(id: &str) -> bool {
    IDS.iter().any(|known| known.eq_ignore_ascii_case(id))
}

/// A loaded BM42 model.
pub(crate) struct Bm42 {
    base: Base,
    descriptor: HeadDescriptor,
    contract: String,
}

/// What a token begins with that goes on with a word.
const CONTINUES: &str = "##";

impl Bm42 {
    pub(crate) fn load(files: &ModelFiles, options: &LoadOptions) -> Result<Bm42, LoadError> {
        let (base, _) = Base::load(files, options, "", &Task::EMBEDDING)?;
        let max_length = base.max_length(options, base.tokenizer.special_tokens())?;
        let descriptor = HeadDescriptor {
            id: files.id.clone(),
            revision: files.revision.clone(),
            model_type: base.config["model_type"].as_str().unwrap_or_default().to_owned(),
            kind: ModelKind::Sparse,
            head: "bm42",
            dimensions: 1 << 31,
            max_length,
            query_length: None,
            truncate: base.truncate,
            activation: None,
            query_template: None,
            passage_template: None,
            default_instruction: None,
        };
        let contract = base.contract(files, &[], &descriptor, &Templates::default(), "bm42", options.precision)?;
        Ok(Bm42 { base, descriptor, contract })
    }

    /// The words of a text with their pieces' places, in order: words of special tokens are left out.
    fn words(&self, ids: &[u32]) -> Vec<(String, Vec<usize>)> {
        let mut words: Vec<(String, Vec<usize>)> = Vec::new();
        for (place, &id) in ids.iter().enumerate() {
            let Some(token) = self.base.tokenizer.word_piece(id) else { continue };
            match (token.strip_prefix(CONTINUES), words.last_mut()) {
                (Some(rest), Some((word, places))) => {
                    word.push_str(rest);
                    places.push(place);
                }
                (rest, _) => words.push((rest.unwrap_or(&token).to_owned(), vec![place])),
            }
        }
        words
    }
}

/// The number of a word's stem; `None` for stop words and ASCII punctuation.
fn number(word: &str) -> Option<u32> {
    let punctuation = matches!(word.as_bytes(), [byte] if byte.is_ascii_punctuation());
    if punctuation { None } else { words::number(word) }
}

impl HeadModel for Bm42 {
    fn descriptor(&self) -> &HeadDescriptor {
        &self.descriptor
    }

    fn contract(&self) -> &str {
        &self.contract
    }

    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError> {
        Templates::default().choose(role, instruction).map(|_| ())
    }

    fn tokenize(&self, input: &Input<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
        self.base.tokenize(&Templates::default(), input, self.descriptor.max_length, go_on)
    }

    fn cost(&self, length: usize) -> u64 {
        self.base.encoder.flops(length)
    }

    fn memory_bytes(&self) -> usize {
        self.base.encoder.memory_bytes()
    }

    fn encode(&self, batch: &[&Tokens], out: &mut Outputs, ctx: &mut Context<'_>) -> Result<(), EncodeError> {
        let passages: Vec<&Tokens> = batch.iter().copied().filter(|tokens| tokens.role != Role::Query).collect();
        let attention = match passages.is_empty() {
            true => Vec::new(),
            false => self.base.encoder.first_token_attention(&Flat::new(&passages, false).input(), ctx)?,
        };
        let mut rest = &attention[..];
        for tokens in batch {
            let mut weights: BTreeMap<u32, f32> = BTreeMap::new();
            let words = self.words(&tokens.ids);
            if tokens.role == Role::Query {
                weights.extend(words.iter().filter_map(|(word, _)| Some((number(word)?, 1.0))));
            } else {
                let (own, others) = rest.split_at(tokens.ids.len());
                rest = others;
                for (word, places) in words {
                    let Some(number) = number(&word) else { continue };
                    let sum: f64 = places.into_iter().map(|place| f64::from(own[place])).sum();
                    let weight = sum.ln_1p().sqrt() as f32;
                    let known = weights.entry(number).or_insert(weight);
                    if weight > *known || weight.is_nan() {
                        *known = weight;
                    }
                }
            }
            out.push_sparse(weights);
        }
        Ok(())
    }
}
