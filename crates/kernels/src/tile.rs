//! The inner loop of every matrix product: a tile of C stays in registers over the whole of k.
//!
//! `C[rows, PANEL] = epilogue(A[rows, depth] * B[depth, PANEL])`, where A is row-major with any stride and B is a panel:
//! `depth` rows of PANEL values without gaps. A step of k loads two vectors of B, broadcasts one value of A a row, and
//! does two multiply-adds a row.
//!
//! Invariant: an element of C is one chain of multiply-adds over k in order, then its epilogue. It does not depend on
//! the height of the tile, so rows may be cut into tiles in any way.

use crate::activation::Function;
use crate::simd::{Simd, TileOp};

/// How many steps of k ahead of its use B is asked for. It covers the latency of the outer caches: for a dozen rows and
/// weights that come from the third level, it was measured to pay 25 to 60 %, and to cost nothing elsewhere.
const PREFETCH_STEPS: usize = 48;

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// What happens to a tile of the product on its way to memory. Implementations must be `#[inline(always)]`.
pub(crate) trait TileEpilogue: Copy {
    /// Writes a tile. Row `i` goes to `out + i * out_ld`.
    ///
    /// # Safety
    /// `out` must be valid for writes of `ROWS` rows of `S::PANEL` values, and the epilogue's own pointers for reads.
    unsafe fn store<S: Simd, const ROWS: usize>(
        self,
        simd: S,
        tile: &[[S::F32; 2]; ROWS],
        out: *mut f32,
        out_ld: usize,
    );
}

/// One register tile. The pointers' validity is promised by whoever builds it.
#[derive(Clone, Copy)]
pub(crate) struct Tile<E> {
    /// First row of A; `a_ld` values from row to row; `depth` values of each are read.
    pub a: *const f32,
    pub a_ld: usize,
    pub depth: usize,
    /// `depth * PANEL` values.
    pub b: *const f32,
    /// First row of C; `out_ld` values from row to row; `PANEL` values of each are written.
    pub out: *mut f32,
    pub out_ld: usize,
    pub epilogue: E,
}

impl<E: TileEpilogue> TileOp for Tile<E> {
    #[inline(always)]
    fn eval<S: Simd, const ROWS: usize>(self, simd: S) {
        let mut tile = [[simd.splat(0.0); 2]; ROWS];
        let mut b = self.b;
        for k in 0..self.depth {
            // SAFETY: the builder promises `depth` rows of B of two vectors, and `depth` values in each row of A.
            unsafe {
                let b0 = simd.load(b);
                let b1 = simd.load(b.add(S::LANES));
                for line in 0..(S::PANEL * size_of::<f32>()).div_ceil(CACHE_LINE) {
                    simd.prefetch(b.wrapping_add(PREFETCH_STEPS * S::PANEL + line * CACHE_LINE / size_of::<f32>()));
                }
                b = b.add(S::PANEL);
                for (i, row) in tile.iter_mut().enumerate() {
                    let a = simd.splat(*self.a.add(i * self.a_ld + k));
                    row[0] = simd.mul_add(a, b0, row[0]);
                    row[1] = simd.mul_add(a, b1, row[1]);
                }
            }
        }
        // SAFETY: the builder promises `ROWS` rows of C.
        unsafe { self.epilogue.store(simd, &tile, self.out, self.out_ld) };
    }
}

/// Cuts `rows` rows into the fewest tiles of at most `tallest` rows, as even as can be: 13 rows are 7 + 6, not 12 + 1.
#[derive(Clone, Copy)]
pub(crate) struct RowTiles {
    row: usize,
    height: usize,
    /// Tiles still to come that have one row more than `height`.
    taller: usize,
    rows: usize,
}

impl RowTiles {
    #[inline(always)]
    pub fn new(rows: usize, tallest: usize) -> RowTiles {
        let tiles = rows.div_ceil(tallest).max(1);
        RowTiles { row: 0, height: rows / tiles, taller: rows % tiles, rows }
    }

