//! Hidden states of a batch, and their pooling where they lie.
//!
//! # Layout
//! Rows of all sequences one after the other, `stride` floats apart, of which `hidden_size` hold values. Row indices of
//! sequence i are `starts[i]..starts[i + 1]`.

use std::ops::Range;

use simile_kernels::{AlignedVec, Isa, max_pool, mean_pool, mean_sqrt_len_pool, weighted_mean_pool};

use crate::{Pooling, Rows, Scratch};

/// The last layer's hidden states of a batch: the rows that were asked for, sequences in input order.
pub struct Hidden {
    isa: Isa,
    data: AlignedVec,
    stride: usize,
    hidden_size: usize,
    starts: Vec<usize>,
    kind: Rows,
}

/// The rows of one sequence: a view into [`Hidden`].
#[derive(Clone, Copy)]
pub struct SequenceRows<'a> {
    data: &'a [f32],
    stride: usize,
    hidden_size: usize,
    count: usize,
}

impl Hidden {
    /// `data` holds `starts.last()` rows of `stride` floats.
    pub(crate) fn new(
        isa: Isa,
        data: AlignedVec,
        stride: usize,
        hidden_size: usize,
        starts: Vec<usize>,
        kind: Rows,
    ) -> Self {
        debug_assert!(starts.last().is_some_and(|rows| rows * stride <= data.len()));
        Hidden { isa, data, stride, hidden_size, starts, kind }
    }

    /// Sequences in the batch.
    pub fn sequences(&self) -> usize {
        self.starts.len() - 1
    }

    /// Width of a row.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// Which rows were computed.
    pub fn kind(&self) -> Rows {
        self.kind
    }

    /// The rows of sequence `i`, in token order: all of them, or the one that was asked for.
    ///
    /// # Panics
    /// When `i` is not below [`sequences`](Self::sequences).
    pub fn rows(&self, i: usize) -> SequenceRows<'_> {
        let Range { start, end } = self.starts[i]..self.starts[i + 1];
        SequenceRows {
            data: &self.data[start * self.stride..end * self.stride],
            stride: self.stride,
            hidden_size: self.hidden_size,
            count: end - start,
        }
    }

    /// Pools every sequence into its row of `out` (sequences x hidden size, row-major), with the formulas of
    /// sentence-transformers' `Pooling` module. There is no mask, because there is no padding.
    ///
    /// # Panics
    /// When `out` has another size, or when `pooling` reads rows that were not computed (see [`Pooling::rows`]).
    pub fn pool(&self, pooling: Pooling, out: &mut [f32]) {
        self.pool_behind(pooling, &vec![0; self.sequences()], out);
    }

    /// As [`pool`](Self::pool), of the rows behind the first `prompts[i]` of sequence i (sentence-transformers'
    /// `include_prompt: false`). There a prompt's tokens are masked: [`Pooling::Cls`] is the first row behind them, the rows of
    /// [`Pooling::WeightedMean`] keep the weights of their own places, and a sequence that is nothing but prompt gives zeros,
    /// its first row under [`Pooling::Cls`], and minus infinity under [`Pooling::Max`].
    ///
    /// # Panics
    /// As [`pool`](Self::pool); when `prompts` has not one number for each sequence, or has one that is not 0 where only some
    /// rows were computed.
    pub fn pool_behind(&self, pooling: Pooling, prompts: &[usize], out: &mut [f32]) {
        assert_eq!(out.len(), self.sequences() * self.hidden_size, "one row of the hidden size for each sequence");
        assert_eq!(prompts.len(), self.sequences(), "one prompt length for each sequence");
        assert!(
            self.kind == Rows::All || self.kind == pooling.rows() && prompts.iter().all(|prompt| *prompt == 0),
            "{} pooling reads rows {:?}, only {:?} were computed",
            pooling.name(),
            pooling.rows(),
            self.kind
        );
        for ((i, out), prompt) in out.chunks_exact_mut(self.hidden_size).enumerate().zip(prompts) {
            let rows = self.rows(i);
            let Some(count) = rows.count.checked_sub(*prompt).filter(|count| *count > 0) else {
                match pooling {
                    Pooling::Cls => out.copy_from_slice(rows.row(0)),
                    Pooling::Max => out.fill(f32::NEG_INFINITY),
                    _ => out.fill(0.0),
                }
                continue;
            };
            let data = &rows.data[prompt * rows.stride..];
            match pooling {
                Pooling::Cls => out.copy_from_slice(rows.row(*prompt)),
                Pooling::LastToken => out.copy_from_slice(rows.row(rows.len() - 1)),
                Pooling::Mean => mean_pool(self.isa, data, rows.stride, count, out),
                Pooling::Max => max_pool(self.isa, data, rows.stride, count, out),
                Pooling::MeanSqrtLen => mean_sqrt_len_pool(self.isa, data, rows.stride, count, out),
                Pooling::WeightedMean if *prompt == 0 => weighted_mean_pool(self.isa, data, rows.stride, count, out),
                Pooling::WeightedMean => rows.weighted_mean_behind(*prompt, out),
            }
        }
    }

    /// Gives the memory back for the next forward pass.
    pub fn recycle(self, scratch: &mut Scratch) {
        scratch.give_back(self.data);
    }
}

impl<'a> SequenceRows<'a> {
    /// How many rows; at least one.
    #[allow(clippy::len_without_is_empty, reason = "a sequence is never empty")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Row `r`: `hidden_size` values.
    ///
    /// # Panics
    /// When `r` is not below [`len`](Self::len).
    pub fn row(&self, r: usize) -> &'a [f32] {
        &self.data[r * self.stride..r * self.stride + self.hidden_size]
    }

    /// The rows where they lie: row r begins at r times the second value, which is how far apart they are.
    pub(crate) fn block(&self) -> (&'a [f32], usize) {
        (self.data, self.stride)
    }

    /// The mean of the rows from `first` on, each with its own place, counted from 1, as its weight.
    fn weighted_mean_behind(&self, first: usize, out: &mut [f32]) {
        let place = |row: usize| (row + 1) as f32;
        out.fill(0.0);
        for row in first..self.count {
            out.iter_mut().zip(self.row(row)).for_each(|(sum, value)| *sum += place(row) * value);
        }
        let weights: f32 = (first..self.count).map(place).sum();
        out.iter_mut().for_each(|sum| *sum /= weights);
    }

    /// All rows in token order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let this = *self;
        (0..this.len()).map(move |r| this.row(r))
    }
}
