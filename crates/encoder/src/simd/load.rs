//! From a checkpoint to packed weights: each tensor is read once, in order, while it is packed. The word table stays in
//! the file.

use simile_kernels::{AlignedVec, Isa, Mask, PackedMatrix};

use super::dims::{Dims, LayerDims};
use super::model::{HeadNorms, LayerWeights, NormWeights, Norms, Position};
use super::position::{BiasRule, DistanceBias, Rotation};
use super::{Embeddings, SimdEncoder};
use crate::families::{Architecture, LinearNames, TensorNames};
use crate::spec::{AttentionPosition, EncoderSpec, LayerSpec, MlpKind, Norm, NormPlacement, QkNorm};
use crate::weights::{LinearTensors, NormTensors, Resolver, Tensor};
use crate::{InputLimits, Weights, WeightsError};

/// Packs the weights of `architecture` for `isa`.
///
/// # Errors
/// [`WeightsError`]: a tensor is missing, has another shape than the configuration says, is of a type that is not read,
/// holds NaN or infinity, or the file changed meanwhile.
///
/// # Panics
/// If the spec has a part that the table of names does not name.
pub fn load(isa: Isa, architecture: &Architecture, weights: &Weights) -> Result<SimdEncoder, WeightsError> {
    let Architecture { spec, names } = architecture;
    let packer = Packer { isa, spec, names, resolver: Resolver::new(weights, names)? };
    let mut tables = Tables::default();
    let embeddings = packer.embeddings()?;
    let layers = (0..spec.layers.len())
        .map(|layer| packer.layer(layer, &mut tables))
        .collect::<Result<Vec<_>, WeightsError>>()?;
    let final_norm =
        spec.final_norm.map(|norm| packer.norm(named(names.final_norm), 0, norm, spec.hidden_size, 1.0)).transpose()?;
    weights.check()?;
    Ok(SimdEncoder {
        isa,
        dims: Dims::new(spec, isa.panel_width()),
        limits: InputLimits {
            vocab_size: spec.vocab_size,
            type_vocab_size: spec.embeddings.token_types.unwrap_or(0),
            positions: spec.max_positions,
        },
        embeddings,
        layers,
        rotations: tables.rotations,
        biases: tables.biases.into_iter().map(|(.., bias)| bias).collect(),
        final_norm,
    })
}

/// Tables of position that layers share.
#[derive(Default)]
struct Tables {
    rotations: Vec<Rotation>,
    /// With what they were made of: position and heads.
    biases: Vec<(AttentionPosition, usize, DistanceBias)>,
}

struct Packer<'a> {
    isa: Isa,
    spec: &'a EncoderSpec,
    names: &'a TensorNames,
    resolver: Resolver<'a>,
}

