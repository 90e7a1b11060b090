//! NEON is part of aarch64. A minimum or maximum is NaN if either operand is.

use std::arch::aarch64::*;

pub(crate) type Quad = float32x4_t;

/// A function of vectors that is one intrinsic or a few.
macro_rules! intrinsic {
    ($name:ident($($arg:ident),*) $body:expr) => {
        #[inline(always)]
        pub(crate) fn $name($($arg: Quad),*) -> Quad {
            // SAFETY: every aarch64 CPU that Rust's targets for simile allow has NEON.
            unsafe { $body }
        }
    };
}

intrinsic!(add(a, b) vaddq_f32(a, b));
intrinsic!(sub(a, b) vsubq_f32(a, b));
intrinsic!(mul(a, b) vmulq_f32(a, b));
intrinsic!(div(a, b) vdivq_f32(a, b));
intrinsic!(mul_add(a, b, c) vfmaq_f32(c, a, b));
intrinsic!(min(a, b) vminq_f32(a, b));
intrinsic!(max(a, b) vmaxq_f32(a, b));
intrinsic!(max_propagating(a, b) vmaxq_f32(a, b));
intrinsic!(abs(a) vabsq_f32(a));
intrinsic!(copysign(a, sign) vbslq_f32(vdupq_n_u32(1 << 31), sign, a));
intrinsic!(low_bits_to_exponent(a) vreinterpretq_f32_u32(vshlq_n_u32::<23>(vreinterpretq_u32_f32(a))));

#[inline(always)]
pub(crate) fn splat(value: f32) -> Quad {
    // SAFETY: NEON is part of aarch64.
    unsafe { vdupq_n_f32(value) }
}

#[inline(always)]
pub(crate) fn lookup16(table: &[f32; 16], index: Quad) -> Quad {
    // SAFETY: NEON is part of aarch64; the table is the 64 bytes that are read.
    unsafe {
        let bytes = vld1q_u8_x4(table.as_ptr().cast());
        // Byte b of a value is byte 4 i + b of the table.
        let index = vandq_u32(vreinterpretq_u32_f32(index), vdupq_n_u32(15));
        let index = vmlaq_u32(vdupq_n_u32(0x0302_0100), index, vdupq_n_u32(0x0404_0404));
        vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_u32(index)))
    }
}

#[inline(always)]
pub(crate) fn reduce_add(a: Quad) -> f32 {
    // SAFETY: NEON is part of aarch64.
    unsafe { vaddvq_f32(a) }
}

#[inline(always)]
pub(crate) fn reduce_max(a: Quad) -> f32 {
    // SAFETY: NEON is part of aarch64.
    unsafe { vmaxvq_f32(a) }
}
