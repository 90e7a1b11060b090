//! AVX2 with FMA: 8 lanes, 16 registers.

use crate::isa::Avx2;
use crate::simd::{Simd, SimdOp, TileOp, call_rows};
use std::arch::x86_64::*;

/// A method on vectors that is one intrinsic or a few.
macro_rules! intrinsic {
    ($name:ident($($arg:ident),*) $body:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: __m256),*) -> __m256 {
            // SAFETY: `self` exists only on a CPU with the features that `Avx2::detect` asks for.
            unsafe { $body }
        }
    };
}

/// Eight set lanes, then eight clear ones: a mask of the first `n` lanes starts at `8 - n`.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

impl Avx2 {
    /// A mask of the first `count` lanes, 0 to 8.
    #[inline(always)]
    fn first(self, count: usize) -> __m256i {
        let from = &MASKS[8 - count..][..8];
        // SAFETY: `self` proves the feature; eight values are read from a slice of eight.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }
}

impl Simd for Avx2 {
    type F32 = __m256;
    const LANES: usize = 8;
    const ROWS: usize = 6;

    #[inline(always)]
    fn call<Op: SimdOp>(self, op: Op) -> Op::Output {
        #[target_feature(enable = "avx2,fma")]
        #[inline(never)]
        fn enter<Op: SimdOp>(simd: Avx2, op: Op) -> Op::Output {
            op.eval(simd)
        }
        // SAFETY: `self` exists only on a CPU with these features.
        unsafe { enter(self, op) }
    }

    #[inline(always)]
    fn call_rows<Op: TileOp>(self, rows: usize, op: Op) {
        call_rows!(self, rows, op, 1 2 3 4 5 6)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: `self` proves the feature, the caller the memory.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, count: usize) -> __m256 {
        // SAFETY: `self` proves the feature, the caller the memory of the lanes in the mask; others are not accessed.
        unsafe { _mm256_maskload_ps(from, self.first(count)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: __m256) {
        // SAFETY: `self` proves the feature, the caller the memory.
        unsafe { _mm256_storeu_ps(to, value) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, value: __m256, count: usize) {
        // SAFETY: `self` proves the feature, the caller the memory of the lanes in the mask; others are not accessed.
        unsafe { _mm256_maskstore_ps(to, self.first(count), value) }
    }

    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_ld: usize, rows: usize, to: *mut f32, to_ld: usize) {
        let mut block = [self.splat(0.0); 8];
        for (r, row) in block.iter_mut().enumerate() {
            if r < rows {
                // SAFETY: the caller promises `rows` rows of 8 values.
                *row = unsafe { self.load(from.add(r * from_ld)) };
            }
        }
        // SAFETY: `self` proves the features.
        let block = unsafe { transposed(block) };
        for (c, column) in block.into_iter().enumerate() {
            // SAFETY: the caller promises 8 rows of 8 values.
            unsafe { self.store(to.add(c * to_ld), column) };
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        // SAFETY: a prefetch of any address is allowed and faults never.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn first_lanes(self, value: __m256, count: usize, other: __m256) -> __m256 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_blendv_ps(other, value, _mm256_castsi256_ps(self.first(count))) }
    }

    intrinsic!(add(a, b) _mm256_add_ps(a, b));
    intrinsic!(sub(a, b) _mm256_sub_ps(a, b));
    intrinsic!(mul(a, b) _mm256_mul_ps(a, b));
    intrinsic!(div(a, b) _mm256_div_ps(a, b));
    intrinsic!(mul_add(a, b, c) _mm256_fmadd_ps(a, b, c));
    intrinsic!(min(a, b) _mm256_min_ps(a, b));
    intrinsic!(max(a, b) _mm256_max_ps(a, b));
    intrinsic!(max_propagating(a, b) _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a)));
    intrinsic!(abs(a) _mm256_andnot_ps(_mm256_set1_ps(-0.0), a));
    intrinsic!(copysign(a, sign) {
        let bit = _mm256_set1_ps(-0.0);
        _mm256_or_ps(_mm256_andnot_ps(bit, a), _mm256_and_ps(bit, sign))
    });
    intrinsic!(low_bits_to_exponent(a) _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(a))));

    #[inline(always)]
    fn lookup16(self, table: &[f32; 16], index: __m256) -> __m256 {
        // SAFETY: `self` proves the feature; the table is two vectors long.
        unsafe {
            let bits = _mm256_castps_si256(index);
            let low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr()), bits);
            let high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr().add(8)), bits);
            // Bit 3 of the index says which half; the blend looks at bit 31.
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(bits)))
        }
    }

    #[inline(always)]
    fn reduce_add(self, a: __m256) -> f32 {
        // SAFETY: `self` proves the feature.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn reduce_max(self, a: __m256) -> f32 {
        // SAFETY: `self` proves the feature.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
}

/// The transpose of an 8 x 8 block: pairs within 4 x 4 blocks first, then the blocks themselves.
///
/// # Safety
/// The CPU must have AVX.
#[inline(always)]
unsafe fn transposed(rows: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: register arithmetic only; the caller promises the feature.
    unsafe {
        let zero = _mm256_setzero_ps();
        let (mut pairs, mut fours, mut out) = ([zero; 8], [zero; 8], [zero; 8]);
        for i in 0..4 {
            pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
        }
        for i in [0, 4] {
            for j in 0..2 {
                fours[i + 2 * j] = _mm256_shuffle_ps::<0x44>(pairs[i + j], pairs[i + j + 2]);
                fours[i + 2 * j + 1] = _mm256_shuffle_ps::<0xee>(pairs[i + j], pairs[i + j + 2]);
            }
        }
        for c in 0..4 {
            out[c] = _mm256_permute2f128_ps::<0x20>(fours[c], fours[4 + c]);
            out[4 + c] = _mm256_permute2f128_ps::<0x31>(fours[c], fours[4 + c]);
        }
        out
    }
}
