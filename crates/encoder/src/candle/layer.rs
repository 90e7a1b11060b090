//! One layer of a spec on candle tensors, all of `[tokens, width]`.

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::Linear;
use candle_nn::ops::{layer_norm, rms_norm};
use candle_nn::rotary_emb::rope;
use simile_kernels::Activation;

use super::attention::{RelativeBias, attend, first_weights};
use super::batch::Group;
use crate::spec::{AttentionPosition, LayerSpec, MlpKind, MlpSpec, NormPlacement, QkNorm, Rope};

/// Weights of a layer, with what they are for.
pub(super) struct Layer {
    pub spec: LayerSpec,
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    /// Of queries and of keys.
    pub qk_norms: Option<(NormLayer, NormLayer)>,
    pub attention_output: Linear,
    /// Not there where the spec norms no input ([`NormPlacement::Pre`]).
    pub attention_norm: Option<NormLayer>,
    /// Sandwich; post norm: the inner one of two.
    pub attention_output_norm: Option<NormLayer>,
    pub up: Linear,
    pub gate: Option<Linear>,
    pub down: Linear,
    pub mlp_norm: NormLayer,
    pub mlp_output_norm: Option<NormLayer>,
}

/// A norm over the last dimension.
pub(super) enum NormLayer {
    /// `beta` is zero where the model has none.
    LayerNorm { gamma: Tensor, beta: Tensor, epsilon: f32 },
    /// The offset is in `gamma`.
    RmsNorm { gamma: Tensor, epsilon: f32 },
}

impl NormLayer {
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.contiguous()?;
        match self {
            NormLayer::LayerNorm { gamma, beta, epsilon } => layer_norm(&x, gamma, beta, *epsilon),
            NormLayer::RmsNorm { gamma, epsilon } => rms_norm(&x, gamma, *epsilon),
        }
    }
}

/// `x`, normed where there is a norm.
pub(super) fn normed(norm: Option<&NormLayer>, x: &Tensor) -> Result<Tensor> {
    norm.map_or_else(|| Ok(x.clone()), |norm| norm.forward(x))
}

/// Cosines and sines of a group, made once for each kind of rotation and size of a head.
#[derive(Default)]
pub(super) struct Rotations(Vec<((Rope, usize), Tensor, Tensor)>);

impl Rotations {
    fn get(&mut self, rope: Rope, head_dim: usize, group: &Group, like: &Tensor) -> Result<(Tensor, Tensor)> {
        if let Some((_, cos, sin)) = self.0.iter().find(|(made, ..)| *made == (rope, head_dim)) {
            return Ok((cos.clone(), sin.clone()));
        }
        let (cos, sin) = group.rotation(rope, head_dim, like.device())?;
        let (cos, sin) = (cos.to_dtype(like.dtype())?, sin.to_dtype(like.dtype())?);
        self.0.push(((rope, head_dim), cos.clone(), sin.clone()));
        Ok((cos, sin))
    }
}

impl Layer {
    /// The layer's output from its input `x`; in the `last` layer only the rows that will be read.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        group: &Group,
        rotations: &mut Rotations,
        bias: Option<&RelativeBias>,
        last: bool,
    ) -> Result<Tensor> {
        let attention = &self.spec.attention;
        let input = self.attention_input(x)?;
        let (query, key) = self.query_and_key(&input, group, rotations)?;
        let value = group.heads_of_rows(&self.value.forward(&input)?, attention.kv_heads, attention.head_dim)?;
        let context = group.rows_of_heads(&attend(attention, group, bias, &query, &key, &value)?, last)?;
        let attended = self.attention_output.forward(&context)?;
        let x = group.residual(x, last)?;
        match self.spec.placement {
            NormPlacement::Post { twice } => {
                let mut sum = (&x + attended)?;
                if twice {
                    sum = (x + normed(self.attention_output_norm.as_ref(), &sum)?)?;
                }
                let x = normed(self.attention_norm.as_ref(), &sum)?;
                self.mlp_norm.forward(&(&x + self.mlp(&x)?)?)
            }
            NormPlacement::Pre { .. } => {
                let x = (x + attended)?;
                &x + self.mlp(&self.mlp_norm.forward(&x)?)?
            }
            NormPlacement::Sandwich => {
                let x = (x + normed(self.attention_output_norm.as_ref(), &attended)?)?;
                let middle = self.mlp(&self.mlp_norm.forward(&x)?)?;
                &x + normed(self.mlp_output_norm.as_ref(), &middle)?
            }
        }
    }

    /// Attention of the first token of each sequence: `[sequences, longest]`, in f32.
    pub(super) fn first_token_attention(
        &self,
        x: &Tensor,
        group: &Group,
        rotations: &mut Rotations,
        bias: Option<&RelativeBias>,
    ) -> Result<Tensor> {
        let (query, key) = self.query_and_key(&self.attention_input(x)?, group, rotations)?;
        first_weights(&self.spec.attention, group, bias, &query, &key)
    }

    fn attention_input(&self, x: &Tensor) -> Result<Tensor> {
        match self.spec.placement {
            NormPlacement::Post { .. } => Ok(x.clone()),
            NormPlacement::Pre { .. } | NormPlacement::Sandwich => normed(self.attention_norm.as_ref(), x),
        }
    }

    /// Queries and keys by head, normed and rotated.
    fn query_and_key(&self, x: &Tensor, group: &Group, rotations: &mut Rotations) -> Result<(Tensor, Tensor)> {
        let attention = &self.spec.attention;
        let head_dim = attention.head_dim;
        let mut project = |linear: &Linear, norm: Option<&NormLayer>, heads: usize| {
            let x = linear.forward(x)?;
            let x = match attention.qk_norm {
                None => x,
                Some(QkNorm::AllHeads(_)) => normed(norm, &x)?,
                Some(QkNorm::PerHead(_)) => {
                    let tokens = x.dim(0)?;
                    normed(norm, &x.reshape((tokens, heads, head_dim))?)?.reshape((tokens, heads * head_dim))?
                }
            };
            let x = group.heads_of_rows(&x, heads, head_dim)?;
            match attention.position {
                AttentionPosition::Rope(kind) => {
                    let (cos, sin) = rotations.get(kind, head_dim, group, &x)?;
                    rope(&x, &cos, &sin)
                }
                AttentionPosition::None | AttentionPosition::Alibi | AttentionPosition::RelativeBias { .. } => Ok(x),
            }
        };
        let norms = self.qk_norms.as_ref();
        let query = project(&self.query, norms.map(|(query, _)| query), attention.heads)?;
        let key = project(&self.key, norms.map(|(_, key)| key), attention.kv_heads)?;
        Ok((query, key))
    }

    fn mlp(&self, x: &Tensor) -> Result<Tensor> {
        let MlpSpec { kind, activation, .. } = self.spec.mlp;
        let up = self.up.forward(x)?;
        let middle = match (kind, &self.gate) {
            (MlpKind::Gated, Some(gate)) => (activate(activation, &gate.forward(x)?)? * up)?,
            (MlpKind::Gated | MlpKind::Plain, _) => activate(activation, &up)?,
        };
        self.down.forward(&middle)
    }
}

/// Applies an activation. In 16 bits the erf form goes through f32, because not every backend has it in all dtypes.
fn activate(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Gelu if x.dtype() == DType::F32 => x.gelu_erf(),
        Activation::Gelu => x.to_dtype(DType::F32)?.gelu_erf()?.to_dtype(x.dtype()),
        Activation::GeluTanh => x.gelu(),
        Activation::Relu => x.relu(),
        Activation::Silu => x.silu(),
        Activation::Tanh => x.tanh(),
    }
}