impl Packer<'_> {
    fn embeddings(&self) -> Result<Embeddings, WeightsError> {
        let (spec, names, width) = (&self.spec.embeddings, self.names, self.spec.hidden_size);
        let table = |entry: Option<&str>, rows: Option<usize>| match rows {
            Some(rows) => vector(&self.resolver.tensor(named(entry), &[rows, width])?),
            None => Ok(AlignedVec::zeroed(0)),
        };
        Ok(Embeddings {
            word: self.resolver.tensor(names.word_embeddings, &[self.spec.vocab_size, width])?.into_table()?,
            scale: spec.scale,
            position_rule: spec.positions,
            positions: table(names.position_embeddings, spec.positions.table())?,
            types: table(names.token_type_embeddings, spec.token_types)?,
            norm: spec.norm.map(|norm| self.norm(named(names.embeddings_norm), 0, norm, width, 1.0)).transpose()?,
        })
    }

    fn layer(&self, layer: usize, tables: &mut Tables) -> Result<LayerWeights, WeightsError> {
        let (spec, names, hidden) = (&self.spec.layers[layer], &self.names.layer, self.spec.hidden_size);
        let dims = LayerDims::new(spec, self.isa.panel_width());
        let LayerDims { heads, kv_heads, head_dim, intermediate, .. } = dims;
        // Scores are exponents of 2: softmax(scale q·k) is 2^(q·k log2(e) scale) over its sum.
        let scale = std::f64::consts::LOG2_E * spec.attention.scale;
        let (query_scale, head_norms) = match spec.attention.qk_norm {
            None => (scale, None),
            Some(qk_norm) => {
                let norm = |entry, norm, heads, scale| self.norm(named(entry), layer, norm, heads * head_dim, scale);
                let (query, key) = (names.query_norm, names.key_norm);
                let head_norms = match qk_norm {
                    QkNorm::PerHead(kind) => {
                        HeadNorms::Each { query: norm(query, kind, 1, scale)?, key: norm(key, kind, 1, 1.0)? }
                    }
                    QkNorm::AllHeads(kind) => HeadNorms::Together {
                        query: norm(query, kind, heads, scale)?,
                        key: norm(key, kind, kv_heads, 1.0)?,
                    },
                };
                (1.0, Some(head_norms))
            }
        };
        Ok(LayerWeights {
            dims,
            norms: self.norms(layer, spec)?,
            query: self.heads(names.query, layer, &dims, heads, query_scale)?,
            key: self.heads(names.key, layer, &dims, kv_heads, 1.0)?,
            value: self.heads(names.value, layer, &dims, kv_heads, 1.0)?,
            head_norms,
            position: self.position(spec, tables)?,
            mask: Mask { causal: spec.attention.causal, window: spec.attention.window },
            attention_output: self.heads_output(names.attention_output, layer, &dims)?,
            gate: match spec.mlp.kind {
                MlpKind::Plain => None,
                MlpKind::Gated => Some(self.linear(named(names.gate), layer, intermediate, hidden)?),
            },
            up: self.linear(names.up, layer, intermediate, hidden)?,
            down: self.linear(names.down, layer, hidden, intermediate)?,
            activation: spec.mlp.activation,
        })
    }

    fn norms(&self, layer: usize, spec: &LayerSpec) -> Result<Norms, WeightsError> {
        let names = &self.names.layer;
        let norm = |entry: &str| self.norm(entry, layer, spec.norm, self.spec.hidden_size, 1.0);
        Ok(match spec.placement {
            NormPlacement::Post { twice } => Norms::Post {
                inner: twice.then(|| norm(named(names.attention_output_norm))).transpose()?,
                attention: norm(names.attention_norm)?,
                mlp: norm(names.mlp_norm)?,
            },
            NormPlacement::Pre { attention_norm } => Norms::Pre {
                attention: attention_norm.then(|| norm(names.attention_norm)).transpose()?,
                mlp: norm(names.mlp_norm)?,
            },
            NormPlacement::Sandwich => Norms::Sandwich {
                attention: norm(names.attention_norm)?,
                attention_output: norm(named(names.attention_output_norm))?,
                mlp: norm(names.mlp_norm)?,
                mlp_output: norm(named(names.mlp_output_norm))?,
            },
        })
    }

    /// Where position enters; makes the table that is needed for it, unless a layer before has made it.
    fn position(&self, spec: &LayerSpec, tables: &mut Tables) -> Result<Position, WeightsError> {
        let (heads, head_dim, positions) = (spec.attention.heads, spec.attention.head_dim, self.spec.max_positions);
        let position = spec.attention.position;
        if let Some(known) = tables.biases.iter().position(|(of, count, _)| (*of, *count) == (position, heads)) {
            return Ok(Position::Biased(known));
        }
        let rule = match position {
            AttentionPosition::None => return Ok(Position::None),
            AttentionPosition::Rope(rope) => {
                let known = tables.rotations.iter().position(|table| table.is(rope, head_dim));
                return Ok(Position::Rotated(known.unwrap_or_else(|| {
                    tables.rotations.push(Rotation::new(rope, head_dim, positions));
                    tables.rotations.len() - 1
                })));
            }
            AttentionPosition::Alibi => BiasRule::Alibi,
            AttentionPosition::RelativeBias { buckets, max_distance } => {
                let table = self.resolver.tensor(named(self.names.relative_bias), &[buckets, heads])?.to_vec()?;
                BiasRule::Learned { table, max_distance }
            }
        };
        tables.biases.push((position, heads, DistanceBias::new(rule, heads, positions)));
        Ok(Position::Biased(tables.biases.len() - 1))
    }

    /// A linear layer as it is.
    fn linear(
        &self,
        entry: LinearNames,
        layer: usize,
        outputs: usize,
        inputs: usize,
    ) -> Result<PackedMatrix, WeightsError> {
        let LinearTensors { weight, bias } = self.resolver.linear(entry, layer, outputs, inputs)?;
        let bias = bias_or_zeros(bias, outputs)?;
        let mut reader = weight.reader()?;
        pack(self.isa, outputs, inputs, &bias, |_, row| reader.read(row))
    }

    /// A projection to heads, times `scale`: outputs of a head are padded with zeros to its width.
    fn heads(
        &self,
        entry: LinearNames,
        layer: usize,
        dims: &LayerDims,
        heads: usize,
        scale: f64,
    ) -> Result<PackedMatrix, WeightsError> {
        let LayerDims { head_dim, head_width, .. } = *dims;
        let (outputs, inputs) = (heads * head_dim, self.spec.hidden_size);
        let LinearTensors { weight, bias } = self.resolver.linear(entry, layer, outputs, inputs)?;
        let mut padded = vec![0.0; heads * head_width];
        for (to, from) in padded.chunks_mut(head_width).zip(bias_or_zeros(bias, outputs)?.chunks(head_dim)) {
            to[..head_dim].copy_from_slice(from);
            multiply(to, scale);
        }
        let mut reader = weight.reader()?;
        pack(self.isa, heads * head_width, inputs, &padded, |j, row| {
            if j % head_width >= head_dim {
                row.fill(0.0);
                return Ok(());
            }
            reader.read(row)?;
            multiply(row, scale);
            Ok(())
        })
    }

    /// The projection from heads: inputs of a head are padded with zeros to its width.
    fn heads_output(&self, entry: LinearNames, layer: usize, dims: &LayerDims) -> Result<PackedMatrix, WeightsError> {
        let LayerDims { heads, head_dim, head_width, .. } = *dims;
        let (outputs, inputs) = (self.spec.hidden_size, heads * head_dim);
        let LinearTensors { weight, bias } = self.resolver.linear(entry, layer, outputs, inputs)?;
        let bias = bias_or_zeros(bias, outputs)?;
        let mut values = vec![0.0; inputs];
        let mut reader = weight.reader()?;
        pack(self.isa, outputs, heads * head_width, &bias, |_, row| {
            reader.read(&mut values)?;
            row.fill(0.0);
            for (to, from) in row.chunks_mut(head_width).zip(values.chunks(head_dim)) {
                to[..head_dim].copy_from_slice(from);
            }
            Ok(())
        })
    }

    /// A norm over `width` values whose result is multiplied by `scale`.
    fn norm(
        &self,
        entry: &str,
        layer: usize,
        norm: Norm,
        width: usize,
        scale: f64,
    ) -> Result<NormWeights, WeightsError> {
        let read = |tensor: &Tensor<'_>, offset: f32| -> Result<AlignedVec, WeightsError> {
            let mut values = vector(tensor)?;
            values.iter_mut().for_each(|value| *value += offset);
            multiply(&mut values, scale);
            Ok(values)
        };
        match norm {
            Norm::LayerNorm { epsilon, bias } => {
                let NormTensors { gamma, beta } = self.resolver.norm(entry, layer, width, bias)?;
                let beta = beta.map(|beta| read(&beta, 0.0)).transpose()?;
                Ok(NormWeights::Layer { gamma: read(&gamma, 0.0)?, beta, epsilon })
            }
            Norm::RmsNorm { epsilon, offset } => {
                let NormTensors { gamma, .. } = self.resolver.norm(entry, layer, width, false)?;
                Ok(NormWeights::Rms { gamma: read(&gamma, offset)?, epsilon })
            }
        }
    }
}

/// The entry of a part that the spec has.
fn named<T>(entry: Option<T>) -> T {
    entry.expect("the table of names has an entry for each part of the spec")
}

fn multiply(values: &mut [f32], scale: f64) {
    values.iter_mut().for_each(|value| *value = (f64::from(*value) * scale) as f32);
}

fn bias_or_zeros(bias: Option<Tensor<'_>>, outputs: usize) -> Result<Vec<f32>, WeightsError> {
    bias.map_or_else(|| Ok(vec![0.0; outputs]), |bias| bias.to_vec())
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
