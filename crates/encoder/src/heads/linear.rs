//! A linear layer of a head: `activation(x W^T + b)`, `W` of shape `[out, in]`.
//!
//! Each output element is one chain of multiply-adds over `x` in order, so a row's bytes do not depend on the rows beside
//! it.

use simile_kernels::{Activation, AlignedVec, Epilogue, Isa, PackedMatrix, PanelOutput, gemm};

use crate::weights::Tensor;
use crate::{Weights, WeightsError};

/// A linear layer with its weights packed.
pub(super) struct Linear {
    isa: Isa,
    matrix: PackedMatrix,
    epilogue: Epilogue,
}

/// Where a layer's bias is.
pub(super) enum Bias<'a> {
    /// Nowhere.
    None,
    /// In the tensor of that name.
    Named(&'a str),
}

impl Linear {
    /// Packs the tensor `weight`, from `inputs` values to as many as it has rows.
    pub(super) fn load(
        isa: Isa,
        weights: &Weights,
        weight: &str,
        bias: Bias<'_>,
        inputs: usize,
        activation: Option<Activation>,
    ) -> Result<Linear, WeightsError> {
        let tensor = weights.tensor(weight)?;
        let outputs = tensor.shape().first().copied().unwrap_or_default();
        let bias = match bias {
            Bias::None => None,
            Bias::Named(name) => Some(weights.tensor(name)?.shaped(&[outputs])?.to_vec()?),
        };
        Linear::pack(isa, &tensor.shaped(&[outputs, inputs])?, bias.as_deref(), activation)
    }

    /// Packs a matrix.
    pub(super) fn pack(
        isa: Isa,
        tensor: &Tensor<'_>,
        bias: Option<&[f32]>,
        activation: Option<Activation>,
    ) -> Result<Linear, WeightsError> {
        let &[outputs, inputs] = tensor.shape() else { unreachable!("its shape was checked") };
        let mut reader = tensor.reader()?;
        let mut failure = None;
        let row = |_: usize, row: &mut [f32]| {
            if failure.is_none() {
                failure = reader.read(row).err();
            }
        };
        let matrix = PackedMatrix::pack(isa, outputs, inputs, row, bias);
        let epilogue = activation.map_or(Epilogue::Bias, Epilogue::BiasActivation);
        failure.map_or(Ok(Linear { isa, matrix, epilogue }), Err)
    }

    pub(super) fn outputs(&self) -> usize {
        self.matrix.n()
    }

    pub(super) fn bytes(&self) -> usize {
        self.matrix.bytes()
    }

    /// Panels of outputs, and how wide one is.
    pub(super) fn panels(&self) -> (usize, usize) {
        (self.matrix.panels(), self.isa.panel_width())
    }

    /// The layer on `rows` rows of `input`, `stride` values apart: a row of `outputs` values for each, row-major.
    pub(super) fn apply(&self, input: &[f32], stride: usize, rows: usize) -> Vec<f32> {
        let (panels, width) = self.panels();
        let mut padded = AlignedVec::zeroed(rows * panels * width);
        self.apply_panels(input, stride, rows, 0..panels, &mut padded);
        let row = panels * width;
        padded.chunks_exact(row.max(1)).take(rows).flat_map(|row| row[..self.outputs()].iter().copied()).collect()
    }

    /// Some panels of the layer, into rows of as many panels. What is behind the last output is no result.
    ///
    /// # Panics
    /// When `input` or `out` is too short.
    pub(super) fn apply_panels(
        &self,
        input: &[f32],
        stride: usize,
        rows: usize,
        panels: std::ops::Range<usize>,
        out: &mut [f32],
    ) {
        let width = self.isa.panel_width();
        let row_stride = panels.len() * width;
        assert!(rows == 0 || input.len() >= (rows - 1) * stride + self.matrix.k(), "rows of the input width");
        assert!(out.len() >= rows * row_stride && panels.end <= self.matrix.panels(), "a place for each output");
        // Panel p goes to p * panel_stride behind the pointer; the first one here is number `panels.start`.
        let first = out.as_mut_ptr().wrapping_sub(panels.start * width);
        let place = PanelOutput { ptr: first, panel_stride: width, row_stride };
        // SAFETY: the input holds `rows` rows of k values at that stride, and panel p of row r goes to
        // r * row_stride + (p - panels.start) * width .. + width of `out` (both asserted), which nothing else refers to.
        unsafe { gemm(self.isa, input.as_ptr(), stride, rows, &self.matrix, panels, place, self.epilogue) };
    }
}
