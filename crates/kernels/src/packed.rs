//! A weight matrix in the order in which the register tile reads it.

use crate::aligned::AlignedVec;
use crate::isa::Isa;
use crate::simd::{Simd, SimdOp};

/// The weights and bias of a linear layer, `y = x W^T + b` with W `[n, k]`, packed once at load for one instruction set.
///
/// Layout: `ceil(n / width)` panels of `[k][width]`: the panel's output columns lie beside each other for every k. The
/// columns behind n are 0, weights and bias alike. The panel width is [`Isa::panel_width`].
#[derive(Debug)]
pub struct PackedMatrix {
    isa: Isa,
    n: usize,
    k: usize,
    panels: AlignedVec,
    bias: AlignedVec,
}

impl PackedMatrix {
    /// Packs a matrix of `n` output rows of `k` weights. `weight_row(j, row)` fills in row `j`, and is called once for
    /// each, in order; an absent bias is 0.
    ///
    /// Costs one copy of the weights, plus a scratch of one panel.
    ///
    /// # Panics
    /// If the bias is not `n` long.
    pub fn pack(
        isa: Isa,
        n: usize,
        k: usize,
        mut weight_row: impl FnMut(usize, &mut [f32]),
        bias: Option<&[f32]>,
    ) -> PackedMatrix {
        let width = isa.panel_width();
        let count = n.div_ceil(width);
        let mut packed_bias = AlignedVec::zeroed(count * width);
        if let Some(bias) = bias {
            assert_eq!(bias.len(), n, "a bias has a value per output row");
            packed_bias[..n].copy_from_slice(bias);
        }
        let mut panels = AlignedVec::zeroed(count * k * width);
        if k > 0 {
            let mut rows = AlignedVec::zeroed(width * k);
            for (p, panel) in panels.chunks_exact_mut(k * width).enumerate() {
                let used = width.min(n - p * width);
                for (i, row) in rows.chunks_exact_mut(k).enumerate().take(used) {
                    weight_row(p * width + i, row);
                }
                isa.run(PackPanel { rows: &rows[..used * k], k, panel });
            }
        }
        PackedMatrix { isa, n, k, panels, bias: packed_bias }
    }

    /// Output rows of the layer: columns of its result.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Inputs of the layer.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.bias.len() / self.isa.panel_width()
    }

    /// The instruction set that the matrix is packed for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes held, padding included.
    pub fn bytes(&self) -> usize {
        self.panels.bytes() + self.bias.bytes()
    }

    /// The values of a panel, `k * width` of them, and its biases.
    #[inline(always)]
    pub(crate) fn panel(&self, p: usize) -> (&[f32], &[f32]) {
        let width = self.isa.panel_width();
        (&self.panels[p * self.k * width..][..self.k * width], &self.bias[p * width..][..width])
    }
}

/// Transposes at most `PANEL` rows of `k` values into a panel; the columns of absent rows become 0.
pub(crate) struct PackPanel<'a> {
    /// Rows without gaps.
    pub rows: &'a [f32],
    pub k: usize,
    /// `k * PANEL` values.
    pub panel: &'a mut [f32],
}

impl SimdOp for PackPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let (k, count) = (self.k, self.rows.len() / self.k);
        assert!(count <= S::PANEL && self.panel.len() == k * S::PANEL);
        let whole = k - k % S::LANES;
        for half in [0, S::LANES] {
            let rows = count.saturating_sub(half).min(S::LANES);
            for at in (0..whole).step_by(S::LANES) {
                // SAFETY: `rows` rows from `half` on lie in the slice, and columns `at .. at + LANES` in each of them;
                // the panel has PANEL values for each of these columns, from `half` on at least LANES.
                unsafe {
                    let from = self.rows.as_ptr().wrapping_add(half * k + at);
                    let to = self.panel.as_mut_ptr().add(at * S::PANEL + half);
                    simd.transpose(from, k, rows, to, S::PANEL);
                }
            }
        }
        for at in whole..k {
            let column = &mut self.panel[at * S::PANEL..][..S::PANEL];
            column.fill(0.0);
            for (i, value) in column.iter_mut().enumerate().take(count) {
                *value = self.rows[i * k + at];
            }
        }
    }
}
