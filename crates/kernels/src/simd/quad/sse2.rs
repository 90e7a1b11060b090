//! SSE2 is part of x86-64. There is no fused multiply-add.

use super::{from_array, to_array};
use std::arch::x86_64::*;

pub(crate) type Quad = __m128;

/// A function of vectors that is one intrinsic or a few.
macro_rules! intrinsic {
    ($name:ident($($arg:ident),*) $body:expr) => {
        #[inline(always)]
        pub(crate) fn $name($($arg: Quad),*) -> Quad {
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe { $body }
        }
    };
}

intrinsic!(add(a, b) _mm_add_ps(a, b));
intrinsic!(sub(a, b) _mm_sub_ps(a, b));
intrinsic!(mul(a, b) _mm_mul_ps(a, b));
intrinsic!(div(a, b) _mm_div_ps(a, b));
intrinsic!(mul_add(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c));
intrinsic!(min(a, b) _mm_min_ps(a, b));
intrinsic!(max(a, b) _mm_max_ps(a, b));
intrinsic!(max_propagating(a, b) {
    let nan = _mm_cmpunord_ps(a, a);
    _mm_or_ps(_mm_and_ps(nan, a), _mm_andnot_ps(nan, _mm_max_ps(a, b)))
});
intrinsic!(abs(a) _mm_andnot_ps(_mm_set1_ps(-0.0), a));
intrinsic!(copysign(a, sign) {
    let bit = _mm_set1_ps(-0.0);
    _mm_or_ps(_mm_andnot_ps(bit, a), _mm_and_ps(bit, sign))
});
intrinsic!(low_bits_to_exponent(a) _mm_castsi128_ps(_mm_slli_epi32::<23>(_mm_castps_si128(a))));

#[inline(always)]
pub(crate) fn splat(value: f32) -> Quad {
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe { _mm_set1_ps(value) }
}

#[inline(always)]
pub(crate) fn lookup16(table: &[f32; 16], index: Quad) -> Quad {
    // SSE2 has no shuffle by a variable.
    let mut out = to_array(index);
    for value in &mut out {
        *value = table[(value.to_bits() & 15) as usize];
    }
    from_array(out)
}

#[inline(always)]
pub(crate) fn reduce_add(a: Quad) -> f32 {
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe {
        let two = _mm_add_ps(a, _mm_movehl_ps(a, a));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

#[inline(always)]
pub(crate) fn reduce_max(a: Quad) -> f32 {
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe {
        let two = _mm_max_ps(a, _mm_movehl_ps(a, a));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}
