//! Dense modules: a linear layer and an activation on the pooled vector (sentence-transformers' `Dense`).
//!
//! Formula: `activation(x W^T + b)`, `W` of shape `[out_features, in_features]`, in f32. Each output element is one chain
//! of multiply-adds over `x` in order, so a row's bytes do not depend on the rows beside it.

use simile_encoder::LoadError as EncoderError;
use simile_hub::ModelFiles;
use simile_kernels::{Activation, AlignedVec, Epilogue, Isa, PackedMatrix, PanelOutput, gemm};

use crate::error::LoadError;
use crate::json::Keys;
use crate::vector_modules::{open, tensor};

/// `N_Dense/config.json`.
#[derive(Debug, PartialEq)]
pub(crate) struct DenseConfig {
    /// The module's folder, with a trailing `/`.
    pub(crate) folder: String,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) bias: bool,
    /// `None` is the identity.
    pub(crate) activation: Option<Activation>,
}

/// Class paths of activations, without their common beginning.
const ACTIVATIONS: [(&str, Option<Activation>); 5] = [
    ("Identity", None),
    ("Tanh", Some(Activation::Tanh)),
    ("ReLU", Some(Activation::Relu)),
    ("GELU", Some(Activation::Gelu)),
    ("SiLU", Some(Activation::Silu)),
];

impl DenseConfig {
    pub(crate) fn read(files: &ModelFiles, folder: &str) -> Result<DenseConfig, LoadError> {
        let file = format!("{folder}config.json");
        let json = files.read_json(&file)?;
        let keys = Keys::new(&file, json.as_ref())?;
        keys.only("module_input_name", "sentence_embedding")?;
        keys.only("module_output_name", "sentence_embedding")?;
        if keys.flag("use_residual")? == Some(true) {
            return Err(keys.unsupported("use_residual", "false"));
        }
        let width = |key| keys.count(key)?.ok_or_else(|| keys.malformed(key, "a whole number of at least 1"));
        let activation = match keys.text("activation_function")? {
            // The default of the module.
            None => Some(Activation::Tanh),
            Some(path) => ACTIVATIONS
                .into_iter()
                .find(|(name, _)| path.strip_prefix("torch.nn.").and_then(|path| path.rsplit('.').next()) == Some(name))
                .map(|(_, activation)| activation)
                .ok_or_else(|| {
                    let supported = ACTIVATIONS.map(|(name, _)| format!("torch.nn.….{name}")).join(", ");
                    keys.unsupported("activation_function", &supported)
                })?,
        };
        Ok(DenseConfig {
            folder: folder.to_owned(),
            inputs: width("in_features")?,
            outputs: width("out_features")?,
            bias: keys.flag("bias")?.unwrap_or(true),
            activation,
        })
    }
}

/// A Dense module with its weights packed.
pub(crate) struct Dense {
    isa: Isa,
    matrix: PackedMatrix,
    epilogue: Epilogue,
}

impl Dense {
    pub(crate) fn load(isa: Isa, files: &ModelFiles, config: &DenseConfig) -> Result<Dense, LoadError> {
        let weights = open(files, &config.folder)?;
        if !config.bias && weights.get("linear.bias").is_some() {
            return Err(LoadError::Malformed {
                file: format!("{}config.json", config.folder),
                key: "bias".to_owned(),
                value: "false".to_owned(),
                // The reference refuses to load it too: torch finds a tensor that the layer has no place for.
                expected: "true, because the module's weights have a linear.bias",
            });
        }
        let weight = tensor(&weights, "linear.weight", &[config.outputs, config.inputs])?;
        let bias = config.bias.then(|| tensor(&weights, "linear.bias", &[config.outputs])).transpose()?;
        weights.check().map_err(EncoderError::from)?;
        let row = |output: usize, values: &mut [f32]| {
            values.copy_from_slice(&weight[output * config.inputs..][..config.inputs]);
        };
        let matrix = PackedMatrix::pack(isa, config.outputs, config.inputs, row, bias.as_deref());
        let epilogue = config.activation.map_or(Epilogue::Bias, Epilogue::BiasActivation);
        Ok(Dense { isa, matrix, epilogue })
    }

    pub(crate) fn outputs(&self) -> usize {
        self.matrix.n()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }

    /// `input` is rows x inputs, the result rows x outputs, both row-major.
    pub(crate) fn apply(&self, input: &[f32], rows: usize) -> Vec<f32> {
        assert_eq!(input.len(), rows * self.matrix.k(), "one row of the input width for each vector");
        let width = self.isa.panel_width();
        let stride = self.matrix.panels() * width;
        let mut padded = AlignedVec::zeroed(rows * stride);
        let out = PanelOutput { ptr: padded.as_mut_ptr(), panel_stride: width, row_stride: stride };
        // SAFETY: `input` holds `rows` rows of k values at stride k (asserted above). Panel p of row r is written to
        // r * stride + p * width .. + width, and stride is panels * width, so all writes fall into the rows * stride
        // values of `padded`, which nothing else refers to.
        unsafe {
            gemm(
                self.isa,
                input.as_ptr(),
                self.matrix.k(),
                rows,
                &self.matrix,
                0..self.matrix.panels(),
                out,
                self.epilogue,
            );
        }
        padded.chunks_exact(stride.max(1)).take(rows).flat_map(|row| row[..self.outputs()].iter().copied()).collect()
    }
}
