//! Static embeddings: a vector for each token, and a text's vector is their mean. No layers, no positions.
//!
//! # Formula
//! `mean over the tokens of table[mapping[id]] * weights[id]`; `mapping` and `weights` are there in quantised models only,
//! where many tokens share a row (model2vec's vocabulary quantisation). In f32, each component one chain of additions in the
//! order of the tokens, so a vector's bytes depend on its tokens alone. No tokens give zeros.
//!
//! # Files
//! `model.safetensors` with `embeddings` (model2vec) or `embedding.weight` (sentence-transformers' `StaticEmbedding`) in F32,
//! F16, BF16 or I8, and perhaps `weights` (a float for each token) and `mapping` (I64 or I32, a row for each token).
//!
//! Cost: `tokens x width` multiply-adds, and a read of as many values: 40 µs for 600 tokens of 256 values. The table is held
//! in f32, because it is all that the model is.

use std::path::Path;

use crate::{Context, EncodeError, Flow, LoadError, Weights};

/// Tokens between two looks at the checkpoint: 8 M multiply-adds at 1,024 values, a few milliseconds.
const STRIDE: usize = 8192;

/// A loaded table.
pub struct StaticEmbedding {
    /// Rows of `width` values.
    table: Vec<f32>,
    width: usize,
    /// The row of each token; `None` where it is the token's own.
    mapping: Option<Vec<u32>>,
    /// The factor of each token; `None` where all are 1.
    weights: Option<Vec<f32>>,
}

/// What model2vec calls its table.
const MODEL2VEC: &str = "embeddings";

impl StaticEmbedding {
    /// Loads the weights of the folder `dir`.
    ///
    /// # Errors
    /// [`LoadError::Weights`]: absent, damaged, tensors that do not fit each other, row numbers out of range.
    pub fn load(dir: &Path) -> Result<StaticEmbedding, LoadError> {
        let weights = Weights::open(dir)?;
        let tensor = match weights.get(MODEL2VEC) {
            Some(tensor) => tensor,
            None => weights.tensor("embedding.weight")?,
        };
        let (tensor, rows, width) = tensor.matrix()?;
        let mapping = weights.get("mapping").map(|mapping| mapping.list(None)?.row_numbers(rows)).transpose()?;
        let tokens = mapping.as_ref().map_or(rows, Vec::len);
        let factors = weights.get("weights").map(|factors| factors.list(Some(tokens))?.to_vec()).transpose()?;
        let table = tensor.to_vec_or_int8()?;
        weights.check()?;
        Ok(StaticEmbedding { table, width, mapping, weights: factors })
    }

    /// Whether the tensors are named as model2vec names them, and not as sentence-transformers does.
    pub fn is_model2vec(weights: &Weights) -> bool {
        weights.get(MODEL2VEC).is_some()
    }

    /// Width of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of tokens: every id must be smaller.
    pub fn tokens(&self) -> usize {
        self.mapping.as_ref().map_or(self.table.len() / self.width.max(1), Vec::len)
    }

    /// Bytes of memory that the table holds.
    pub fn memory_bytes(&self) -> usize {
        let words =
            self.table.len() + self.mapping.as_ref().map_or(0, Vec::len) + self.weights.as_ref().map_or(0, Vec::len);
        words * size_of::<f32>()
    }

    /// Estimated work of `length` tokens in floating-point operations.
    pub fn flops(&self, length: usize) -> u64 {
        2 * length as u64 * self.width as u64
    }

    /// The mean vector of each text of a batch, one after the other.
    ///
    /// # Errors
    /// [`EncodeError::TokenOutOfRange`]; [`EncodeError::Stopped`] when `ctx.checkpoint`, which is asked before each text and
    /// within long ones, says so.
    pub fn mean(&self, batch: &[&[u32]], ctx: &Context<'_>) -> Result<Vec<f32>, EncodeError> {
        let mut vectors = vec![0.0; batch.len() * self.width];
        for (sequence, (ids, sum)) in batch.iter().zip(vectors.chunks_exact_mut(self.width.max(1))).enumerate() {
            if let Some(position) = ids.iter().position(|&id| id as usize >= self.tokens()) {
                let vocab_size = self.tokens();
                return Err(EncodeError::TokenOutOfRange { sequence, position, id: ids[position], vocab_size });
            }
            for part in ids.chunks(STRIDE) {
                if (ctx.checkpoint)() == Flow::Stop {
                    return Err(EncodeError::Stopped);
                }
                part.iter().for_each(|&id| self.add(id as usize, sum));
            }
            let count = ids.len().max(1) as f32;
            sum.iter_mut().for_each(|value| *value /= count);
        }
        Ok(vectors)
    }

    fn add(&self, id: usize, sum: &mut [f32]) {
        let row = self.mapping.as_ref().map_or(id, |mapping| mapping[id] as usize);
        let row = &self.table[row * self.width..][..self.width];
        match &self.weights {
            None => sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value),
            Some(weights) => sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value * weights[id]),
        }
    }
}
