//! A score of a text or a pair, from its first token: what transformers calls `...ForSequenceClassification`.
//!
//! | checkpoint | layers |
//! |---|---|
//! | BERT, JinaBert | `pooler.dense` (tanh), `classifier` |
//! | RoBERTa, XLM-RoBERTa, MPNet | `classifier.dense` (tanh), `classifier.out_proj` |
//! | DistilBERT | `pre_classifier` (ReLU), `classifier` |
//!
//! The tensors' names say which it is.

use simile_kernels::{Activation, Isa};

use super::linear::{Bias, Linear};
use crate::{Hidden, Weights, WeightsError};

/// The layers behind the first token's hidden state.
pub struct Classifier {
    first: Linear,
    last: Linear,
}

impl Classifier {
    /// Reads the head of a checkpoint whose encoder is `hidden` wide.
    ///
    /// # Errors
    /// [`WeightsError`]: a tensor is missing, or has another shape.
    pub fn load(isa: Isa, weights: &Weights, hidden: usize) -> Result<Classifier, WeightsError> {
        let has = |entry: &str| weights.get(&format!("{entry}.weight")).is_some();
        let (first, activation, last) = if has("classifier.out_proj") {
            ("classifier.dense", Activation::Tanh, "classifier.out_proj")
        } else if has("pre_classifier") {
            ("pre_classifier", Activation::Relu, "classifier")
        } else if has("pooler.dense") {
            ("pooler.dense", Activation::Tanh, "classifier")
        } else {
            ("bert.pooler.dense", Activation::Tanh, "classifier")
        };
        let layer = |entry: &str, activation| {
            let (weight, bias) = (format!("{entry}.weight"), format!("{entry}.bias"));
            Linear::load(isa, weights, &weight, Bias::Named(&bias), hidden, activation)
        };
        // Its last tensor first: without it the checkpoint is of no classifier, and that is what to say.
        let last = layer(last, None)?;
        let first = layer(first, Some(activation))?;
        if first.outputs() != hidden {
            weights.tensor("classifier.weight").and_then(|tensor| tensor.shaped(&[last.outputs(), first.outputs()]))?;
        }
        Ok(Classifier { first, last })
    }

    /// Scores of each text.
    pub fn labels(&self) -> usize {
        self.last.outputs()
    }

    /// Bytes that the weights hold.
    pub fn bytes(&self) -> usize {
        self.first.bytes() + self.last.bytes()
    }

    /// Logits of each sequence, `labels` for each, from rows that hold its first token's.
    pub fn logits(&self, hidden: &Hidden) -> Vec<f32> {
        let (count, width) = (hidden.sequences(), hidden.hidden_size());
        let first: Vec<f32> = (0..count).flat_map(|i| hidden.rows(i).row(0).iter().copied()).collect();
        let pooled = self.first.apply(&first, width, count);
        self.last.apply(&pooled, width, count)
    }
}
