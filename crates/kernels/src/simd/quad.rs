//! Four f32 values in the vector register that every CPU of the compilation target has: SSE2 on x86-64, NEON on aarch64,
//! and arrays elsewhere. The compiler does turn arrays into vectors, but only where it finds them.
//!
//! Every variant has the same functions, with the meaning that [`Simd`](crate::simd::Simd) gives them.

#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) mod array;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use array::*;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::*;

/// The values of a vector.
#[inline(always)]
pub(crate) fn to_array(a: Quad) -> [f32; 4] {
    // SAFETY: a vector of four f32 values has the layout of an array of them.
    unsafe { std::mem::transmute::<Quad, [f32; 4]>(a) }
}

/// A vector of four values.
#[inline(always)]
pub(crate) fn from_array(a: [f32; 4]) -> Quad {
    // SAFETY: as above.
    unsafe { std::mem::transmute::<[f32; 4], Quad>(a) }
}
