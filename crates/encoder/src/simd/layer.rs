//! One pass through all layers, by a team of any size.
//!
//! # Who does what
//! A linear layer is shared out by rows when every rank gets enough of them, else by columns (panels of the weights),
//! so that a short text does not make every rank read all weights. Attention is shared out by (sequence, head). By
//! rows, everything behind the attention of a layer needs only the rank's own rows: two barriers a layer. By columns
//! there is a barrier behind each step. A team of one does all rows and its barriers are free.
//!
//! # Safety
//! Ranks share the buffers of a [`BatchView`]. Between two barriers a buffer is either read by all, or written in
//! disjoint parts: rows or panels from [`Team::split`], queries of a head from [`units`], each of which cover
//! everything once. All ranks take the same branches, because these depend on sizes alone, so all meet at the same
//! barriers.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use simile_kernels::{
    Attention, Epilogue, PackedMatrix, PanelOutput, Team, attention_head, gemm, layer_norm_rows, sum_rows,
};

use super::buffers::{BatchView, ThreadBuffers};
use super::profile::Stage;
use super::sequences::{Sequences, by_sequence};
use super::share::{Span, units};
use super::{LayerWeights, NormWeights, Work};
use crate::EncodeError;

/// Rows that go through the feed-forward part together: its middle (192 x 1,536 floats, 1.2 MB for MiniLM) then stays
/// in the second-level cache. 48 to 384 measured alike.
const BLOCK_ROWS: usize = 192;
/// Blocks are multiples of this, so that they are whole tiles of the kernels (12 and 6 rows).
const BLOCK_MULTIPLE: usize = 12;
/// Rows for each rank from which on a linear layer is shared out by rows.
const ROWS_PER_RANK: usize = 32;

/// What all ranks of a pass have in common.
pub(super) struct Pass<'a> {
    pub work: &'a Work<'a>,
    pub team: Team<'a>,
    pub sequences: &'a Sequences<'a>,
    pub view: BatchView,
}

/// Rows that a step works on.
#[derive(Clone, Copy)]
struct Matrix {
    ptr: *mut f32,
    stride: usize,
}

impl Matrix {
    fn row(self, row: usize) -> *mut f32 {
        self.ptr.wrapping_add(row * self.stride)
    }
}

/// Rows that a team of `size` shares out by columns need room in the shared buffers: how many those can be.
pub(super) fn shared_rows(sequences: &Sequences<'_>, size: usize) -> usize {
    [sequences.tokens(), sequences.outputs()].into_iter().filter(|&rows| by_columns(rows, size)).max().unwrap_or(0)
}

fn by_columns(rows: usize, size: usize) -> bool {
    size > 1 && rows < size * ROWS_PER_RANK
}