    /// The next tile's first row and height.
    #[inline(always)]
    pub fn next(&mut self) -> Option<(usize, usize)> {
        if self.row == self.rows {
            return None;
        }
        let height = self.height + usize::from(self.taller > 0);
        self.taller = self.taller.saturating_sub(1);
        let row = self.row;
        self.row += height;
        Some((row, height))
    }
}

/// C = the product.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl TileEpilogue for Plain {
    #[inline(always)]
    unsafe fn store<S: Simd, const ROWS: usize>(
        self,
        simd: S,
        tile: &[[S::F32; 2]; ROWS],
        out: *mut f32,
        out_ld: usize,
    ) {
        for (i, row) in tile.iter().enumerate() {
            // SAFETY: the caller promises `ROWS` rows of C.
            unsafe {
                simd.store(out.add(i * out_ld), row[0]);
                simd.store(out.add(i * out_ld + S::LANES), row[1]);
            }
        }
    }
}

/// C = the product, each row times a factor of its own.
#[derive(Clone, Copy)]
pub(crate) struct ScaleRows {
    /// A factor per row of the tile.
    pub factors: *const f32,
}

impl TileEpilogue for ScaleRows {
    #[inline(always)]
    unsafe fn store<S: Simd, const ROWS: usize>(
        self,
        simd: S,
        tile: &[[S::F32; 2]; ROWS],
        out: *mut f32,
        out_ld: usize,
    ) {
        for (i, row) in tile.iter().enumerate() {
            // SAFETY: the caller promises `ROWS` rows of C, the builder `ROWS` factors.
            unsafe {
                let factor = simd.splat(*self.factors.add(i));
                simd.store(out.add(i * out_ld), simd.mul(row[0], factor));
                simd.store(out.add(i * out_ld + S::LANES), simd.mul(row[1], factor));
            }
        }
    }
}

/// C = function(product + bias).
#[derive(Clone, Copy)]
pub(crate) struct BiasThen<F> {
    /// `PANEL` values.
    pub bias: *const f32,
    pub function: F,
}

impl<F: Function> TileEpilogue for BiasThen<F> {
    #[inline(always)]
    unsafe fn store<S: Simd, const ROWS: usize>(
        self,
        simd: S,
        tile: &[[S::F32; 2]; ROWS],
        out: *mut f32,
        out_ld: usize,
    ) {
        // SAFETY: the builder promises a panel of biases.
        let bias = unsafe { [simd.load(self.bias), simd.load(self.bias.add(S::LANES))] };
        for (i, row) in tile.iter().enumerate() {
            // SAFETY: the caller promises `ROWS` rows of C.
            unsafe {
                simd.store(out.add(i * out_ld), self.function.apply(simd, simd.add(row[0], bias[0])));
                simd.store(out.add(i * out_ld + S::LANES), self.function.apply(simd, simd.add(row[1], bias[1])));
            }
        }
    }
}

/// C = (product + bias) * C.
#[derive(Clone, Copy)]
pub(crate) struct BiasTimes {
    /// `PANEL` values.
    pub bias: *const f32,
}

impl TileEpilogue for BiasTimes {
    #[inline(always)]
    unsafe fn store<S: Simd, const ROWS: usize>(
        self,
        simd: S,
        tile: &[[S::F32; 2]; ROWS],
        out: *mut f32,
        out_ld: usize,
    ) {
        // SAFETY: the builder promises a panel of biases.
        let bias = unsafe { [simd.load(self.bias), simd.load(self.bias.add(S::LANES))] };
        for (i, row) in tile.iter().enumerate() {
            // SAFETY: the caller promises `ROWS` rows of C, which the builder of this epilogue has written before.
            unsafe {
                let out = out.add(i * out_ld);
                simd.store(out, simd.mul(simd.add(row[0], bias[0]), simd.load(out)));
                let out = out.add(S::LANES);
                simd.store(out, simd.mul(simd.add(row[1], bias[1]), simd.load(out)));
            }
        }
    }
}
