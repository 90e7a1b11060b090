//! The attention of a layer: projections, norms and rotation of queries and keys, and each head's work.
//!
//! Invariants: the result of a head takes the place of its queries; values lie panel by panel, as the kernel reads them;
//! query head h reads key and value head `h / (heads / kv_heads)`.

use std::ops::Range;

use simile_kernels::{Attention, Epilogue, PanelOutput, attention_head, attention_weights, rotate_rows};

use super::buffers::ThreadBuffers;
use super::dims::LayerDims;
use super::model::{HeadNorms, LayerWeights, NormWeights, Position};
use super::pass::Pass;
use super::profile::Stage;
use super::sequences::by_sequence;
use super::share::{Span, Unit, units};
use super::step::{Matrix, by_columns};

/// Rows of queries or keys, and what becomes of them between projection and scores.
struct Turned<'a> {
    matrix: Matrix,
    heads: usize,
    norm: Option<&'a NormWeights>,
    /// Whether the norm is over all heads together.
    together: bool,
}

/// What the projections of a layer read, and the hidden states that its queries belong to.
pub(super) struct Inputs {
    /// Of each query: the hidden state that the layer adds to.
    pub x: Matrix,
    /// Of each query: what its projection reads.
    queries: Matrix,
    /// Of each token: what the projections to keys and values read.
    tokens: Matrix,
}

