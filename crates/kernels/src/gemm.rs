//! Products of activations with packed weights: nearly all the arithmetic of an encoder.
//!
//! Invariant: each element of the result is one chain of multiply-adds over k in order, then the epilogue. So the bytes
//! depend on its row of A and its column of B alone: not on the other rows, how many there are, how rows and panels are
//! shared out among calls or threads.
//!
//! Cost: `2 * rows * n * k` operations at 80 to 90 % of what the FMA units can do, if B or a block of A comes from the
//! second-level cache. Below some 12 rows the time is that of reading B.

use crate::activation::{Activation, Function, Gelu, GeluTanh, Relu, Silu, Tanh};
use crate::isa::Isa;
use crate::packed::PackedMatrix;
use crate::simd::{Simd, SimdOp};
use crate::tile::{BiasThen, BiasTimes, RowTiles, Tile, TileEpilogue};
use std::ops::Range;

/// Greatest error of an element before its activation, relative to the sum of the magnitudes of its products and bias,
/// for k up to some thousands.
pub const GEMM_MAX_ERROR: f64 = 5e-7;

/// What is done to the product before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// Adds the bias of the packed matrix.
    Bias,
    /// Adds the bias, then applies the activation.
    BiasActivation(Activation),
    /// Adds the bias, then multiplies by what is there: the second half of a gated feed-forward part, behind the gate's.
    BiasTimes,
}

/// Where the result goes: row `r` of panel `p` is the panel width's values from `ptr + p * panel_stride + r * row_stride`.
///
/// A row-major result with `ld` values from row to row has `panel_stride: width, row_stride: ld`; a panel-major one
/// (`[panel][row][width]`, what [`Attention`](crate::Attention) wants as values) has
/// `panel_stride: rows * width, row_stride: width`.
#[derive(Clone, Copy, Debug)]
pub struct PanelOutput {
    /// Where row 0 of panel 0 goes.
    pub ptr: *mut f32,
    /// Values from a panel to the next one.
    pub panel_stride: usize,
    /// Values from a row to the next one.
    pub row_stride: usize,
}

/// `C = epilogue(A B^T + bias)` for the given panels of B, that is for columns
/// `panels.start * width .. panels.end * width` of C, with A `[rows, b.k()]` and `a_ld` values from row to row.
///
/// Whole panels are written: the columns behind `b.n()` hold the epilogue of 0.
///
/// # Panics
/// If the panels are not panels of `b`, or `b` was packed for another instruction set.
///
/// # Safety
/// - `a` must be valid for reads of `rows` rows of `b.k()` values.
/// - Every value of the result as [`PanelOutput`] describes it must be valid for writes, with [`Epilogue::BiasTimes`] for
///   reads too, and none of it may overlap A.
/// - Nothing else may access these values meanwhile. Threads may share A and write different parts of C.
#[allow(clippy::too_many_arguments, reason = "the arguments of a matrix product are known by their order")]
pub unsafe fn gemm(
    isa: Isa,
    a: *const f32,
    a_ld: usize,
    rows: usize,
    b: &PackedMatrix,
    panels: Range<usize>,
    out: PanelOutput,
    epilogue: Epilogue,
) {
    assert!(b.isa() == isa, "the matrix is packed for {}, not {}", b.isa().name(), isa.name());
    assert!(panels.end <= b.panels(), "panels {panels:?} of a matrix of {}", b.panels());
    let plain = Gemm { a, a_ld, rows, b, panels, out, finish: Then(Identity) };
    match epilogue {
        Epilogue::Bias => isa.run(plain),
        Epilogue::BiasTimes => isa.run(plain.with(Times)),
        Epilogue::BiasActivation(Activation::Gelu) => isa.run(plain.with(Then(Gelu))),
        Epilogue::BiasActivation(Activation::GeluTanh) => isa.run(plain.with(Then(GeluTanh))),
        Epilogue::BiasActivation(Activation::Relu) => isa.run(plain.with(Then(Relu))),
        Epilogue::BiasActivation(Activation::Silu) => isa.run(plain.with(Then(Silu))),
        Epilogue::BiasActivation(Activation::Tanh) => isa.run(plain.with(Then(Tanh))),
    }
}

/// No activation.
#[derive(Clone, Copy)]
struct Identity;

impl Function for Identity {
    #[inline(always)]
    fn apply<S: Simd>(self, _simd: S, x: S::F32) -> S::F32 {
        x
    }
}

/// What becomes of a panel's product. Implementations must be `#[inline(always)]`.
trait Finish: Copy {
    /// The tile's epilogue, with the panel's biases.
    fn with_bias(self, bias: *const f32) -> impl TileEpilogue;
}

/// Bias, then a function.
#[derive(Clone, Copy)]
struct Then<F>(F);

impl<F: Function> Finish for Then<F> {
    #[inline(always)]
    fn with_bias(self, bias: *const f32) -> impl TileEpilogue {
        BiasThen { bias, function: self.0 }
    }
}

/// Bias, then a product with what is there.
#[derive(Clone, Copy)]
struct Times;

impl Finish for Times {
    #[inline(always)]
    fn with_bias(self, bias: *const f32) -> impl TileEpilogue {
        BiasTimes { bias }
    }
}

/// Rows of A are taken in blocks of at most this many bytes, which stay in the second-level cache (1 to 2 MiB on servers)
/// while the panels of B pass by.
const A_BLOCK_BYTES: usize = 512 << 10;

struct Gemm<'a, F> {
    a: *const f32,
    a_ld: usize,
    rows: usize,
    b: &'a PackedMatrix,
    panels: Range<usize>,
    out: PanelOutput,
    finish: F,
}

impl<'a> Gemm<'a, Then<Identity>> {
    fn with<F>(self, finish: F) -> Gemm<'a, F> {
        Gemm { a: self.a, a_ld: self.a_ld, rows: self.rows, b: self.b, panels: self.panels, out: self.out, finish }
    }
}

impl<F: Finish> SimdOp for Gemm<'_, F> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let depth = self.b.k();
        let block_rows = (A_BLOCK_BYTES / size_of::<f32>() / depth.max(1)).max(S::ROWS);
        let mut blocks = RowTiles::new(self.rows, block_rows);
        while let Some((block, rows)) = blocks.next() {
            for p in self.panels.clone() {
                let (b, bias) = self.b.panel(p);
                let epilogue = self.finish.with_bias(bias.as_ptr());
                let mut tiles = RowTiles::new(rows, S::ROWS);
                while let Some((row, height)) = tiles.next() {
                    let row = block + row;
                    // Within the memory that the caller of `gemm` promises.
                    let a = self.a.wrapping_add(row * self.a_ld);
                    let out = self.out.ptr.wrapping_add(p * self.out.panel_stride + row * self.out.row_stride);
                    simd.call_rows(
                        height,
                        Tile { a, a_ld: self.a_ld, depth, b: b.as_ptr(), out, out_ld: self.out.row_stride, epilogue },
                    );
                }
            }
        }
    }
}
