//! AVX-512: 16 lanes, 32 registers, masked loads and stores.

use crate::isa::Avx512;
use crate::simd::{Simd, SimdOp, TileOp, call_rows};
use std::arch::x86_64::*;

/// A method on vectors that is one intrinsic or a few.
macro_rules! intrinsic {
    ($name:ident($($arg:ident),*) $body:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: __m512),*) -> __m512 {
            // SAFETY: `self` exists only on a CPU with the features that `Avx512::detect` asks for.
            unsafe { $body }
        }
    };
}

/// A mask of the first `count` lanes, 0 to 16.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    debug_assert!(count <= 16);
    ((1u32 << count) - 1) as __mmask16
}

impl Simd for Avx512 {
    type F32 = __m512;
    const LANES: usize = 16;
    const ROWS: usize = 12;

    #[inline(always)]
    fn call<Op: SimdOp>(self, op: Op) -> Op::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        #[inline(never)]
        fn enter<Op: SimdOp>(simd: Avx512, op: Op) -> Op::Output {
            op.eval(simd)
        }
        // SAFETY: `self` exists only on a CPU with these features.
        unsafe { enter(self, op) }
    }

    #[inline(always)]
    fn call_rows<Op: TileOp>(self, rows: usize, op: Op) {
        call_rows!(self, rows, op, 1 2 3 4 5 6 7 8 9 10 11 12)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: `self` proves the feature, the caller the memory.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, count: usize) -> __m512 {
        // SAFETY: `self` proves the feature, the caller the memory of the lanes in the mask; others are not accessed.
        unsafe { _mm512_maskz_loadu_ps(first(count), from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: __m512) {
        // SAFETY: `self` proves the feature, the caller the memory.
        unsafe { _mm512_storeu_ps(to, value) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, value: __m512, count: usize) {
        // SAFETY: `self` proves the feature, the caller the memory of the lanes in the mask; others are not accessed.
        unsafe { _mm512_mask_storeu_ps(to, first(count), value) }
    }

    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_ld: usize, rows: usize, to: *mut f32, to_ld: usize) {
        let mut block = [self.splat(0.0); 16];
        for (r, row) in block.iter_mut().enumerate() {
            if r < rows {
                // SAFETY: the caller promises `rows` rows of 16 values.
                *row = unsafe { self.load(from.add(r * from_ld)) };
            }
        }
        // SAFETY: `self` proves the features.
        let block = unsafe { transposed(block) };
        for (c, column) in block.into_iter().enumerate() {
            // SAFETY: the caller promises 16 rows of 16 values.
            unsafe { self.store(to.add(c * to_ld), column) };
        }
    }

    #[inline(always)]
    fn prefetch(self, at: *const f32) {
        // SAFETY: a prefetch of any address is allowed and faults never.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn first_lanes(self, value: __m512, count: usize, other: __m512) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_mask_mov_ps(other, first(count), value) }
    }

    intrinsic!(add(a, b) _mm512_add_ps(a, b));
    intrinsic!(sub(a, b) _mm512_sub_ps(a, b));
    intrinsic!(mul(a, b) _mm512_mul_ps(a, b));
    intrinsic!(div(a, b) _mm512_div_ps(a, b));
    intrinsic!(mul_add(a, b, c) _mm512_fmadd_ps(a, b, c));
    intrinsic!(min(a, b) _mm512_min_ps(a, b));
    intrinsic!(max(a, b) _mm512_max_ps(a, b));
    intrinsic!(max_propagating(a, b) _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a), a));
    intrinsic!(abs(a) _mm512_abs_ps(a));
    intrinsic!(copysign(a, sign) {
        let bit = _mm512_set1_ps(-0.0);
        _mm512_or_ps(_mm512_andnot_ps(bit, a), _mm512_and_ps(bit, sign))
    });
    intrinsic!(low_bits_to_exponent(a) _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(a))));

    #[inline(always)]
    fn lookup16(self, table: &[f32; 16], index: __m512) -> __m512 {
        // SAFETY: `self` proves the feature; the table is a vector long.
        unsafe { _mm512_permutexvar_ps(_mm512_castps_si512(index), _mm512_loadu_ps(table.as_ptr())) }
    }

    #[inline(always)]
    fn reduce_add(self, a: __m512) -> f32 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_reduce_add_ps(a) }
    }

    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_reduce_max_ps(a) }
    }
}

/// The transpose of a 16 x 16 block: pairs within 4 x 4 blocks first, then the blocks themselves.
///
/// # Safety
/// The CPU must have AVX-512F.
#[inline(always)]
unsafe fn transposed(rows: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: register arithmetic only; the caller promises the feature.
    unsafe {
        let zero = _mm512_setzero_ps();
        let (mut pairs, mut fours, mut out) = ([zero; 16], [zero; 16], [zero; 16]);
        for i in 0..8 {
            pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
            pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
        }
        for i in [0, 4, 8, 12] {
            for j in 0..2 {
                let (low, high) = (_mm512_castps_pd(pairs[i + j]), _mm512_castps_pd(pairs[i + j + 2]));
                fours[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                fours[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
            }
        }
        for c in 0..4 {
            let even_top = _mm512_shuffle_f32x4::<0x88>(fours[c], fours[4 + c]);
            let odd_top = _mm512_shuffle_f32x4::<0xdd>(fours[c], fours[4 + c]);
            let even_bottom = _mm512_shuffle_f32x4::<0x88>(fours[8 + c], fours[12 + c]);
            let odd_bottom = _mm512_shuffle_f32x4::<0xdd>(fours[8 + c], fours[12 + c]);
            out[c] = _mm512_shuffle_f32x4::<0x88>(even_top, even_bottom);
            out[4 + c] = _mm512_shuffle_f32x4::<0x88>(odd_top, odd_bottom);
            out[8 + c] = _mm512_shuffle_f32x4::<0xdd>(even_top, even_bottom);
            out[12 + c] = _mm512_shuffle_f32x4::<0xdd>(odd_top, odd_bottom);
        }
        out
    }
}
