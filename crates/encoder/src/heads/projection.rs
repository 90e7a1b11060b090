//! A vector of unit length for every token: ColBERT's and BGE-M3's projection.

use simile_kernels::{Isa, l2_normalize};

use super::linear::{Bias, Linear};
use crate::{SequenceRows, Weights, WeightsError};

/// `x W^T (+ b)`, then L2 normalisation, for each token.
pub struct Projection {
    isa: Isa,
    linear: Linear,
}

impl Projection {
    /// Reads `<entry>.weight`, and `<entry>.bias` when `bias` says that there is one, from `hidden` values.
    ///
    /// # Errors
    /// [`WeightsError`]: a tensor is missing, or has another shape.
    pub fn load(
        isa: Isa,
        weights: &Weights,
        entry: &str,
        bias: bool,
        hidden: usize,
    ) -> Result<Projection, WeightsError> {
        let (weight, shift) = (format!("{entry}weight"), format!("{entry}bias"));
        let bias = if bias { Bias::Named(&shift) } else { Bias::None };
        Ok(Projection { isa, linear: Linear::load(isa, weights, &weight, bias, hidden, None)? })
    }

    /// Values of a token's vector.
    pub fn dimensions(&self) -> usize {
        self.linear.outputs()
    }

    /// Bytes that the weights hold.
    pub fn bytes(&self) -> usize {
        self.linear.bytes()
    }

    /// The vectors of all tokens of a sequence, row-major.
    pub fn apply(&self, rows: SequenceRows<'_>) -> Vec<f32> {
        let (data, stride) = rows.block();
        let mut vectors = self.linear.apply(data, stride, rows.len());
        for vector in vectors.chunks_exact_mut(self.dimensions().max(1)) {
            l2_normalize(self.isa, vector);
        }
        vectors
    }
}
