//! One pass through all layers, by a team of any size.
//!
//! # Who does what
//! A linear layer is shared out by rows when every rank gets enough of them, else by columns (panels of the weights),
//! so that a short text does not make every rank read all weights. Attention is shared out by (sequence, head). By
//! rows, everything behind the attention of a layer needs only the rank's own rows, and so do norms in front of it and
//! rotations: two barriers a layer. By columns there is a barrier behind each step. A team of one does all rows and its
//! barriers are free.
//!
//! # Safety
//! Ranks share the buffers of a [`BatchView`]. Between two barriers a buffer is either read by all, or written in
//! disjoint parts: rows or panels from [`Team::split`], queries of a head from
//! [`units`](super::share::units), each of which cover everything once. All ranks take the same branches, because these
//! depend on sizes alone, so all meet at the same barriers.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use simile_kernels::{Team, sum_rows};

use super::buffers::{BatchView, ThreadBuffers};
use super::position::{DistanceBias, Rotation};
use super::profile::Stage;
use super::sequences::{Sequences, by_sequence};
use super::step::{Matrix, by_columns};
use super::{SimdEncoder, Work};
use crate::EncodeError;

/// What all ranks of a pass have in common.
pub(super) struct Pass<'a> {
    pub work: &'a Work<'a>,
    pub team: Team<'a>,
    pub sequences: &'a Sequences<'a>,
    pub own: &'a OwnTables,
    pub view: BatchView,
}

/// Tables of position of texts that the encoder's do not serve: those too long for them, or with frequencies of their own.
pub(super) struct OwnTables {
    /// Table of the encoder, length, and the table in its place.
    rotations: Vec<(usize, usize, Rotation)>,
    /// For each table of the encoder: the one in its place, which serves every text of the pass.
    biases: Vec<Option<DistanceBias>>,
}

impl OwnTables {
    /// What the sequences need.
    pub(super) fn new(encoder: &SimdEncoder, sequences: &Sequences<'_>) -> Self {
        let longest = sequences.all.iter().map(|span| span.queries).max().unwrap_or(0);
        let biases = encoder.biases.iter().map(|table| table.for_length(longest)).collect();
        let mut own: Vec<(usize, usize, Rotation)> = Vec::new();
        for (index, table) in encoder.rotations.iter().enumerate() {
            for length in sequences.all.iter().map(|span| span.queries) {
                let known = own.iter().any(|(of, at, _)| (*of, *at) == (index, length));
                if !known && let Some(rotation) = table.for_length(length) {
                    own.push((index, length, rotation));
                }
            }
        }
        OwnTables { rotations: own, biases }
    }

    /// The table that a text of `length` tokens takes for rotation `index`.
    pub(super) fn rotation<'a>(&'a self, encoder: &'a SimdEncoder, index: usize, length: usize) -> &'a Rotation {
        let own = self.rotations.iter().find(|(of, at, _)| (*of, *at) == (index, length));
        own.map_or(&encoder.rotations[index], |(.., rotation)| rotation)
    }

    /// The table that all texts take for bias `index`.
    pub(super) fn bias<'a>(&'a self, encoder: &'a SimdEncoder, index: usize) -> &'a DistanceBias {
        self.biases[index].as_ref().unwrap_or(&encoder.biases[index])
    }
}

/// Rows that a team of `size` shares out by columns need room in the shared buffers: how many those can be.
pub(super) fn shared_rows(sequences: &Sequences<'_>, size: usize) -> usize {
    [sequences.tokens(), sequences.outputs()].into_iter().filter(|&rows| by_columns(rows, size)).max().unwrap_or(0)
}

