//! A weight for every word of the vocabulary: SPLADE, on a masked language model's head.
//!
//! For each token: `logits = decoder(layer_norm(activation(dense(x)))) + bias`; for each word, the largest (or the sum) of
//! `log1p(relu(logit))` over the text's tokens. Source: Formal et al. 2021, `SpladePooling` of sentence-transformers.
//!
//! The decoder is the word table unless `tie_word_embeddings` says otherwise; it is packed once more for that, in as much
//! memory as the table. Cost: 2 x tokens x width x vocabulary operations, which for short texts is most of the model's.
//! All threads share it, by columns.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use simile_kernels::{Activation, AlignedVec, Isa};

use super::linear::{Bias, Linear};
use crate::families::head_activation;
use crate::spec::Norm;
use crate::weights::Resolver;
use crate::{Architecture, ConfigError, Context, EncodeError, Flow, Hidden, LoadError, Weights};

/// How the tokens' weights of a word become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlmPooling {
    /// The largest.
    Max,
    /// Their sum.
    Sum,
}

/// What is not in the checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct MlmSettings {
    /// How the tokens' weights of a word become one.
    pub pooling: MlmPooling,
    /// Whether the logarithm is taken twice: `log1p(log1p(relu(x)))`.
    pub twice: bool,
    /// Whether the decoder is the word table.
    pub tied: bool,
}

/// The names of one architecture's head.
struct Names {
    dense: &'static str,
    norm: &'static str,
    decoder: &'static str,
    biases: &'static [&'static str],
    activation: Activate,
}

/// The activation behind a head's dense layer.
enum Activate {
    /// That of the encoder's feed-forward part.
    AsEncoder,
    /// Whatever the file says.
    Gelu,
    /// A key of its own, `classifier_activation`.
    ModernBert,
}

/// Heads of BERT, of RoBERTa, XLM-RoBERTa and MPNet, of DistilBERT and of ModernBERT. The entry of its dense layer tells.
const NAMES: [Names; 4] = [
    Names {
        dense: "cls.predictions.transform.dense",
        norm: "cls.predictions.transform.LayerNorm",
        decoder: "cls.predictions.decoder.weight",
        biases: &["cls.predictions.bias", "cls.predictions.decoder.bias"],
        activation: Activate::AsEncoder,
    },
    Names {
        dense: "lm_head.dense",
        norm: "lm_head.layer_norm",
        decoder: "lm_head.decoder.weight",
        biases: &["lm_head.bias", "lm_head.decoder.bias"],
        activation: Activate::Gelu,
    },
    Names {
        dense: "vocab_transform",
        norm: "vocab_layer_norm",
        decoder: "vocab_projector.weight",
        biases: &["vocab_projector.bias"],
        activation: Activate::AsEncoder,
    },
    Names {
        dense: "head.dense",
        norm: "head.norm",
        decoder: "decoder.weight",
        biases: &["decoder.bias"],
        activation: Activate::ModernBert,
    },
];

/// Rows that go through the decoder at a time, and columns: 64 x 1,024 values stay in a second-level cache.
const ROWS: usize = 64;
const COLUMNS: usize = 1024;

/// The head with its weights packed.
pub struct MaskedLm {
    settings: MlmSettings,
    dense: Linear,
    gamma: Vec<f32>,
    beta: Vec<f32>,
    epsilon: f32,
    decoder: Linear,
}

impl MaskedLm {
    /// Reads the head of a checkpoint of `architecture`, which `config`, its `config.json`, describes.
    ///
    /// # Errors
    /// [`LoadError::Config`]: an activation that is not known, or an encoder without a layer norm, whose epsilon the head
    /// has. [`LoadError::Weights`]: a tensor is missing, or has another shape.
    pub fn load(
        isa: Isa,
        weights: &Weights,
        architecture: &Architecture,
        config: &Value,
        settings: MlmSettings,
    ) -> Result<MaskedLm, LoadError> {
        let spec = &architecture.spec;
        let (hidden, vocab) = (spec.hidden_size, spec.vocab_size);
        let Some(Norm::LayerNorm { epsilon, bias: biased }) = spec.embeddings.norm.or(spec.final_norm) else {
            return Err(LoadError::Config(ConfigError::Unsupported {
                key: "architectures",
                value: config["architectures"].to_string(),
                allowed: "masked language models of an encoder with layer norms",
            }));
        };
        let has = |names: &&Names| weights.get(&format!("{}.weight", names.dense)).is_some();
        let names = NAMES.iter().find(has).unwrap_or(&NAMES[0]);
        let activation = match names.activation {
            Activate::AsEncoder => spec.layers.last().map(|layer| layer.mlp.activation),
            Activate::Gelu => Some(Activation::Gelu),
            Activate::ModernBert => Some(head_activation(config)?),
        };
        let (weight, shift) = (format!("{}.weight", names.dense), format!("{}.bias", names.dense));
        let bias = if weights.get(&shift).is_some() { Bias::Named(&shift) } else { Bias::None };
        let dense = Linear::load(isa, weights, &weight, bias, hidden, activation)?;
        let vector = |suffixes: [&str; 2]| {
            let spelt = suffixes.map(|suffix| format!("{}.{suffix}", names.norm));
            let name = spelt.iter().find(|name| weights.get(name).is_some()).unwrap_or(&spelt[0]);
            weights.tensor(name)?.shaped(&[hidden])?.to_vec()
        };
        let gamma = vector(["weight", "gamma"])?;
        let beta = if biased { vector(["bias", "beta"])? } else { vec![0.0; hidden] };
        let bias = names.biases.iter().find(|name| weights.get(name).is_some()).unwrap_or(&names.biases[0]);
        let bias = weights.tensor(bias)?.shaped(&[vocab])?.to_vec()?;
        let shape = [vocab, hidden];
        let table = if settings.tied {
            Resolver::new(weights, &architecture.names)?.tensor(architecture.names.word_embeddings, &shape)?
        } else {
            weights.tensor(names.decoder)?.shaped(&shape)?
        };
        let decoder = Linear::pack(isa, &table, Some(&bias), None)?;
        Ok(MaskedLm { settings, dense, gamma, beta, epsilon, decoder })
    }