impl Pass<'_> {
    /// Runs all layers and writes the asked rows to the output. False when it was stopped.
    ///
    /// # Safety
    /// The view has room for the pass's sequences and, in a team, for [`shared_rows`]; the work's output for the rows
    /// of its sequences. Every rank of the team calls this with the same pass; nobody else uses the view or those rows
    /// of the output.
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

    fn wait(&self, thread: &mut ThreadBuffers) {
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
        let (width, hidden) = (encoder.dims.hidden, self.hidden());
        for (i, offsets) in by_sequence(&self.sequences.all, rows.clone()) {
            let start = self.sequences.all[i].start;
            for offset in offsets {
                let (id, token_type, position) = self.sequences.token(i, offset);
                // SAFETY: the row is this rank's.
                let out = unsafe { std::slice::from_raw_parts_mut(hidden.row(start + offset), width) };
                let word = encoder.word.row(id, &mut thread.row)?;
                let position = &encoder.positions[position * width..][..width];
                // Left to right in the order of transformers: word, type, position.
                match encoder.types.get(token_type * width..(token_type + 1) * width) {
                    Some(types) => sum_rows(encoder.isa, &[word, types, position], out),
                    None => sum_rows(encoder.isa, &[word, position], out),
                }
            }
        }
        // SAFETY: the rows are this rank's.
        unsafe { self.norm(&encoder.embeddings_norm, hidden, None, hidden, rows) };
        thread.clock.tick(Stage::Embed);
        Ok(())
    }

    /// One post-norm layer.
    unsafe fn layer(&self, layer: &LayerWeights, last: bool, thread: &mut ThreadBuffers) {
        let tokens = self.sequences.tokens();
        let hidden = self.hidden();
        let narrow = last && self.sequences.narrows();
        // SAFETY (all blocks below): the buffers have room, see `run`; who writes what is the module's rule.
        let (queries, spans) = if narrow {
            let picked = Matrix { ptr: self.view.picked, stride: hidden.stride };
            for i in self.team.split(self.sequences.outputs()) {
                let from = hidden.row(self.sequences.picked_row(i));
                // SAFETY: row i of `picked` is this rank's, and the buffers are different.
                unsafe { std::ptr::copy_nonoverlapping(from, picked.row(i), self.work.encoder.dims.hidden) };
            }
            self.wait(thread);
            (picked, &self.sequences.last)
        } else {
            (hidden, &self.sequences.all)
        };
        let rows = if narrow { self.sequences.outputs() } else { tokens };
        // SAFETY: the projections write buffers that nobody reads before the barrier.
        unsafe {
            self.linear(&layer.query, queries, rows, self.query_out(), Epilogue::Bias);
            self.linear(&layer.key, hidden, tokens, self.key_out(), Epilogue::Bias);
            self.linear(&layer.value, hidden, tokens, self.value_out(tokens), Epilogue::Bias);
        }
        thread.clock.tick(Stage::Qkv);
        self.wait(thread);
        // SAFETY: each rank writes its units' part of the context.
        unsafe { self.attention(spans, tokens, thread) };
        self.wait(thread);
        // SAFETY: reads the context behind the barrier.
        unsafe {
            if by_columns(rows, self.team.size()) {
                self.tail_by_columns(layer, queries, rows, last, thread);
            } else {
                self.tail_by_rows(layer, queries, self.team.split(rows), last, thread);
            }
        }
    }

    /// Attention of this rank's units.
    unsafe fn attention(&self, spans: &[Span], tokens: usize, thread: &mut ThreadBuffers) {
        let encoder = self.work.encoder;
        let dims = &encoder.dims;
        for unit in units(spans, dims.heads, self.team.rank(), self.team.size()) {
            let span = &spans[unit.span];
            let query = (span.first_query + unit.queries.start) * dims.heads_stride + unit.head * dims.head_width;
            let value = unit.head * dims.head_panels() * tokens + span.start;
            let args = Attention {
                q: self.view.query.wrapping_add(query),
                q_ld: dims.heads_stride,
                q_rows: unit.queries.len(),
                k: self.view.key.wrapping_add(span.start * dims.heads_stride + unit.head * dims.head_width),
                k_ld: dims.heads_stride,
                v: self.view.value.wrapping_add(value * dims.panel),
                v_panel_stride: tokens * dims.panel,
                keys: span.keys,
                head_dim: dims.head_width,
                out: self.view.context.wrapping_add(query),
                out_ld: dims.heads_stride,
            };
            // SAFETY: rows of the span and columns of the head are inside the buffers; the output is this unit's alone.
            unsafe { attention_head(encoder.isa, &args, &mut thread.attention) };
        }
        thread.clock.tick(Stage::Attention);
    }

    /// Everything behind the attention for this rank's `rows`, in blocks.
    unsafe fn tail_by_rows(
        &self,
        layer: &LayerWeights,
        x: Matrix,
        rows: Range<usize>,
        last: bool,
        thread: &mut ThreadBuffers,
    ) {
        let dims = &self.work.encoder.dims;
        let size = block_size(rows.len());
        let (middle, output) = thread.block(dims, size);
        let middle = Matrix { ptr: middle, stride: dims.middle_stride };
        let output = Matrix { ptr: output, stride: dims.hidden_stride };
        for start in rows.clone().step_by(size.max(1)) {
            let count = size.min(rows.end - start);
            let block = start..start + count;
            let context = Matrix { ptr: self.context().row(start), ..self.context() };
            let x_block = Matrix { ptr: x.row(start), ..x };
            // SAFETY: the block's rows are this rank's, the other two buffers this thread's.
            unsafe {
                self.all_panels(&layer.attention_output, context, count, output, Epilogue::Bias);
                thread.clock.tick(Stage::Output);
                self.norm(&layer.attention_norm, output, Some(x_block), x_block, 0..count);
                thread.clock.tick(Stage::Norm);
                self.all_panels(&layer.up, x_block, count, middle, self.activation());
                thread.clock.tick(Stage::Up);
                self.all_panels(&layer.down, middle, count, output, Epilogue::Bias);
                thread.clock.tick(Stage::Down);
                self.norm(&layer.mlp_norm, output, Some(x_block), x_block, 0..count);
                if last {
                    self.store(x, block);
                }
                thread.clock.tick(Stage::Norm);
            }
        }
    }

    /// Everything behind the attention for few rows: the team shares each step out by columns.
    unsafe fn tail_by_columns(
        &self,
        layer: &LayerWeights,
        x: Matrix,
        rows: usize,
        last: bool,
        thread: &mut ThreadBuffers,
    ) {
        let dims = &self.work.encoder.dims;
        let middle = Matrix { ptr: self.view.middle, stride: dims.middle_stride };
        let output = Matrix { ptr: self.view.output, stride: dims.hidden_stride };
        let own = self.team.split(rows);
        // SAFETY: each step writes this rank's panels or rows, and reads what others wrote only behind a barrier.
        unsafe {
            self.linear(&layer.attention_output, self.context(), rows, row_major(output, dims.panel), Epilogue::Bias);
            thread.clock.tick(Stage::Output);
            self.wait(thread);
            self.norm(&layer.attention_norm, output, Some(x), x, own.clone());
            thread.clock.tick(Stage::Norm);
            self.wait(thread);
            self.linear(&layer.up, x, rows, row_major(middle, dims.panel), self.activation());
            thread.clock.tick(Stage::Up);
            self.wait(thread);
            self.linear(&layer.down, middle, rows, row_major(output, dims.panel), Epilogue::Bias);
            thread.clock.tick(Stage::Down);
            self.wait(thread);
            self.norm(&layer.mlp_norm, output, Some(x), x, own.clone());
            if last {
                self.store(x, own);
            }
            thread.clock.tick(Stage::Norm);
        }
    }

    /// This rank's share of a linear layer on `rows` rows of `x`.
    unsafe fn linear(&self, weights: &PackedMatrix, x: Matrix, rows: usize, out: PanelOutput, epilogue: Epilogue) {
        let (rows, panels) = if by_columns(rows, self.team.size()) {
            (0..rows, self.team.split(weights.panels()))
        } else {
            (self.team.split(rows), 0..weights.panels())
        };
        let out = PanelOutput { ptr: out.ptr.wrapping_add(rows.start * out.row_stride), ..out };
        // SAFETY: the caller's buffers have room; rows or panels are this rank's.
        unsafe { gemm(self.work.encoder.isa, x.row(rows.start), x.stride, rows.len(), weights, panels, out, epilogue) };
    }

    /// A whole linear layer on `rows` rows of `x`, row-major.
    unsafe fn all_panels(&self, weights: &PackedMatrix, x: Matrix, rows: usize, out: Matrix, epilogue: Epilogue) {
        let out = row_major(out, self.work.encoder.dims.panel);
        // SAFETY: the caller's buffers have room and are its own.
        unsafe { gemm(self.work.encoder.isa, x.ptr, x.stride, rows, weights, 0..weights.panels(), out, epilogue) };
    }

    /// `out = norm(x + residual)` for `rows`.
    unsafe fn norm(&self, norm: &NormWeights, x: Matrix, residual: Option<Matrix>, out: Matrix, rows: Range<usize>) {
        let residual = residual.map(|residual| (residual.row(rows.start).cast_const(), residual.stride));
        let (x_row, out_row) = (x.row(rows.start), out.row(rows.start));
        // SAFETY: the caller's buffers have room and the rows are its own.
        unsafe {
            layer_norm_rows(
                self.work.encoder.isa,
                x_row,
                x.stride,
                residual,
                out_row,
                out.stride,
                rows.len(),
                &norm.gamma,
                Some(&norm.beta),
                norm.epsilon,
            );
        }
    }

    /// Copies finished `rows` of `x` to their places in the output.
    unsafe fn store(&self, x: Matrix, rows: Range<usize>) {
        let output = Matrix { ptr: self.work.output, stride: x.stride };
        for (i, offsets) in by_sequence(&self.sequences.last, rows) {
            let from = x.row(self.sequences.last[i].first_query + offsets.start);
            let to = output.row(self.sequences.output_row(i) + offsets.start);
            // SAFETY: rows of x are this rank's, and so are their places in the output, a buffer of its own.
            unsafe { std::ptr::copy_nonoverlapping(from, to, offsets.len() * x.stride) };
        }
    }

    fn activation(&self) -> Epilogue {
        Epilogue::BiasActivation(self.work.encoder.activation)
    }

    fn hidden(&self) -> Matrix {
        Matrix { ptr: self.view.hidden, stride: self.work.encoder.dims.hidden_stride }
    }

    fn context(&self) -> Matrix {
        Matrix { ptr: self.view.context, stride: self.work.encoder.dims.heads_stride }
    }

    fn query_out(&self) -> PanelOutput {
        row_major(
            Matrix { ptr: self.view.query, stride: self.work.encoder.dims.heads_stride },
            self.work.encoder.dims.panel,
        )
    }

    fn key_out(&self) -> PanelOutput {
        row_major(
            Matrix { ptr: self.view.key, stride: self.work.encoder.dims.heads_stride },
            self.work.encoder.dims.panel,
        )
    }

    /// Values come out panel by panel, as the attention reads them.
    fn value_out(&self, tokens: usize) -> PanelOutput {
        let panel = self.work.encoder.dims.panel;
        PanelOutput { ptr: self.view.value, panel_stride: tokens * panel, row_stride: panel }
    }
}

fn row_major(matrix: Matrix, panel: usize) -> PanelOutput {
    PanelOutput { ptr: matrix.ptr, panel_stride: panel, row_stride: matrix.stride }
}

/// Rows of a block: even blocks of at most about [`BLOCK_ROWS`].
fn block_size(rows: usize) -> usize {
    let blocks = rows.div_ceil(BLOCK_ROWS).max(1);
    rows.div_ceil(blocks).next_multiple_of(BLOCK_MULTIPLE)
}
