//! Modules that work on a text's vector and have weights of their own: Dense layers and LayerNorm, in the order of
//! `modules.json`.

use simile_encoder::{LoadError as EncoderError, Weights, WeightsError};
use simile_hub::ModelFiles;
use simile_kernels::Isa;

use crate::dense::{Dense, DenseConfig};
use crate::error::LoadError;
use crate::layer_norm::{LayerNorm, LayerNormConfig};

/// Which module it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dense,
    LayerNorm,
}

/// A module's `config.json`.
#[derive(Debug, PartialEq)]
pub(crate) enum VectorModuleConfig {
    Dense(DenseConfig),
    LayerNorm(LayerNormConfig),
}

impl VectorModuleConfig {
    /// Reads the configuration in `folder` (with a trailing `/`).
    ///
    /// # Errors
    /// [`LoadError::Malformed`], [`LoadError::UnsupportedValue`], [`LoadError::Hub`].
    pub(crate) fn read(files: &ModelFiles, kind: Kind, folder: &str) -> Result<VectorModuleConfig, LoadError> {
        Ok(match kind {
            Kind::Dense => VectorModuleConfig::Dense(DenseConfig::read(files, folder)?),
            Kind::LayerNorm => VectorModuleConfig::LayerNorm(LayerNormConfig::read(files, folder)?),
        })
    }

    /// Its folder, with a trailing `/`.
    pub(crate) fn folder(&self) -> &str {
        match self {
            VectorModuleConfig::Dense(dense) => &dense.folder,
            VectorModuleConfig::LayerNorm(norm) => &norm.folder,
        }
    }

    /// Width that it takes.
    pub(crate) fn inputs(&self) -> usize {
        match self {
            VectorModuleConfig::Dense(dense) => dense.inputs,
            VectorModuleConfig::LayerNorm(norm) => norm.width,
        }
    }

    /// Width that it gives.
    pub(crate) fn outputs(&self) -> usize {
        match self {
            VectorModuleConfig::Dense(dense) => dense.outputs,
            VectorModuleConfig::LayerNorm(norm) => norm.width,
        }
    }
}

/// A module with its weights.
pub(crate) enum VectorModule {
    Dense(Dense),
    LayerNorm(LayerNorm),
}

impl VectorModule {
    /// Loads the weights.
    ///
    /// # Errors
    /// [`LoadError::Encoder`] for weights that are absent, damaged or of another shape.
    pub(crate) fn load(isa: Isa, files: &ModelFiles, config: &VectorModuleConfig) -> Result<VectorModule, LoadError> {
        Ok(match config {
            VectorModuleConfig::Dense(config) => VectorModule::Dense(Dense::load(isa, files, config)?),
            VectorModuleConfig::LayerNorm(config) => VectorModule::LayerNorm(LayerNorm::load(isa, files, config)?),
        })
    }

    /// Bytes of memory that it holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            VectorModule::Dense(dense) => dense.bytes(),
            VectorModule::LayerNorm(norm) => norm.bytes(),
        }
    }

    /// The module's result for `rows` vectors, one after the other.
    pub(crate) fn apply(&self, input: Vec<f32>, rows: usize) -> Vec<f32> {
        match self {
            VectorModule::Dense(dense) => dense.apply(&input, rows),
            VectorModule::LayerNorm(norm) => norm.apply(input),
        }
    }
}

/// Opens the weights in a module's folder (with a trailing `/`).
pub(crate) fn open(files: &ModelFiles, folder: &str) -> Result<Weights, LoadError> {
    let weights = files.path(folder.trim_end_matches('/')).map(|folder| Weights::open(&folder))?;
    Ok(weights.map_err(EncoderError::from)?)
}

/// The file names of the weights in a module's folder, relative to the model's.
pub(crate) fn weight_files(files: &ModelFiles, folder: &str) -> Result<Vec<String>, LoadError> {
    let names = Weights::file_names(&files.path(folder.trim_end_matches('/'))?).map_err(EncoderError::from)?;
    Ok(names.into_iter().map(|name| format!("{folder}{name}")).collect())
}

/// One float tensor of `shape`.
pub(crate) fn tensor(weights: &Weights, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
    let read = || -> Result<Vec<f32>, WeightsError> { weights.tensor(name)?.shaped(shape)?.to_vec() };
    Ok(read().map_err(EncoderError::from)?)
}
