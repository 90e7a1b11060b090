//! One layer of a pass: attention, then the feed-forward part, with norms where the spec has them.
//!
//! Who does what, and why that is sound, says `pass.rs`.

use std::ops::Range;

use simile_kernels::Epilogue;

use super::Wanted;
use super::buffers::ThreadBuffers;
use super::model::{LayerWeights, Norms};
use super::pass::Pass;
use super::profile::Stage;
use super::step::{Matrix, by_columns};

/// Rows that go through the feed-forward part together: its middle (192 x 1,536 floats, 1.2 MB for MiniLM) then stays
/// in the second-level cache. 48 to 384 measured alike.
const BLOCK_ROWS: usize = 192;
/// Blocks are multiples of this, so that they are whole tiles of the kernels (12 and 6 rows).
const BLOCK_MULTIPLE: usize = 12;

impl Pass<'_> {
    /// One layer; the last one writes the output.
    ///
    /// # Safety
    /// All ranks of the team call this with the same layer behind a barrier; for the rest as [`run`](Self::run).
    pub(super) unsafe fn layer(&self, layer: &LayerWeights, last: bool, thread: &mut ThreadBuffers) {
        let narrow = last && self.sequences.narrows();
        let spans = if narrow { &self.sequences.last } else { &self.sequences.all };
        let rows = if narrow { self.sequences.outputs() } else { self.sequences.tokens() };
        let weights = last && self.work.wanted == Wanted::FirstTokenAttention;
        // SAFETY: the buffers have room, see `run`; who writes what is the rule of `pass.rs`.
        unsafe {
            let inputs = self.inputs(layer, narrow, thread);
            self.project(layer, &inputs, spans, !weights, thread);
            if weights {
                return self.weights(layer, thread);
            }
            self.attention(layer, spans, thread);
            self.wait(thread);
            if by_columns(rows, self.team.size()) {
                self.tail_by_columns(layer, inputs.x, rows, last, thread);
            } else {
                self.tail_by_rows(layer, inputs.x, self.team.split(rows), last, thread);
            }
        }
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
        let middle = Matrix { ptr: middle, stride: layer.dims.middle_stride };
        let output = Matrix { ptr: output, stride: dims.hidden_stride };
        for start in rows.clone().step_by(size.max(1)) {
            let count = size.min(rows.end - start);
            let (context, x_block) = (self.query(layer).from(start), x.from(start));
            // SAFETY: the block's rows are this rank's, the other two buffers this thread's.
            unsafe {
                self.all_panels(&layer.attention_output, context, count, output, Epilogue::Bias);
                thread.clock.tick(Stage::Output);
                let input = self.behind_attention(layer, output, x_block, 0..count);
                thread.clock.tick(Stage::Norm);
                if let Some(gate) = &layer.gate {
                    self.all_panels(gate, input, count, middle, Epilogue::BiasActivation(layer.activation));
                }
                self.all_panels(&layer.up, input, count, middle, up_epilogue(layer));
                thread.clock.tick(Stage::Up);
                self.all_panels(&layer.down, middle, count, output, Epilogue::Bias);
                thread.clock.tick(Stage::Down);
                self.behind_mlp(layer, output, x_block, 0..count);
                if last {
                    self.store(x, start..start + count);
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
        let (dims, panel) = (&self.work.encoder.dims, self.work.encoder.dims.panel);
        let middle = Matrix { ptr: self.view.middle, stride: layer.dims.middle_stride };
        let output = Matrix { ptr: self.view.output, stride: dims.hidden_stride };
        let own = self.team.split(rows);
        // SAFETY: each step writes this rank's panels or rows, and reads what others wrote only behind a barrier. Gate and
        // `up` have the same panels, so that a rank multiplies what it wrote itself.
        unsafe {
            let context = self.query(layer);
            self.linear(&layer.attention_output, context, rows, output.row_major(panel), Epilogue::Bias);
            thread.clock.tick(Stage::Output);
            self.wait(thread);
            let input = self.behind_attention(layer, output, x, own.clone());
            thread.clock.tick(Stage::Norm);
            self.wait(thread);
            if let Some(gate) = &layer.gate {
                let gated = Epilogue::BiasActivation(layer.activation);
                self.linear(gate, input, rows, middle.row_major(panel), gated);
            }
            self.linear(&layer.up, input, rows, middle.row_major(panel), up_epilogue(layer));
            thread.clock.tick(Stage::Up);
            self.wait(thread);
            self.linear(&layer.down, middle, rows, output.row_major(panel), Epilogue::Bias);
            thread.clock.tick(Stage::Down);
            self.wait(thread);
            self.behind_mlp(layer, output, x, own.clone());
            if last {
                self.store(x, own);
            }
            thread.clock.tick(Stage::Norm);
        }
    }

    /// Adds the attention's `output` to `x`, with the norms around it. Returns what the feed-forward part reads: `x`, or
    /// its norm in the place of the output.
    unsafe fn behind_attention(&self, layer: &LayerWeights, output: Matrix, x: Matrix, rows: Range<usize>) -> Matrix {
        // SAFETY: the rows are the caller's own.
        unsafe {
            match &layer.norms {
                Norms::Post { inner, attention, mlp: _ } => {
                    if let Some(inner) = inner {
                        self.norm(inner, output, Some(x), output, rows.clone());
                    }
                    self.norm(attention, output, Some(x), x, rows);
                    x
                }
                Norms::Pre { attention: _, mlp } => {
                    self.add(output, x, rows.clone());
                    self.norm(mlp, x, None, output, rows);
                    output
                }
                Norms::Sandwich { attention: _, attention_output, mlp, mlp_output: _ } => {
                    self.norm(attention_output, output, None, output, rows.clone());
                    self.add(output, x, rows.clone());
                    self.norm(mlp, x, None, output, rows);
                    output
                }
            }
        }
    }

    /// Adds the feed-forward part's `output` to `x`, with the norms around it.
    unsafe fn behind_mlp(&self, layer: &LayerWeights, output: Matrix, x: Matrix, rows: Range<usize>) {
        // SAFETY: the rows are the caller's own.
        unsafe {
            match &layer.norms {
                Norms::Post { inner: _, attention: _, mlp } => self.norm(mlp, output, Some(x), x, rows),
                Norms::Pre { .. } => self.add(output, x, rows),
                Norms::Sandwich { attention: _, attention_output: _, mlp: _, mlp_output } => {
                    self.norm(mlp_output, output, None, output, rows.clone());
                    self.add(output, x, rows);
                }
            }
        }
    }
}

/// The epilogue of the layer that an activation follows, or that another's activation gates.
fn up_epilogue(layer: &LayerWeights) -> Epilogue {
    match layer.gate {
        Some(_) => Epilogue::BiasTimes,
        None => Epilogue::BiasActivation(layer.activation),
    }
}

/// Rows of a block: even blocks of at most about [`BLOCK_ROWS`].
fn block_size(rows: usize) -> usize {
    let blocks = rows.div_ceil(BLOCK_ROWS).max(1);
    rows.div_ceil(blocks).next_multiple_of(BLOCK_MULTIPLE)
}
