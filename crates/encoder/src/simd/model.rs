//! A layer as the executor runs it: packed weights, and the choices of its spec.

use simile_kernels::{Activation, AlignedVec, Mask, PackedMatrix};

use super::dims::LayerDims;

/// Weights of one layer.
pub(super) struct LayerWeights {
    pub dims: LayerDims,
    pub norms: Norms,
    /// Scores are exponents of 2: log2(e) and the scale are in the queries' norm when there is one, else in these weights.
    pub query: PackedMatrix,
    pub key: PackedMatrix,
    pub value: PackedMatrix,
    pub head_norms: Option<HeadNorms>,
    pub position: Position,
    pub mask: Mask,
    pub attention_output: PackedMatrix,
    pub gate: Option<PackedMatrix>,
    pub up: PackedMatrix,
    pub down: PackedMatrix,
    pub activation: Activation,
}

/// The norms of a layer, where they sit.
pub(super) enum Norms {
    /// Behind each part, over the sum with its input; `inner` is another in front of the attention's.
    Post { inner: Option<NormWeights>, attention: NormWeights, mlp: NormWeights },
    /// In front of each part.
    Pre { attention: Option<NormWeights>, mlp: NormWeights },
    /// In front of each part and behind it.
    Sandwich { attention: NormWeights, attention_output: NormWeights, mlp: NormWeights, mlp_output: NormWeights },
}

impl Norms {
    /// The norm of what the projections read, when they do not read the hidden states themselves.
    pub(super) fn input(&self) -> Option<&NormWeights> {
        match self {
            Norms::Post { .. } => None,
            Norms::Pre { attention, .. } => attention.as_ref(),
            Norms::Sandwich { attention, .. } => Some(attention),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Norms::Post { inner, attention, mlp } => {
                inner.as_ref().map_or(0, NormWeights::bytes) + attention.bytes() + mlp.bytes()
            }
            Norms::Pre { attention, mlp } => attention.as_ref().map_or(0, NormWeights::bytes) + mlp.bytes(),
            Norms::Sandwich { attention, attention_output, mlp, mlp_output } => {
                [attention, attention_output, mlp, mlp_output].into_iter().map(NormWeights::bytes).sum()
            }
        }
    }
}

/// A norm.
pub(super) enum NormWeights {
    Layer {
        gamma: AlignedVec,
        beta: Option<AlignedVec>,
        epsilon: f32,
    },
    /// The offset is in gamma.
    Rms {
        gamma: AlignedVec,
        epsilon: f32,
    },
}

impl NormWeights {
    pub(super) fn bytes(&self) -> usize {
        match self {
            NormWeights::Layer { gamma, beta, .. } => gamma.bytes() + beta.as_ref().map_or(0, AlignedVec::bytes),
            NormWeights::Rms { gamma, .. } => gamma.bytes(),
        }
    }
}

/// Norms of queries and keys, over each head or over all together.
pub(super) enum HeadNorms {
    Each { query: NormWeights, key: NormWeights },
    Together { query: NormWeights, key: NormWeights },
}

/// Where position enters; which table, of those that the encoder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    None,
    Rotated(usize),
    Biased(usize),
}

impl LayerWeights {
    /// Whether queries and keys go through a norm or a rotation.
    pub(super) fn turns(&self) -> bool {
        self.head_norms.is_some() || matches!(self.position, Position::Rotated(_))
    }

    /// Floating point operations for a text of `length` tokens.
    pub(super) fn flops(&self, length: usize, hidden: usize) -> u64 {
        let LayerDims { heads, kv_heads, head_dim, intermediate, .. } = self.dims;
        let projections = (2 * heads + 2 * kv_heads) * head_dim;
        let middles = 2 + usize::from(self.gate.is_some());
        let linear = 2 * (hidden * (projections + middles * intermediate)) as u64;
        linear * length as u64 + 4 * (heads * head_dim) as u64 * self.mask.pairs(length, length)
    }

    pub(super) fn bytes(&self) -> usize {
        let LayerWeights { query, key, value, attention_output, gate, up, down, norms, head_norms, .. } = self;
        let matrices = [query, key, value, attention_output, up, down].into_iter().chain(gate);
        let heads = match head_norms {
            Some(HeadNorms::Each { query, key } | HeadNorms::Together { query, key }) => query.bytes() + key.bytes(),
            None => 0,
        };
        matrices.map(PackedMatrix::bytes).sum::<usize>() + norms.bytes() + heads
    }
}
