//! Logits of a few tokens of the vocabulary at one position: what a generative reranker answers ("yes" or "no").
//!
//! Only the rows of the output table that are asked for are read: `lm_head.weight` where the checkpoint has one, else the
//! word table (tied).

use simile_kernels::{Isa, dot};

use crate::weights::Resolver;
use crate::{Architecture, SequenceRows, Weights, WeightsError};

/// Rows of the output table.
pub struct TokenLogits {
    isa: Isa,
    rows: Vec<Vec<f32>>,
}

impl TokenLogits {
    /// Reads the rows of `ids`.
    ///
    /// # Errors
    /// [`WeightsError`]: the table is missing, or has another shape than the configuration says.
    ///
    /// # Panics
    /// When an id is no row of the table.
    pub fn load(
        isa: Isa,
        weights: &Weights,
        architecture: &Architecture,
        ids: &[u32],
    ) -> Result<TokenLogits, WeightsError> {
        let shape = [architecture.spec.vocab_size, architecture.spec.hidden_size];
        let rows = ids.iter().map(|&id| {
            let table = match weights.get("lm_head.weight") {
                Some(table) => table.shaped(&shape)?,
                None => {
                    Resolver::new(weights, &architecture.names)?.tensor(architecture.names.word_embeddings, &shape)?
                }
            };
            table.rows(id as usize, 1)?.to_vec()
        });
        Ok(TokenLogits { isa, rows: rows.collect::<Result<_, _>>()? })
    }

    /// The logits at the last row of a sequence, in the order of the ids.
    pub fn last(&self, rows: SequenceRows<'_>) -> Vec<f32> {
        let state = rows.row(rows.len() - 1);
        self.rows.iter().map(|row| dot(self.isa, row, state)).collect()
    }
}
