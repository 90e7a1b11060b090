//! LayerNorm on a text's vector (sentence-transformers' `LayerNorm` module).
//!
//! Formula: `(x - mean(x)) / sqrt(variance(x) + 1e-5) * weight + bias`, with the population's variance, in f32; the epsilon is
//! PyTorch's default, which that module always has.

use simile_encoder::LoadError as EncoderError;
use simile_hub::ModelFiles;
use simile_kernels::{Isa, layer_norm_rows};

use crate::error::LoadError;
use crate::json::Keys;
use crate::vector_modules::{open, tensor};

const EPSILON: f32 = 1e-5;

/// `N_LayerNorm/config.json`.
#[derive(Debug, PartialEq)]
pub(crate) struct LayerNormConfig {
    /// The module's folder, with a trailing `/`.
    pub(crate) folder: String,
    pub(crate) width: usize,
}

impl LayerNormConfig {
    pub(crate) fn read(files: &ModelFiles, folder: &str) -> Result<LayerNormConfig, LoadError> {
        let file = format!("{folder}config.json");
        let json = files.read_json(&file)?;
        let keys = Keys::new(&file, json.as_ref())?;
        let width =
            keys.count("dimension")?.ok_or_else(|| keys.malformed("dimension", "a whole number of at least 1"))?;
        Ok(LayerNormConfig { folder: folder.to_owned(), width })
    }
}

/// The module with its weights.
pub(crate) struct LayerNorm {
    isa: Isa,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl LayerNorm {
    pub(crate) fn load(isa: Isa, files: &ModelFiles, config: &LayerNormConfig) -> Result<LayerNorm, LoadError> {
        let weights = open(files, &config.folder)?;
        let weight = tensor(&weights, "norm.weight", &[config.width])?;
        let bias = tensor(&weights, "norm.bias", &[config.width])?;
        weights.check().map_err(EncoderError::from)?;
        Ok(LayerNorm { isa, weight, bias })
    }

    /// The norm without weights, of vectors of `width` values.
    pub(crate) fn plain(isa: Isa, width: usize) -> LayerNorm {
        LayerNorm { isa, weight: vec![1.0; width], bias: vec![0.0; width] }
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.weight.len() + self.bias.len()) * size_of::<f32>()
    }

    /// `vectors` are whole rows of the module's width, one after the other.
    pub(crate) fn apply(&self, mut vectors: Vec<f32>) -> Vec<f32> {
        let width = self.weight.len();
        assert_eq!(vectors.len() % width, 0, "whole rows of {width} values");
        let (rows, at) = (vectors.len() / width, vectors.as_mut_ptr());
        // SAFETY: `vectors` holds `rows` rows of `width` values at stride `width` (asserted above), which are read and
        // written in place with the same stride, and nothing else refers to them.
        unsafe {
            layer_norm_rows(self.isa, at, width, None, at, width, rows, &self.weight, Some(&self.bias), EPSILON);
        }
        vectors
    }
}
