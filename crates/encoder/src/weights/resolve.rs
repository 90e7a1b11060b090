//! From an architecture's table of names to the tensors of a checkpoint.

use super::{Tensor, Weights, WeightsError};
use crate::families::{LayerNames, LinearNames, TensorNames};
use crate::spec::EncoderSpec;

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
    /// Bias, when the layer has one.
    pub bias: Option<Tensor<'a>>,
}

/// A norm's vectors.
pub struct NormTensors<'a> {
    /// Scale.
    pub gamma: Tensor<'a>,
    /// Shift, when the norm has one.
    pub beta: Option<Tensor<'a>>,
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

    /// Whether the sizes of `spec` are the checkpoint's: those of the word table and of each layer's attention and
    /// feed-forward part, and how many layers there are. Reads no weights, so that it can come before memory is taken for
    /// them.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); [`WeightsError::MoreLayers`].
    pub fn check_sizes(&self, spec: &EncoderSpec) -> Result<(), WeightsError> {
        let (names, hidden) = (&self.names.layer, spec.hidden_size);
        self.tensor(self.names.word_embeddings, &[spec.vocab_size, hidden])?;
        for (number, layer) in spec.layers.iter().enumerate() {
            let queries = layer.attention.heads.saturating_mul(layer.attention.head_dim);
            self.linear(names.query, number, queries, hidden)?;
            self.linear(names.up, number, layer.mlp.intermediate_size, hidden)?;
        }
        let layers = spec.layers.len();
        let beyond = format!("{}{}.weight", self.prefix, LayerNames::of(names.query.entry, layers));
        match self.weights.get(&beyond) {
            Some(_) => Err(WeightsError::MoreLayers { folder: self.weights.folder.clone(), tensor: beyond, layers }),
            None => Ok(()),
        }
    }

    /// The tensor `entry`, of `shape`.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], [`WeightsError::Shape`].
    pub fn tensor(&self, entry: &str, shape: &[usize]) -> Result<Tensor<'a>, WeightsError> {
        self.weights.tensor(&format!("{}{entry}", self.prefix))?.shaped(shape)
    }

    /// The linear layer `names` of layer `layer`, from `inputs` to `outputs` values: whole tensors, or its rows of tensors
    /// that hold several layers.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn linear(
        &self,
        names: LinearNames,
        layer: usize,
        outputs: usize,
        inputs: usize,
    ) -> Result<LinearTensors<'a>, WeightsError> {
        let entry = LayerNames::of(names.entry, layer);
        let (first, of) = names.part.map_or((0, outputs), |part| (part.first, part.of));
        let read =
            |suffix: &str, shape: &[usize]| self.tensor(&format!("{entry}.{suffix}"), shape)?.rows(first, outputs);
        let weight = read("weight", &[of, inputs])?;
        let bias = if names.bias { Some(read("bias", &[of])?) } else { None };
        Ok(LinearTensors { weight, bias })
    }

    /// The norm `entry` (of layer `layer`, when the entry has a place for it) over `width` values, in whatever
    /// spelling; with a shift when `bias` says so.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); [`WeightsError::DuplicateTensor`] when it is there in two spellings.
    pub fn norm(&self, entry: &str, layer: usize, width: usize, bias: bool) -> Result<NormTensors<'a>, WeightsError> {
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
        let gamma = one(spellings.iter().map(|spelling| spelling.weight).collect())?;
        let beta = if bias { Some(one(spellings.iter().map(|spelling| spelling.bias).collect())?) } else { None };
        Ok(NormTensors { gamma, beta })
    }
}
