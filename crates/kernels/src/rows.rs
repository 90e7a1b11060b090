//! Sums of rows: the embedding step adds a token's word, position and type rows before it normalises.

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
