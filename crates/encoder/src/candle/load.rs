//! From a checkpoint to tensors on a device: the same names, checks and errors as the simd executor's, then one copy.

use std::cell::Cell;

use candle_core::{DType, Device as CandleDevice, Tensor};
use candle_nn::Linear;
use simile_kernels::Isa;

use super::layer::{Layer, NormLayer};
use super::{CandleEncoder, Tables, device_error};
use crate::families::{Architecture, LinearNames};
use crate::spec::{AttentionPosition, EncoderSpec, MlpKind, Norm, NormPlacement, QkNorm};
use crate::weights::{self, LinearTensors, NormTensors, Resolver};
use crate::{Device, InputLimits, LoadError, Weights};

/// Brings the weights of `architecture` to `device` in `dtype`.
pub(super) fn load(
    device: Device,
    backend: &CandleDevice,
    dtype: DType,
    isa: Isa,
    architecture: &Architecture,
    weights: &Weights,
) -> Result<CandleEncoder, LoadError> {
    let Architecture { spec, names } = architecture;
    let resolver = Resolver::new(weights, names)?;
    let loader = Loader { device, backend, dtype, resolver: &resolver, spec, bytes: Cell::new(0) };
    let hidden = spec.hidden_size;
    let table = |entry: Option<&str>, rows: Option<usize>| {
        rows.map(|rows| loader.tensor(&resolver.tensor(entry.expect(NAMED), &[rows, hidden])?)).transpose()
    };
    let tables = Tables {
        word: loader.tensor(&resolver.tensor(names.word_embeddings, &[spec.vocab_size, hidden])?)?,
        positions: table(names.position_embeddings, spec.embeddings.positions.table())?,
        types: table(names.token_type_embeddings, spec.embeddings.token_types)?,
        norm: loader.optional_norm(names.embeddings_norm, 0, hidden, spec.embeddings.norm)?,
        relative_bias: loader.relative_bias(names.relative_bias)?,
    };
    let layers = (0..spec.layers.len()).map(|layer| loader.layer(architecture, layer)).collect::<Result<_, _>>()?;
    let final_norm = loader.optional_norm(names.final_norm, 0, hidden, spec.final_norm)?;
    weights.check()?;
    Ok(CandleEncoder {
        device,
        backend: backend.clone(),
        isa,
        limits: InputLimits {
            vocab_size: spec.vocab_size,
            type_vocab_size: spec.embeddings.token_types.unwrap_or(0),
            positions: spec.max_positions,
        },
        memory_bytes: loader.bytes.get(),
        spec: spec.clone(),
        tables,
        layers,
        final_norm,
    })
}

/// A family whose spec has a part says what the part's tensor is called.
const NAMED: &str = "an entry for each part of the spec";

struct Loader<'a> {
    device: Device,
    backend: &'a CandleDevice,
    dtype: DType,
    resolver: &'a Resolver<'a>,
    spec: &'a EncoderSpec,
    /// What was brought to the device so far.
    bytes: Cell<usize>,
}

