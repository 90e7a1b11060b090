//! Embedding tables that stay in the file: a row is read when a token needs it.

use std::ops::Range;
use std::sync::Arc;

use memmap2::Mmap;

use super::widen::{self, Stored};

/// A matrix of `rows` x `width` in a mapped file. f32 rows are used where they lie, 16-bit rows are widened one at a
/// time.
pub struct EmbeddingTable {
    map: Arc<Mmap>,
    range: Range<usize>,
    stored: Stored,
    rows: usize,
    width: usize,
    /// The bytes can be used as `[f32]` where they lie.
    direct: bool,
}

impl EmbeddingTable {
    pub(super) fn new(map: Arc<Mmap>, range: Range<usize>, stored: Stored, rows: usize, width: usize) -> Self {
        let aligned = (map.as_ptr() as usize + range.start).is_multiple_of(align_of::<f32>());
        let direct = cfg!(target_endian = "little") && stored == Stored::F32 && aligned;
        EmbeddingTable { map, range, stored, rows, width, direct }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `index`: where it lies when that is possible, else widened into `spare`, which holds at least `width`
    /// values.
    ///
    /// # Panics
    /// When `index` is not below [`rows`](Self::rows), or `spare` is too short.
    #[inline]
    pub fn row<'a>(&'a self, index: usize, spare: &'a mut [f32]) -> &'a [f32] {
        let bytes = self.bytes(index);
        if self.direct {
            // SAFETY: `direct` says that the range starts at a multiple of 4, and so does every row in it; any bits are
            // a valid f32; the slice borrows from the map, which `self` keeps alive.
            return unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<f32>(), self.width) };
        }
        let out = &mut spare[..self.width];
        widen::widen(self.stored, bytes, out);
        out
    }

    fn bytes(&self, row: usize) -> &[u8] {
        assert!(row < self.rows, "row {row} of a table of {}", self.rows);
        let size = self.width * self.stored.bytes();
        let start = self.range.start + row * size;
        &self.map[start..start + size]
    }

    /// Row-major index and value of the first NaN or infinity.
    pub(super) fn first_non_finite(&self) -> Option<(usize, f32)> {
        let mut spare = vec![0.0; self.width];
        (0..self.rows).find_map(|index| {
            let row = self.row(index, &mut spare);
            widen::first_non_finite(row).map(|at| (index * self.width + at, row[at]))
        })
    }
}
