//! BM25 as a sparse vector (`Qdrant/bm25`): computed, without files.
//!
//! A passage's weight for a word that it has `f` times among `n`: `f (k + 1) / (f + k (1 - b + b n / 256))` with k = 1.2 and
//! b = 0.75. A query's weight is 1. Their dot product is BM25 but for the words' inverse document frequency, which whoever
//! keeps the documents multiplies in. Words, stems and numbers: [`crate::words`]. English.

use std::collections::BTreeMap;

use serde::Serialize;
use simile_encoder::{Context, EncodeError};

use crate::contract::id_of;
use crate::error::PipelineError;
use crate::head_model::{HeadDescriptor, HeadModel};
use crate::kind::ModelKind;
use crate::options::{LoadOptions, Truncate};
use crate::outputs::Outputs;
use crate::template::{Role, Templates};
use crate::tokenizer::{Input, Tokens};
use crate::words;

/// The id that it is asked for with.
const ID: &str = "Qdrant/bm25";

const K: f64 = 1.2;
const B: f64 = 0.75;
/// Words of a passage that is neither long nor short.
const LENGTH: f64 = 256.0;

/// Whether a sparse model of that id is computed, so that there are no files to look for.
pub fn is_computed(id: &str) -> bool {
    id.eq_ignore_ascii_case(ID)
}

/// The computed model.
///
/// `max_length` counts words; there is no limit unless it sets one.
pub fn computed(options: &LoadOptions) -> Box<dyn HeadModel> {
    let descriptor = HeadDescriptor {
        id: ID.to_owned(),
        revision: None,
        model_type: String::new(),
        kind: ModelKind::Sparse,
        head: "bm25",
        dimensions: 1 << 31,
        max_length: options.max_length.unwrap_or(usize::MAX),
        query_length: None,
        truncate: options.truncate.unwrap_or_default(),
        activation: None,
        query_template: None,
        passage_template: None,
        default_instruction: None,
    };
    #[derive(Serialize)]
    struct Contract {
        head: &'static str,
        max_length: Option<usize>,
        truncate: &'static str,
    }
    let contract =
        id_of(&Contract { head: "bm25", max_length: options.max_length, truncate: descriptor.truncate.name() });
    Box::new(Bm25 { descriptor, contract })
}

struct Bm25 {
    descriptor: HeadDescriptor,
    contract: String,
}

impl HeadModel for Bm25 {
    fn descriptor(&self) -> &HeadDescriptor {
        &self.descriptor
    }

    fn contract(&self) -> &str {
        &self.contract
    }

    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError> {
        Templates::default().choose(role, instruction).map(|_| ())
    }

    fn tokenize(&self, input: &Input<'_>, _go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
        let mut ids = words::numbers(input.text);
        let (total, limit) = (ids.len(), self.descriptor.max_length);
        if total > limit {
            match self.descriptor.truncate {
                Truncate::End => ids.truncate(limit),
                Truncate::Start => ids = ids.split_off(total - limit),
                Truncate::Error => return Err(PipelineError::TextTooLong { limit, actual: total }),
            }
        }
        Ok(Some(Tokens { ids, total, role: input.role, ..Tokens::default() }))
    }

    fn cost(&self, length: usize) -> u64 {
        // About 20 ns a word.
        length as u64 * 3_000
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn encode(&self, batch: &[&Tokens], out: &mut Outputs, _: &mut Context<'_>) -> Result<(), EncodeError> {
        for tokens in batch {
            let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
            for &id in &tokens.ids {
                *counts.entry(id).or_default() += 1.0;
            }
            let length = K * (1.0 - B + B * tokens.ids.len() as f64 / LENGTH);
            out.push_sparse(counts.into_iter().map(|(id, count)| match tokens.role {
                Role::Query => (id, 1.0),
                _ => (id, (count * (K + 1.0) / (count + length)) as f32),
            }));
        }
        Ok(())
    }
}
