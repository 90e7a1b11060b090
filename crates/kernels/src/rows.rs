//! Sums of rows: the embedding step adds a token's word, position and type rows before it normalises, and a layer that
//! norms its input adds its result to what came in.

use crate::isa::Isa;
use crate::simd::{Simd, SimdOp};

/// `out = rows[0] + rows[1] + ...`, added from left to right. No rows give zeros.
///
/// # Panics
/// If a row's length is not that of the result.
pub fn sum_rows(isa: Isa, rows: &[&[f32]], out: &mut [f32]) {
    for row in rows {
        assert_eq!(row.len(), out.len(), "rows that are added are equally long");
    }
    isa.run(SumRows { rows, out });
}

struct SumRows<'a> {
    rows: &'a [&'a [f32]],
    out: &'a mut [f32],
}

impl SimdOp for SumRows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let Some((first, others)) = self.rows.split_first() else {
            self.out.fill(0.0);
            return;
        };
        for (i, out) in self.out.chunks_mut(S::LANES).enumerate() {
            let range = i * S::LANES..i * S::LANES + out.len();
            if out.len() == S::LANES {
                let mut sum = simd.read(&first[range.clone()]);
                for row in others {
                    sum = simd.add(sum, simd.read(&row[range.clone()]));
                }
                simd.write(out, sum);
            } else {
                let mut sum = simd.read_part(&first[range.clone()]);
                for row in others {
                    sum = simd.add(sum, simd.read_part(&row[range.clone()]));
                }
                simd.write_part(out, sum);
            }
        }
    }
}

/// `out += x` for `rows` rows of `width` values; `*_ld` are the values from a row to the next.
///
/// # Safety
/// `x` must be valid for reads, and `out` for reads and writes, of `rows` rows of `width` values; they must not overlap, and
/// nothing else may write to them meanwhile.
pub unsafe fn add_rows(isa: Isa, x: *const f32, x_ld: usize, out: *mut f32, out_ld: usize, rows: usize, width: usize) {
    isa.run(AddRows { x, x_ld, out, out_ld, rows, width });
}

struct AddRows {
    x: *const f32,
    x_ld: usize,
    out: *mut f32,
    out_ld: usize,
    rows: usize,
    width: usize,
}

impl SimdOp for AddRows {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let (whole, tail) = (self.width - self.width % S::LANES, self.width % S::LANES);
        for row in 0..self.rows {
            let (x, out) = (self.x.wrapping_add(row * self.x_ld), self.out.wrapping_add(row * self.out_ld));
            for at in (0..whole).step_by(S::LANES) {
                // SAFETY: the caller of `add_rows` promises the rows.
                unsafe {
                    let sum = simd.add(simd.load(x.add(at)), simd.load(out.add(at)));
                    simd.store(out.add(at), sum);
                }
            }
            if tail > 0 {
                // SAFETY: as above.
                unsafe {
                    let sum = simd.load_part(out.add(whole), tail);
                    let sum = simd.add(simd.load_part(x.add(whole), tail), sum);
                    simd.store_part(out.add(whole), sum, tail);
                }
            }
        }
    }
}