impl Loader<'_> {
    fn tensor(&self, tensor: &weights::Tensor<'_>) -> Result<Tensor, LoadError> {
        self.upload(tensor.to_vec()?, tensor.shape(), self.dtype)
    }

    fn upload(&self, values: Vec<f32>, shape: &[usize], dtype: DType) -> Result<Tensor, LoadError> {
        // Made smaller here, so that no more than the weights themselves is ever on the device.
        self.bytes.set(self.bytes.get() + values.len() * dtype.size_in_bytes());
        Tensor::from_vec(values, shape, &CandleDevice::Cpu)
            .and_then(|tensor| tensor.to_dtype(dtype)?.to_device(self.backend))
            .map_err(|error| LoadError::Device(device_error(self.device, &error)))
    }

    fn linear(&self, names: LinearNames, layer: usize, outputs: usize, inputs: usize) -> Result<Linear, LoadError> {
        let LinearTensors { weight, bias } = self.resolver.linear(names, layer, outputs, inputs)?;
        let bias = bias.map(|bias| self.tensor(&bias)).transpose()?;
        Ok(Linear::new(self.tensor(&weight)?, bias))
    }

    fn norm(&self, entry: &str, layer: usize, width: usize, norm: Norm) -> Result<NormLayer, LoadError> {
        let bias = matches!(norm, Norm::LayerNorm { bias: true, .. });
        let NormTensors { gamma, beta } = self.resolver.norm(entry, layer, width, bias)?;
        let mut gamma = gamma.to_vec()?;
        match norm {
            Norm::LayerNorm { epsilon, .. } => {
                let beta = beta.map_or_else(|| Ok(vec![0.0; width]), |beta| beta.to_vec())?;
                let (gamma, beta) = (self.vector(gamma)?, self.vector(beta)?);
                Ok(NormLayer::LayerNorm { gamma, beta, epsilon })
            }
            Norm::RmsNorm { epsilon, offset } => {
                gamma.iter_mut().for_each(|value| *value += offset);
                Ok(NormLayer::RmsNorm { gamma: self.vector(gamma)?, epsilon })
            }
        }
    }

    fn vector(&self, values: Vec<f32>) -> Result<Tensor, LoadError> {
        let width = values.len();
        self.upload(values, &[width], self.dtype)
    }

    fn optional_norm(
        &self,
        entry: Option<&str>,
        layer: usize,
        width: usize,
        norm: Option<Norm>,
    ) -> Result<Option<NormLayer>, LoadError> {
        norm.map(|norm| self.norm(entry.expect(NAMED), layer, width, norm)).transpose()
    }

    /// In f32, as the scores that it is added to.
    fn relative_bias(&self, entry: Option<&str>) -> Result<Option<Tensor>, LoadError> {
        let shape = self.spec.layers.iter().find_map(|layer| match layer.attention.position {
            AttentionPosition::RelativeBias { buckets, .. } => Some([buckets, layer.attention.heads]),
            AttentionPosition::None | AttentionPosition::Rope(_) | AttentionPosition::Alibi => None,
        });
        let read = |shape: [usize; 2]| {
            let table = self.resolver.tensor(entry.expect(NAMED), &shape)?;
            self.upload(table.to_vec()?, &shape, DType::F32)
        };
        shape.map(read).transpose()
    }

    fn layer(&self, architecture: &Architecture, layer: usize) -> Result<Layer, LoadError> {
        let spec = &self.spec.layers[layer];
        let names = &architecture.names.layer;
        let (hidden, inner) = (self.spec.hidden_size, spec.mlp.intermediate_size);
        let attention = &spec.attention;
        let (queries, keys) = (attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim);
        let norm = Some(spec.norm);
        let qk_norm = |entry, heads: usize| match attention.qk_norm {
            None => Ok(None),
            Some(QkNorm::PerHead(norm)) => self.optional_norm(entry, layer, attention.head_dim, Some(norm)),
            Some(QkNorm::AllHeads(norm)) => self.optional_norm(entry, layer, heads * attention.head_dim, Some(norm)),
        };
        let (attention_output_norm, mlp_output_norm) = match spec.placement {
            NormPlacement::Sandwich => (norm, norm),
            NormPlacement::Post { twice: true } => (norm, None),
            NormPlacement::Post { twice: false } | NormPlacement::Pre { .. } => (None, None),
        };
        let attention_norm = match spec.placement {
            NormPlacement::Pre { attention_norm: false } => None,
            NormPlacement::Pre { attention_norm: true } | NormPlacement::Post { .. } | NormPlacement::Sandwich => norm,
        };
        let gate = match spec.mlp.kind {
            MlpKind::Gated => Some(self.linear(names.gate.expect(NAMED), layer, inner, hidden)?),
            MlpKind::Plain => None,
        };
        Ok(Layer {
            query: self.linear(names.query, layer, queries, hidden)?,
            key: self.linear(names.key, layer, keys, hidden)?,
            value: self.linear(names.value, layer, keys, hidden)?,
            qk_norms: qk_norm(names.query_norm, attention.heads)?.zip(qk_norm(names.key_norm, attention.kv_heads)?),
            attention_output: self.linear(names.attention_output, layer, hidden, queries)?,
            attention_norm: self.optional_norm(Some(names.attention_norm), layer, hidden, attention_norm)?,
            attention_output_norm: self.optional_norm(
                names.attention_output_norm,
                layer,
                hidden,
                attention_output_norm,
            )?,
            up: self.linear(names.up, layer, inner, hidden)?,
            gate,
            down: self.linear(names.down, layer, hidden, inner)?,
            mlp_norm: self.norm(names.mlp_norm, layer, hidden, spec.norm)?,
            mlp_output_norm: self.optional_norm(names.mlp_output_norm, layer, hidden, mlp_output_norm)?,
            spec: spec.clone(),
        })
    }
}