impl Pass<'_> {
    /// Norms what the projections read, and puts the rows together that a last layer goes on with. Ends with a barrier
    /// where others need what this rank wrote.
    ///
    /// # Safety
    /// As `layer`.
    pub(super) unsafe fn inputs(&self, layer: &LayerWeights, narrow: bool, thread: &mut ThreadBuffers) -> Inputs {
        let (hidden, width) = (self.hidden(), self.work.encoder.dims.hidden);
        let (tokens, outputs) = (self.sequences.tokens(), self.sequences.outputs());
        let picked = Matrix { ptr: self.view.picked, ..hidden };
        let normed = Matrix { ptr: self.view.normed, ..hidden };
        let norm = layer.norms.input();
        if narrow {
            for i in self.team.split(outputs) {
                let from = hidden.from(self.sequences.picked_row(i));
                // SAFETY: rows i of `picked`, and those behind all of them, are this rank's; the buffers are different.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.ptr, picked.row(i), width);
                    if let Some(norm) = norm {
                        self.norm(norm, from, None, picked.from(outputs + i), 0..1);
                    }
                }
            }
        }
        if let Some(norm) = norm {
            // SAFETY: the rows are this rank's.
            unsafe { self.norm(norm, hidden, None, normed, self.team.split(tokens)) };
            thread.clock.tick(Stage::Norm);
        }
        if narrow || (norm.is_some() && by_columns(tokens, self.team.size())) {
            self.wait(thread);
        }
        let source = if norm.is_some() { normed } else { hidden };
        match (narrow, norm) {
            (true, Some(_)) => Inputs { x: picked, queries: picked.from(outputs), tokens: source },
            (true, None) => Inputs { x: picked, queries: picked, tokens: source },
            (false, _) => Inputs { x: hidden, queries: source, tokens: source },
        }
    }

    /// Queries, keys and, where `values` says so, values, ready for the heads. Ends with a barrier.
    ///
    /// # Safety
    /// As `layer`.
    pub(super) unsafe fn project(
        &self,
        layer: &LayerWeights,
        inputs: &Inputs,
        spans: &[Span],
        values: bool,
        thread: &mut ThreadBuffers,
    ) {
        let (tokens, panel) = (self.sequences.tokens(), self.work.encoder.dims.panel);
        let rows = spans.last().map_or(0, |span| span.first_query + span.queries);
        let (query, key) = (self.query(layer), self.key(layer));
        // Panel by panel.
        let value = PanelOutput { ptr: self.view.value, panel_stride: tokens * panel, row_stride: panel };
        // SAFETY: the projections write buffers that nobody reads before the barrier.
        unsafe {
            self.linear(&layer.query, inputs.queries, rows, query.row_major(panel), Epilogue::Bias);
            self.linear(&layer.key, inputs.tokens, tokens, key.row_major(panel), Epilogue::Bias);
            if values {
                self.linear(&layer.value, inputs.tokens, tokens, value, Epilogue::Bias);
            }
        }
        thread.clock.tick(Stage::Qkv);
        if layer.turns() {
            if by_columns(rows, self.team.size()) || by_columns(tokens, self.team.size()) {
                self.wait(thread);
            }
            let LayerDims { heads, kv_heads, .. } = layer.dims;
            let (query_norm, key_norm, together) = match &layer.head_norms {
                None => (None, None, false),
                Some(HeadNorms::Each { query, key }) => (Some(query), Some(key), false),
                Some(HeadNorms::Together { query, key }) => (Some(query), Some(key), true),
            };
            let queries = Turned { matrix: query, heads, norm: query_norm, together };
            let keys = Turned { matrix: key, heads: kv_heads, norm: key_norm, together };
            // SAFETY: the rows are this rank's: those that it projected, or any behind the barrier.
            unsafe {
                self.turn(layer, &queries, spans, self.team.split(rows), thread);
                self.turn(layer, &keys, &self.sequences.all, self.team.split(tokens), thread);
            }
            thread.clock.tick(Stage::Turn);
        }
        self.wait(thread);
    }

    /// Norm and rotation of this rank's `rows` of queries or keys.
    unsafe fn turn(
        &self,
        layer: &LayerWeights,
        turned: &Turned<'_>,
        spans: &[Span],
        rows: Range<usize>,
        thread: &mut ThreadBuffers,
    ) {
        let encoder = self.work.encoder;
        let LayerDims { head_dim, head_width, .. } = layer.dims;
        let Turned { matrix, heads, norm, together } = *turned;
        if let Some(norm) = norm {
            for row in rows.clone() {
                let row = Matrix { ptr: matrix.row(row), stride: head_width };
                // SAFETY: the row is this rank's, and has `heads` heads.
                unsafe {
                    match together {
                        false => self.norm(norm, row, None, row, 0..heads),
                        true if head_dim == head_width => self.norm(norm, row, None, row, 0..1),
                        true => self.norm_without_gaps(norm, row, heads, head_dim, thread),
                    }
                }
            }
        }
        match layer.position {
            Position::Rotated(index) => {
                for (i, offsets) in by_sequence(spans, rows) {
                    let span = &spans[i];
                    let rotation = self.own.rotation(encoder, index, self.sequences.length(i));
                    let x = matrix.row(span.first_query + offsets.start);
                    let (count, half) = (offsets.len(), rotation.half());
                    let angles = rotation.from(span.first_position + offsets.start);
                    // SAFETY: the rows are this rank's.
                    unsafe { rotate_rows(encoder.isa, x, matrix.stride, count, heads, head_width, half, angles) };
                }
            }
            Position::None | Position::Biased(_) => {}
        }
    }

    /// A norm over all heads of a row, whose heads are padded.
    unsafe fn norm_without_gaps(
        &self,
        norm: &NormWeights,
        row: Matrix,
        heads: usize,
        head_dim: usize,
        thread: &mut ThreadBuffers,
    ) {
        thread.values.grow(heads * head_dim);
        let dense = Matrix { ptr: thread.values.as_mut_ptr(), stride: head_dim };
        // SAFETY: the row is this rank's, the other buffer this thread's.
        unsafe {
            for head in 0..heads {
                std::ptr::copy_nonoverlapping(row.row(head), dense.row(head), head_dim);
            }
            self.norm(norm, dense, None, dense, 0..1);
            for head in 0..heads {
                std::ptr::copy_nonoverlapping(dense.row(head), row.row(head), head_dim);
            }
        }
    }

    /// Attention of this rank's units; the result takes the place of the queries.
    ///
    /// # Safety
    /// As `layer`, behind the barrier of [`project`](Self::project).
    pub(super) unsafe fn attention(&self, layer: &LayerWeights, spans: &[Span], thread: &mut ThreadBuffers) {
        for unit in units(spans, layer.dims.heads, layer.mask, self.team.rank(), self.team.size()) {
            let args = self.head(layer, &spans[unit.span], &unit);
            // SAFETY: rows of the span and columns of the head are inside the buffers; the output is this unit's alone.
            unsafe { attention_head(self.work.encoder.isa, &args, &mut thread.attention) };
        }
        thread.clock.tick(Stage::Attention);
    }

    /// Writes the weights of each sequence's query, mean over the heads, to the work's output, a value for each token.
    ///
    /// # Safety
    /// As `layer`, behind the barrier of [`project`](Self::project); each sequence has one query, and the work's output is
    /// for weights.
    pub(super) unsafe fn weights(&self, layer: &LayerWeights, thread: &mut ThreadBuffers) {
        let heads = layer.dims.heads;
        for i in self.team.split(self.sequences.outputs()) {
            let span = &self.sequences.last[i];
            let to = self.work.output.wrapping_add(self.sequences.first_token(i));
            // SAFETY: the tokens of a sequence are one rank's, and the output has a value for each.
            let out = unsafe { std::slice::from_raw_parts_mut(to, span.keys) };
            for head in 0..heads {
                let args = self.head(layer, span, &Unit { span: i, head, queries: 0..1 });
                let share = 1.0 / heads as f32;
                // SAFETY: as in `attention`.
                unsafe { attention_weights(self.work.encoder.isa, &args, &mut thread.attention, share, out) };
            }
        }
        thread.clock.tick(Stage::Attention);
    }

    /// The operands of a unit.
    fn head(&self, layer: &LayerWeights, span: &Span, unit: &Unit) -> Attention {
        let (encoder, dims) = (self.work.encoder, &layer.dims);
        let (tokens, panel) = (self.sequences.tokens(), encoder.dims.panel);
        let kv_head = unit.head / (dims.heads / dims.kv_heads);
        let q = self.query(layer).row(span.first_query + unit.queries.start).wrapping_add(unit.head * dims.head_width);
        let value = kv_head * (dims.head_width / panel) * tokens + span.start;
        Attention {
            q,
            q_ld: dims.query_stride,
            q_rows: unit.queries.len(),
            k: self.key(layer).row(span.start).wrapping_add(kv_head * dims.head_width),
            k_ld: dims.key_stride,
            v: self.view.value.wrapping_add(value * panel),
            v_panel_stride: tokens * panel,
            keys: span.keys,
            first: span.first_position + unit.queries.start,
            mask: layer.mask,
            bias: match layer.position {
                Position::None | Position::Rotated(_) => None,
                Position::Biased(index) => Some(self.own.bias(encoder, index).of_head(unit.head)),
            },
            head_dim: dims.head_width,
            out: q,
            out_ld: dims.query_stride,
        }
    }

    pub(super) fn query(&self, layer: &LayerWeights) -> Matrix {
        Matrix { ptr: self.view.query, stride: layer.dims.query_stride }
    }

    fn key(&self, layer: &LayerWeights) -> Matrix {
        Matrix { ptr: self.view.key, stride: layer.dims.key_stride }
    }
}
