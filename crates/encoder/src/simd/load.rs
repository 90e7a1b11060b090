//! From a checkpoint to packed weights: each tensor is read once, in order, while it is packed. The word table stays in
//! the file.

use simile_kernels::{AlignedVec, Isa, PackedMatrix};

use super::dims::Dims;
use super::{LayerWeights, NormWeights, SimdEncoder};
use crate::families::Architecture;
use crate::families::LinearNames;
use crate::spec::{EncoderSpec, Norm};
use crate::weights::{LinearTensors, NormTensors, Resolver, Tensor};
use crate::{InputLimits, Weights, WeightsError};

/// Packs the weights of `architecture` for `isa`.
///
/// # Errors
/// [`WeightsError`]: a tensor is missing, has another shape than the configuration says, is of a type that is not read,
/// holds NaN or infinity, or the file changed meanwhile.
pub fn load(isa: Isa, architecture: &Architecture, weights: &Weights) -> Result<SimdEncoder, WeightsError> {
    let Architecture { spec, names } = architecture;
    let resolver = Resolver::new(weights, names)?;
    let dims = Dims::new(spec, isa.panel_width());
    let table = spec.embeddings.positions.table().unwrap_or(0);
    let hidden = spec.hidden_size;
    let word = resolver.tensor(names.word_embeddings, &[spec.vocab_size, hidden])?.into_table()?;
    let positions = match names.position_embeddings {
        Some(entry) => vector(&resolver.tensor(entry, &[table, hidden])?)?,
        None => AlignedVec::zeroed(table * hidden),
    };
    let types = match (names.token_type_embeddings, spec.embeddings.token_types) {
        (Some(entry), Some(count)) => vector(&resolver.tensor(entry, &[count, hidden])?)?,
        _ => AlignedVec::zeroed(0),
    };
    let packer = Packer { isa, dims, spec, resolver: &resolver };
    let embeddings_norm = packer.norm(names.embeddings_norm.unwrap(), 0, spec.embeddings.norm.unwrap())?;
    let layers = (0..spec.layers.len())
        .map(|layer| {
            let entries = &names.layer;
            let norm = spec.layers[layer].norm;
            Ok(LayerWeights {
                query: packer.heads(entries.query, layer, score_scale(dims.head_dim))?,
                key: packer.heads(entries.key, layer, 1.0)?,
                value: packer.heads(entries.value, layer, 1.0)?,
                attention_output: packer.heads_output(entries.attention_output, layer)?,
                attention_norm: packer.norm(entries.attention_norm, layer, norm)?,
                up: packer.linear(entries.up, layer, dims.intermediate, hidden)?,
                down: packer.linear(entries.down, layer, hidden, dims.intermediate)?,
                mlp_norm: packer.norm(entries.mlp_norm, layer, norm)?,
            })
        })
        .collect::<Result<Vec<_>, WeightsError>>()?;
    weights.check()?;
    Ok(SimdEncoder {
        isa,
        dims,
        limits: InputLimits {
            vocab_size: spec.vocab_size,
            type_vocab_size: spec.embeddings.token_types.unwrap_or(0),
            positions: spec.max_positions,
        },
        word,
        positions,
        types,
        embeddings_norm,
        layers,
        activation: spec.layers[0].mlp.activation,
    })
}

/// Scores are exponents of 2: softmax(q·k / sqrt(d)) is 2^(q·k log2(e) / sqrt(d)) over its sum.
fn score_scale(head_dim: usize) -> f64 {
    std::f64::consts::LOG2_E / (head_dim as f64).sqrt()
}

struct Packer<'a> {
    isa: Isa,
    dims: Dims,
    spec: &'a EncoderSpec,
    resolver: &'a Resolver<'a>,
}

