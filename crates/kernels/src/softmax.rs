//! Softmax of a slice.

use crate::isa::Isa;
use crate::math::exp;
use crate::simd::{Simd, SimdOp};

/// Greatest absolute error of a component of [`softmax`], for up to some thousands of them.
pub const SOFTMAX_MAX_ABSOLUTE_ERROR: f64 = 3e-7;

/// `values[i] = e^values[i] / sum_j e^values[j]`, computed from the differences to the greatest value so that nothing
/// overflows.
///
/// Negative infinity becomes 0. A NaN, a positive infinity, or only negative infinities give NaN everywhere, as in
/// PyTorch. An empty slice is left alone.
pub fn softmax(isa: Isa, values: &mut [f32]) {
    if !values.is_empty() {
        isa.run(Softmax { values });
    }
}

struct Softmax<'a> {
    values: &'a mut [f32],
}

impl SimdOp for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        // The greatest may ignore a NaN; the exponential of the NaN is NaN all the same, and so is the sum.
        let mut greatest = simd.splat(f32::NEG_INFINITY);
        let chunks = self.values.chunks_exact(S::LANES);
        let tail = chunks.remainder();
        for chunk in chunks {
            greatest = simd.max(greatest, simd.read(chunk));
        }
        greatest = simd.max(greatest, simd.first_lanes(simd.read_part(tail), tail.len(), greatest));
        let greatest = simd.splat(simd.reduce_max(greatest));

        let mut sum = simd.splat(0.0);
        let mut chunks = self.values.chunks_exact_mut(S::LANES);
        for chunk in &mut chunks {
            let exponential = exp(simd, simd.sub(simd.read(chunk), greatest));
            simd.write(chunk, exponential);
            sum = simd.add(sum, exponential);
        }
        let tail = chunks.into_remainder();
        let exponential = exp(simd, simd.sub(simd.read_part(tail), greatest));
        simd.write_part(tail, exponential);
        sum = simd.add(sum, simd.first_lanes(exponential, tail.len(), simd.splat(0.0)));
        let sum = simd.splat(simd.reduce_add(sum));

        let mut chunks = self.values.chunks_exact_mut(S::LANES);
        for chunk in &mut chunks {
            let value = simd.div(simd.read(chunk), sum);
            simd.write(chunk, value);
        }
        let tail = chunks.into_remainder();
        let value = simd.div(simd.read_part(tail), sum);
        simd.write_part(tail, value);
    }
}