    /// Words of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.decoder.outputs()
    }

    /// Bytes that the weights hold.
    pub fn bytes(&self) -> usize {
        self.dense.bytes() + self.decoder.bytes()
    }

    /// Estimated work for a text of `length` tokens, in floating point operations.
    pub fn flops(&self, length: usize) -> u64 {
        let width = self.gamma.len() as u64;
        2 * length as u64 * width * (width + self.vocabulary() as u64)
    }

    /// The weights of each sequence that are not 0, sorted by word, from hidden states of all tokens. NaN stays NaN.
    ///
    /// # Errors
    /// [`EncodeError::Stopped`].
    pub fn weights(&self, hidden: &Hidden, ctx: &Context<'_>) -> Result<Vec<Vec<(u32, f32)>>, EncodeError> {
        let sequences = hidden.sequences();
        // The sequence of each row, and the rows behind dense layer and norm.
        let mut owners = Vec::new();
        let mut states = Vec::new();
        for i in 0..sequences {
            let rows = hidden.rows(i);
            let (data, stride) = rows.block();
            let mut transformed = self.dense.apply(data, stride, rows.len());
            transformed.chunks_exact_mut(self.gamma.len()).for_each(|row| self.norm(row));
            states.append(&mut transformed);
            owners.resize(owners.len() + rows.len(), i);
        }
        let (panels, width) = self.decoder.panels();
        let step = (COLUMNS / width).max(1);
        let blocks: Vec<OnceLock<Vec<f32>>> = (0..panels.div_ceil(step)).map(|_| OnceLock::new()).collect();
        let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        ctx.pool.run(&|_team| {
            let mut logits = AlignedVec::zeroed(ROWS * step * width);
            loop {
                let block = next.fetch_add(1, Ordering::Relaxed);
                if block >= blocks.len() || stopped.load(Ordering::Relaxed) {
                    return;
                }
                if (ctx.checkpoint)() == Flow::Stop {
                    stopped.store(true, Ordering::Relaxed);
                    return;
                }
                let columns = block * step..((block + 1) * step).min(panels);
                let _ = blocks[block].set(self.pool(&states, &owners, sequences, columns, &mut logits));
            }
        });
        if stopped.into_inner() {
            return Err(EncodeError::Stopped);
        }
        let mut entries = vec![Vec::new(); sequences];
        for (block, values) in blocks.into_iter().enumerate() {
            let values = values.into_inner().expect("each block was computed");
            let first = block * step * width;
            let columns = values.len() / sequences.max(1);
            for (entries, values) in entries.iter_mut().zip(values.chunks_exact(columns.max(1))) {
                let words = (first as u32..).zip(values).take(self.vocabulary() - first);
                entries.extend(words.filter(|(_, value)| **value != 0.0).map(|(word, value)| (word, *value)));
            }
        }
        Ok(entries)
    }

    /// Weights of the words of some panels: sequences x columns.
    fn pool(
        &self,
        states: &[f32],
        owners: &[usize],
        sequences: usize,
        panels: Range<usize>,
        logits: &mut [f32],
    ) -> Vec<f32> {
        let (width, columns) = (self.gamma.len(), panels.len() * self.decoder.panels().1);
        let summing = self.settings.pooling == MlmPooling::Sum;
        // A maximum of logits is enough for a maximum of weights: one grows with the other.
        let mut pooled = vec![if summing { 0.0 } else { f32::NEG_INFINITY }; sequences * columns];
        for (chunk, owners) in owners.chunks(ROWS).enumerate() {
            let rows = &states[chunk * ROWS * width..];
            self.decoder.apply_panels(rows, width, owners.len(), panels.clone(), logits);
            for (row, owner) in logits.chunks_exact(columns).zip(owners) {
                let place = &mut pooled[owner * columns..][..columns];
                for (value, logit) in place.iter_mut().zip(row) {
                    if summing {
                        *value += self.weight(*logit);
                    } else if *logit > *value || logit.is_nan() {
                        *value = *logit;
                    }
                }
            }
        }
        if !summing {
            pooled.iter_mut().for_each(|value| *value = self.weight(*value));
        }
        pooled
    }

    /// `log1p(relu(logit))`, NaN for NaN.
    fn weight(&self, logit: f32) -> f32 {
        if logit <= 0.0 {
            return 0.0;
        }
        let weight = f64::from(logit).ln_1p();
        (if self.settings.twice { weight.ln_1p() } else { weight }) as f32
    }

    fn norm(&self, row: &mut [f32]) {
        let count = row.len() as f64;
        let mean = row.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
        let variance = row.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / count;
        let scale = 1.0 / (variance + f64::from(self.epsilon)).sqrt();
        for ((value, gamma), beta) in row.iter_mut().zip(&self.gamma).zip(&self.beta) {
            *value = ((f64::from(*value) - mean) * scale) as f32 * gamma + beta;
        }
    }
}
