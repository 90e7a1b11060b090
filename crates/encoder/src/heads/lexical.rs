//! A weight for every token: BGE-M3's sparse head, `relu(w x + b)`.

use simile_kernels::{Isa, dot};

use crate::{SequenceRows, Weights, WeightsError};

/// A linear layer with one output.
pub struct Lexical {
    isa: Isa,
    weight: Vec<f32>,
    bias: f32,
}

impl Lexical {
    /// Reads `weight`, `[1, hidden]`, and `bias`, `[1]`.
    ///
    /// # Errors
    /// [`WeightsError`]: a tensor is missing, or has another shape.
    pub fn load(isa: Isa, weights: &Weights, hidden: usize) -> Result<Lexical, WeightsError> {
        let weight = weights.tensor("weight")?.shaped(&[1, hidden])?.to_vec()?;
        let bias = weights.tensor("bias")?.shaped(&[1])?.to_vec()?[0];
        Ok(Lexical { isa, weight, bias })
    }

    /// The weight of each token of a sequence. NaN stays NaN.
    pub fn weights(&self, rows: SequenceRows<'_>) -> impl Iterator<Item = f32> {
        rows.iter().map(|row| {
            let weight = dot(self.isa, &self.weight, row) + self.bias;
            if weight < 0.0 { 0.0 } else { weight }
        })
    }
}
