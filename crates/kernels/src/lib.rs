//! The arithmetic of simile on slices and matrices of f32, and the threads that do it. Knows no model and no text.
//!
//! - [`Isa`] says what to compute with. It is chosen at run time and handed to every operation.
//! - [`PackedMatrix`] and [`gemm()`]: linear layers, with bias and [`Activation`] in the epilogue.
//! - [`attention_head`] with its [`Mask`], [`rotate_rows`], [`layer_norm_rows`], [`rms_norm_rows`], [`sum_rows`],
//!   [`add_rows`], [`softmax()`]: what else an encoder layer needs.
//! - [`mean_pool`] and its kin, [`l2_normalize`], [`dot`], [`cosine`], [`squared_l2`]: what happens to its result.
//! - [`AlignedVec`]: memory for all of it. [`ThreadPool`] and [`Team`]: parallel regions.
//! - [`simd`]: how an operation is written once for every instruction set.
//!
//! Contract:
//! - **Deterministic.** On one instruction set the bytes of a result depend on its own operands only: not on how rows and
//!   panels are grouped, nor on the number of threads.
//! - **Accurate.** Each approximation has a public constant that bounds its error, verified by the tests.
//! - **Honest about NaN.** NaN in, NaN out, and in no other row.
//! - **Contained.** No operation touches memory outside what its arguments describe, not even to read it.

mod activation;
mod aligned;
mod attention;
mod distance;
mod gemm;
mod isa;
mod layer_norm;
mod mask;
mod math;
mod packed;
mod pooling;
mod rms_norm;
mod rope;
mod rows;
pub mod simd;
mod softmax;
#[cfg(test)]
mod tests;
mod threads;
mod tile;

pub use activation::{
    Activation, GELU_MAX_ABSOLUTE_ERROR, GELU_TANH_MAX_ERROR, SILU_MAX_ERROR, TANH_MAX_ABSOLUTE_ERROR, activate,
};
pub use aligned::{ALIGNMENT, AlignedVec, MAPPED_BYTES};
pub use attention::{ATTENTION_MAX_ERROR, Attention, AttentionScratch, attention_head, attention_weights};
pub use distance::{DOT_MAX_ERROR, MIN_NORM, cosine, dot, l2_normalize, squared_l2};
pub use gemm::{Epilogue, GEMM_MAX_ERROR, PanelOutput, gemm};
#[cfg(target_arch = "x86_64")]
pub use isa::{Avx2, Avx512};
pub use isa::{ISA_VARIABLE, Isa, IsaError, Portable};
pub use layer_norm::{LAYER_NORM_MAX_ABSOLUTE_ERROR, layer_norm_rows};
pub use mask::Mask;
pub use math::{EXP_MAX_RELATIVE_ERROR, EXP2_MAX_RELATIVE_ERROR};
pub use packed::PackedMatrix;
pub use pooling::{max_pool, mean_pool, mean_sqrt_len_pool, sum_pool, weighted_mean_pool};
pub use rms_norm::{RMS_NORM_MAX_ABSOLUTE_ERROR, rms_norm_rows};
pub use rope::{ROPE_MAX_ERROR, rotate_rows};
pub use rows::{add_rows, sum_rows};
pub use softmax::{SOFTMAX_MAX_ABSOLUTE_ERROR, softmax};
pub use threads::{SPIN, Team, ThreadPool};