impl Packer<'_> {
    /// A linear layer as it is.
    fn linear(
        &self,
        entry: LinearNames,
        layer: usize,
        outputs: usize,
        inputs: usize,
    ) -> Result<PackedMatrix, WeightsError> {
        let LinearTensors { weight, bias } = self.resolver.linear(entry, layer, outputs, inputs)?;
        let bias = bias.map_or_else(|| Ok(vec![0.0; outputs]), |bias| bias.to_vec())?;
        let mut reader = weight.reader()?;
        pack(self.isa, outputs, inputs, &bias, |_, row| reader.read(row))
    }

    /// A projection to heads, times `scale`: outputs of a head are padded with zeros to its width.
    fn heads(&self, entry: LinearNames, layer: usize, scale: f64) -> Result<PackedMatrix, WeightsError> {
        let Dims { head_dim, head_width, heads_width, .. } = self.dims;
        let inputs = self.spec.hidden_size;
        let outputs = self.dims.heads * head_dim;
        let LinearTensors { weight, bias } = self.resolver.linear(entry, layer, outputs, inputs)?;
        let scaled = |value: f32| (f64::from(value) * scale) as f32;
        let mut padded = vec![0.0; heads_width];
        for (head, values) in
            bias.map_or_else(|| Ok(vec![0.0; outputs]), |bias| bias.to_vec())?.chunks(head_dim).enumerate()
        {
            for (to, from) in padded[head * head_width..].iter_mut().zip(values) {
                *to = scaled(*from);
            }
        }
        let mut reader = weight.reader()?;
        pack(self.isa, heads_width, inputs, &padded, |j, row| {
            if j % head_width >= head_dim {
                row.fill(0.0);
                return Ok(());
            }
            reader.read(row)?;
            row.iter_mut().for_each(|value| *value = scaled(*value));
            Ok(())
        })
    }

    /// The projection from heads: inputs of a head are padded with zeros to its width.
    fn heads_output(&self, entry: LinearNames, layer: usize) -> Result<PackedMatrix, WeightsError> {
        let Dims { head_dim, head_width, heads_width, .. } = self.dims;
        let outputs = self.spec.hidden_size;
        let inputs = self.dims.heads * head_dim;
        let LinearTensors { weight, bias } = self.resolver.linear(entry, layer, outputs, inputs)?;
        let bias = bias.map_or_else(|| Ok(vec![0.0; outputs]), |bias| bias.to_vec())?;
        let mut values = vec![0.0; inputs];
        let mut reader = weight.reader()?;
        pack(self.isa, outputs, heads_width, &bias, |_, row| {
            reader.read(&mut values)?;
            row.fill(0.0);
            for (to, from) in row.chunks_mut(head_width).zip(values.chunks(head_dim)) {
                to[..head_dim].copy_from_slice(from);
            }
            Ok(())
        })
    }

    fn norm(&self, entry: &str, layer: usize, norm: Norm) -> Result<NormWeights, WeightsError> {
        let Norm::LayerNorm { epsilon, .. } = norm else { unimplemented!("{norm:?}") };
        let NormTensors { gamma, beta } = self.resolver.norm(entry, layer, self.spec.hidden_size, true)?;
        Ok(NormWeights { gamma: vector(&gamma)?, beta: vector(&beta.unwrap())?, epsilon })
    }
}

/// Packs `outputs` rows of `inputs` values, which `read_row` delivers in order.
fn pack(
    isa: Isa,
    outputs: usize,
    inputs: usize,
    bias: &[f32],
    mut read_row: impl FnMut(usize, &mut [f32]) -> Result<(), WeightsError>,
) -> Result<PackedMatrix, WeightsError> {
    let mut failure = None;
    let row = |j: usize, row: &mut [f32]| {
        if failure.is_none() {
            failure = read_row(j, row).err();
        }
    };
    let packed = PackedMatrix::pack(isa, outputs, inputs, row, Some(bias));
    match failure {
        Some(error) => Err(error),
        None => Ok(packed),
    }
}

fn vector(tensor: &Tensor<'_>) -> Result<AlignedVec, WeightsError> {
    let mut values = AlignedVec::zeroed(tensor.elements());
    tensor.read(&mut values)?;
    Ok(values)
}
