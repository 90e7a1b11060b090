//! The executor's memory: what the sequences of a batch need, and what a thread needs for itself.

use std::time::Duration;

use simile_kernels::{AlignedVec, AttentionScratch};

use super::dims::Dims;
use super::profile::Clock;
use super::sequences::Sequences;
use crate::weights::RowBuffer;

/// Activations of a batch. `tokens` rows each, unless said otherwise.
#[derive(Default)]
pub(crate) struct BatchBuffers {
    hidden: AlignedVec,
    query: AlignedVec,
    key: AlignedVec,
    value: AlignedVec,
    /// Norm of `hidden`, where a layer's projections read that.
    normed: AlignedVec,
    /// Rows of `hidden` that the last layer goes on with, when it does not with all; behind all of them, their norms.
    picked: AlignedVec,
    /// Middle of the feed-forward part and output of a linear layer, when the team shares a few rows out by columns.
    middle: AlignedVec,
    output: AlignedVec,
}

/// Where the activations lie. Ranks write disjoint parts between barriers; see `pass.rs` for who writes what.
#[derive(Clone, Copy)]
pub(super) struct BatchView {
    /// `[tokens][dims.hidden_stride]`
    pub hidden: *mut f32,
    /// `[rows][the layer's query_stride]`; the attention's result takes their place.
    pub query: *mut f32,
    /// `[tokens][the layer's key_stride]`
    pub key: *mut f32,
    /// `[panels][tokens][panel width]`
    pub value: *mut f32,
    /// `[tokens][dims.hidden_stride]`
    pub normed: *mut f32,
    /// `[2][sequences][dims.hidden_stride]`
    pub picked: *mut f32,
    /// `[rows][the layer's middle_stride]`
    pub middle: *mut f32,
    /// `[rows][dims.hidden_stride]`
    pub output: *mut f32,
}

// SAFETY: a view is only addresses. Whoever reads or writes through them (pass.rs) makes sure that ranks touch
// disjoint parts.
unsafe impl Send for BatchView {}
// SAFETY: as above.
unsafe impl Sync for BatchView {}

impl BatchBuffers {
    /// Makes room for `sequences`, and for `shared` rows that the team shares out by columns.
    pub(super) fn view(&mut self, dims: &Dims, sequences: &Sequences<'_>, shared: usize) -> BatchView {
        let tokens = sequences.tokens();
        let picked = if sequences.narrows() { sequences.outputs() } else { 0 };
        let normed = if dims.normed { tokens } else { 0 };
        BatchView {
            hidden: room(&mut self.hidden, tokens * dims.hidden_stride),
            query: room(&mut self.query, tokens * dims.query_stride),
            key: room(&mut self.key, tokens * dims.key_stride),
            value: room(&mut self.value, tokens * dims.key_width),
            normed: room(&mut self.normed, normed * dims.hidden_stride),
            picked: room(&mut self.picked, 2 * picked * dims.hidden_stride),
            middle: room(&mut self.middle, shared * dims.middle_stride),
            output: room(&mut self.output, shared * dims.hidden_stride),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let Self { hidden, query, key, value, normed, picked, middle, output } = self;
        let buffers = [hidden, query, key, value, normed, picked, middle, output];
        buffers.iter().map(|buffer| buffer.bytes()).sum()
    }
}

/// What only one thread reads.
#[derive(Default)]
pub(crate) struct ThreadBuffers {
    /// Middle of the feed-forward part of a row block.
    middle: AlignedVec,
    /// Output of a linear layer of a row block.
    output: AlignedVec,
    /// A row of the word table.
    pub(super) row: RowBuffer,
    /// A row that is being worked on.
    pub(super) values: AlignedVec,
    /// K^T and a block of scores.
    pub(super) attention: AttentionScratch,
    /// Time at barriers in the pass that runs or ran last.
    pub(super) waited: Duration,
    pub(crate) clock: Clock,
}

impl ThreadBuffers {
    /// Middle and output of a block of `rows` rows.
    pub(super) fn block(&mut self, dims: &Dims, rows: usize) -> (*mut f32, *mut f32) {
        let middle = room(&mut self.middle, rows * dims.middle_stride);
        (middle, room(&mut self.output, rows * dims.hidden_stride))
    }

    pub(crate) fn bytes(&self) -> usize {
        let rows = self.row.bytes() + self.values.bytes();
        self.middle.bytes() + self.output.bytes() + rows + self.attention.bytes()
    }

    /// Gives the buffers back, not the measured times.
    pub(crate) fn free(&mut self) {
        let clock = std::mem::take(&mut self.clock);
        *self = Self { clock, ..Self::default() };
    }
}

fn room(buffer: &mut AlignedVec, len: usize) -> *mut f32 {
    buffer.grow(len);
    buffer.as_mut_ptr()
}
