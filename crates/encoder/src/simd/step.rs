//! Single steps of a layer on a rank's share of rows or panels.

use std::ops::Range;

use simile_kernels::{Epilogue, PackedMatrix, PanelOutput, add_rows, gemm, layer_norm_rows, rms_norm_rows};

use super::model::NormWeights;
use super::pass::Pass;

/// Rows for each rank from which on a linear layer is shared out by rows.
const ROWS_PER_RANK: usize = 32;

/// Whether a team of `size` shares a linear layer on `rows` rows out by columns.
pub(super) fn by_columns(rows: usize, size: usize) -> bool {
    size > 1 && rows < size * ROWS_PER_RANK
}

/// Rows that a step works on.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub ptr: *mut f32,
    pub stride: usize,
}

impl Matrix {
    pub(super) fn row(self, row: usize) -> *mut f32 {
        self.ptr.wrapping_add(row * self.stride)
    }

    /// From `row` on.
    pub(super) fn from(self, row: usize) -> Matrix {
        Matrix { ptr: self.row(row), ..self }
    }

    /// As the result of a linear layer.
    pub(super) fn row_major(self, panel: usize) -> PanelOutput {
        PanelOutput { ptr: self.ptr, panel_stride: panel, row_stride: self.stride }
    }
}

impl Pass<'_> {
    /// This rank's share of a linear layer on `rows` rows of `x`.
    ///
    /// # Safety
    /// The buffers have room for the rows; this rank's part of the result is nobody else's.
    pub(super) unsafe fn linear(
        &self,
        weights: &PackedMatrix,
        x: Matrix,
        rows: usize,
        out: PanelOutput,
        epilogue: Epilogue,
    ) {
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
    ///
    /// # Safety
    /// The buffers have room for the rows and are the caller's own.
    pub(super) unsafe fn all_panels(
        &self,
        weights: &PackedMatrix,
        x: Matrix,
        rows: usize,
        out: Matrix,
        epilogue: Epilogue,
    ) {
        let out = out.row_major(self.work.encoder.dims.panel);
        // SAFETY: the caller's buffers have room and are its own.
        unsafe { gemm(self.work.encoder.isa, x.ptr, x.stride, rows, weights, 0..weights.panels(), out, epilogue) };
    }

    /// `out = norm(x + residual)` for `rows`.
    ///
    /// # Safety
    /// The buffers have room for the rows, which are the caller's own.
    pub(super) unsafe fn norm(
        &self,
        norm: &NormWeights,
        x: Matrix,
        residual: Option<Matrix>,
        out: Matrix,
        rows: Range<usize>,
    ) {
        let isa = self.work.encoder.isa;
        let residual = residual.map(|residual| (residual.row(rows.start).cast_const(), residual.stride));
        let (x_row, out_row) = (x.row(rows.start), out.row(rows.start));
        let count = rows.len();
        // SAFETY: the caller's buffers have room and the rows are its own.
        unsafe {
            match norm {
                NormWeights::Layer { gamma, beta, epsilon } => {
                    let beta = beta.as_deref();
                    layer_norm_rows(isa, x_row, x.stride, residual, out_row, out.stride, count, gamma, beta, *epsilon);
                }
                NormWeights::Rms { gamma, epsilon } => {
                    rms_norm_rows(isa, x_row, x.stride, residual, out_row, out.stride, count, gamma, *epsilon);
                }
            }
        }
    }

    /// `out += x` for `rows` of hidden states.
    ///
    /// # Safety
    /// As [`norm`](Self::norm).
    pub(super) unsafe fn add(&self, x: Matrix, out: Matrix, rows: Range<usize>) {
        let (isa, width) = (self.work.encoder.isa, self.work.encoder.dims.hidden);
        // SAFETY: the caller's buffers have room and the rows are its own.
        unsafe {
            add_rows(isa, x.row(rows.start), x.stride, out.row(rows.start), out.stride, rows.len(), width);
        }
    }
}