impl Pass<'_> {
    /// Runs all layers and writes what was asked for to the work's output. False when it was stopped.
    ///
    /// # Safety
    /// The view has room for the pass's sequences and, in a team, for [`shared_rows`]; the work's output for what its
    /// sequences give. Every rank of the team calls this with the same pass; nobody else uses the view or that part of
    /// the output.
    pub(super) unsafe fn run(&self, thread: &mut ThreadBuffers) -> bool {
        let tokens = self.sequences.tokens();
        // SAFETY: `split` gives each rank its own rows.
        if let Err(error) = unsafe { self.embed(self.team.split(tokens), thread) } {
            // Before the barrier of the first layer, behind which all ranks see it.
            self.work.fail(error);
        }
        let last = self.work.encoder.layers.len() - 1;
        for (index, layer) in self.work.encoder.layers.iter().enumerate() {
            // One rank asks for the team. The next question comes behind at least two barriers, so all ranks have read
            // this answer.
            if self.team.rank() == 0 {
                self.work.ask();
            }
            self.wait(thread);
            if self.work.stopped.load(Ordering::Relaxed) {
                return false;
            }
            // SAFETY: all ranks are here, behind the barrier, with the same layer.
            unsafe { self.layer(layer, index == last, thread) };
        }
        true
    }

    pub(super) fn wait(&self, thread: &mut ThreadBuffers) {
        if self.team.size() > 1 {
            let start = Instant::now();
            self.team.barrier();
            thread.waited += start.elapsed();
            thread.clock.tick(Stage::Wait);
        }
    }

    /// Hidden state 0 of `rows`.
    unsafe fn embed(&self, rows: Range<usize>, thread: &mut ThreadBuffers) -> Result<(), EncodeError> {
        let encoder = self.work.encoder;
        let (isa, width, hidden) = (encoder.isa, encoder.dims.hidden, self.hidden());
        let tables = &encoder.embeddings;
        for (i, offsets) in by_sequence(&self.sequences.all, rows.clone()) {
            let start = self.sequences.all[i].start;
            let mut positions = tables.position_rule.rows(self.sequences.ids(i)).skip(offsets.start);
            for offset in offsets {
                let (id, token_type) = self.sequences.token(i, offset);
                // SAFETY: the row is this rank's.
                let out = unsafe { std::slice::from_raw_parts_mut(hidden.row(start + offset), width) };
                let word = tables.word.row(id, &mut thread.row)?;
                let word = if tables.scale == 1.0 {
                    word
                } else {
                    thread.values.grow(width);
                    for (to, from) in thread.values.iter_mut().zip(word) {
                        *to = from * tables.scale;
                    }
                    &thread.values[..width]
                };
                let kind = tables.types.get(token_type * width..(token_type + 1) * width);
                let position = positions.next().map(|row| &tables.positions[row * width..][..width]);
                // Left to right in the order of transformers: word, type, position.
                match (kind, position) {
                    (Some(kind), Some(position)) => sum_rows(isa, &[word, kind, position], out),
                    (Some(row), None) | (None, Some(row)) => sum_rows(isa, &[word, row], out),
                    (None, None) => out.copy_from_slice(word),
                }
            }
        }
        if let Some(norm) = &tables.norm {
            // SAFETY: the rows are this rank's.
            unsafe { self.norm(norm, hidden, None, hidden, rows) };
        }
        thread.clock.tick(Stage::Embed);
        Ok(())
    }

    /// Brings finished `rows` of `x` to their places in the output, through the norm behind the last layer.
    ///
    /// # Safety
    /// The rows are this rank's, and the work's output is for hidden states.
    pub(super) unsafe fn store(&self, x: Matrix, rows: Range<usize>) {
        let output = Matrix { ptr: self.work.output, stride: x.stride };
        for (i, offsets) in by_sequence(&self.sequences.last, rows) {
            let from = x.from(self.sequences.last[i].first_query + offsets.start);
            let to = output.from(self.sequences.output_row(i) + offsets.start);
            // SAFETY: rows of x are this rank's, and so are their places in the output, a buffer of its own.
            unsafe {
                match &self.work.encoder.final_norm {
                    Some(norm) => self.norm(norm, from, None, to, 0..offsets.len()),
                    None => std::ptr::copy_nonoverlapping(from.ptr, to.ptr, offsets.len() * x.stride),
                }
            }
        }
    }

    pub(super) fn hidden(&self) -> Matrix {
        Matrix { ptr: self.view.hidden, stride: self.work.encoder.dims.hidden_stride }
    }
}
