//! From an architecture's table of names to the tensors of a checkpoint.

use super::{Tensor, Weights, WeightsError};
use crate::families::{LayerNames, TensorNames};

/// Looks up what [`TensorNames`] names, under the prefix that the checkpoint uses, and checks shapes on the way.
pub struct Resolver<'a> {
    weights: &'a Weights,
    names: &'a TensorNames,
    prefix: &'static str,
}

/// A linear layer: `weight` is `[out, in]`, `bias` `[out]`.
pub struct LinearTensors<'a> {
    /// Weight.
    pub weight: Tensor<'a>,
    /// Bias.
    pub bias: Tensor<'a>,
}

/// A layer norm's two vectors.
pub struct NormTensors<'a> {
    /// Scale.
    pub gamma: Tensor<'a>,
    /// Shift.
    pub beta: Tensor<'a>,
}

impl<'a> Resolver<'a> {
    /// Finds the checkpoint's prefix.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`] when no prefix has the word table, [`WeightsError::DuplicateTensor`] when two
    /// have.
    pub fn new(weights: &'a Weights, names: &'a TensorNames) -> Result<Self, WeightsError> {
        let spelt = |prefix: &str| format!("{prefix}{}", names.word_embeddings);
        let mut found = names.prefixes.iter().filter(|prefix| weights.get(&spelt(prefix)).is_some());
        let Some(prefix) = found.next() else {
            return Err(weights.missing(names.prefixes.iter().map(|prefix| spelt(prefix)).collect()));
        };
        if let Some(other) = found.next() {
            return Err(WeightsError::DuplicateTensor {
                tensor: names.word_embeddings.to_owned(),
                first: spelt(prefix),
                second: spelt(other),
            });
        }
        Ok(Resolver { weights, names, prefix })
    }

    /// The tensor `entry`, of `shape`.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], [`WeightsError::Shape`].
    pub fn tensor(&self, entry: &str, shape: &[usize]) -> Result<Tensor<'a>, WeightsError> {
        self.weights.tensor(&format!("{}{entry}", self.prefix))?.shaped(shape)
    }

    /// The linear layer `entry` of layer `layer`, from `inputs` to `outputs` values.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn linear(
        &self,
        entry: &str,
        layer: usize,
        outputs: usize,
        inputs: usize,
    ) -> Result<LinearTensors<'a>, WeightsError> {
        let entry = LayerNames::of(entry, layer);
        Ok(LinearTensors {
            weight: self.tensor(&format!("{entry}.weight"), &[outputs, inputs])?,
            bias: self.tensor(&format!("{entry}.bias"), &[outputs])?,
        })
    }

    /// The norm `entry` (of layer `layer`, when the entry has a place for it) over `width` values, in whatever
    /// spelling.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); [`WeightsError::DuplicateTensor`] when it is there in two spellings.
    pub fn norm(&self, entry: &str, layer: usize, width: usize) -> Result<NormTensors<'a>, WeightsError> {
        let entry = LayerNames::of(entry, layer);
        let one = |suffixes: Vec<&str>| -> Result<Tensor<'a>, WeightsError> {
            let spelt: Vec<String> = suffixes.iter().map(|suffix| format!("{}{entry}.{suffix}", self.prefix)).collect();
            let mut found = spelt.iter().filter_map(|name| self.weights.get(name));
            let Some(tensor) = found.next() else {
                return Err(self.weights.missing(spelt));
            };
            if let Some(other) = found.next() {
                return Err(WeightsError::DuplicateTensor {
                    tensor: entry.clone(),
                    first: tensor.name().to_owned(),
                    second: other.name().to_owned(),
                });
            }
            tensor.shaped(&[width])
        };
        let spellings = self.names.norm;
        Ok(NormTensors {
            gamma: one(spellings.iter().map(|spelling| spelling.weight).collect())?,
            beta: one(spellings.iter().map(|spelling| spelling.bias).collect())?,
        })
    }
}
