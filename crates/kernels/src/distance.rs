//! Products and distances of two vectors, and normalisation of one.
//!
//! Sums run in four accumulators of a vector each, in an order that is fixed for the instruction set and the length.

use crate::isa::Isa;
use crate::simd::{Simd, SimdOp};

/// Norms below this count as this, as in PyTorch's `F.normalize`: the zero vector stays zero.
pub const MIN_NORM: f32 = 1e-12;

/// Greatest error of [`dot`], relative to the sum of the products' magnitudes, up to some thousands of dimensions.
pub const DOT_MAX_ERROR: f64 = 3e-7;

const SUMS: usize = 4;

/// The dot product.
///
/// # Panics
/// If the lengths differ.
pub fn dot(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    check(a, b);
    isa.run(Accumulate { a, b, term: Product })
}

/// The square of the Euclidean distance.
///
/// # Panics
/// If the lengths differ.
pub fn squared_l2(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    check(a, b);
    isa.run(Accumulate { a, b, term: SquaredDifference })
}

/// The cosine of the angle between the vectors; 0 if one of them is the zero vector.
///
/// # Panics
/// If the lengths differ.
pub fn cosine(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    let (norm_a, norm_b) = (norm(isa, a), norm(isa, b));
    dot(isa, a, b) / norm_a / norm_b
}

/// Divides a vector by its Euclidean norm, or by [`MIN_NORM`] if that is greater. NaN stays NaN.
pub fn l2_normalize(isa: Isa, values: &mut [f32]) {
    let norm = norm(isa, values);
    isa.run(Divide { values, divisor: norm });
}

/// The Euclidean norm, at least [`MIN_NORM`], or NaN.
fn norm(isa: Isa, values: &[f32]) -> f32 {
    let norm = dot(isa, values, values).sqrt();
    // Not `f32::max`, which would turn NaN into the minimum.
    if norm < MIN_NORM { MIN_NORM } else { norm }
}

fn check(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len(), "vectors of different lengths cannot be compared");
}

/// What each pair of components adds to the sum. Implementations must be `#[inline(always)]`, and 0 for a pair of zeros.
trait Term: Copy {
    fn add_to<S: Simd>(self, simd: S, sum: S::F32, a: S::F32, b: S::F32) -> S::F32;
}

#[derive(Clone, Copy)]
struct Product;
#[derive(Clone, Copy)]
struct SquaredDifference;

impl Term for Product {
    #[inline(always)]
    fn add_to<S: Simd>(self, simd: S, sum: S::F32, a: S::F32, b: S::F32) -> S::F32 {
        simd.mul_add(a, b, sum)
    }
}

impl Term for SquaredDifference {
    #[inline(always)]
    fn add_to<S: Simd>(self, simd: S, sum: S::F32, a: S::F32, b: S::F32) -> S::F32 {
        let difference = simd.sub(a, b);
        simd.mul_add(difference, difference, sum)
    }
}

struct Accumulate<'a, T> {
    a: &'a [f32],
    b: &'a [f32],
    term: T,
}

impl<T: Term> SimdOp for Accumulate<'_, T> {
    type Output = f32;

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) -> f32 {
        let mut sums = [simd.splat(0.0); SUMS];
        let mut a = self.a.chunks_exact(SUMS * S::LANES);
        let mut b = self.b.chunks_exact(SUMS * S::LANES);
        for (a, b) in (&mut a).zip(&mut b) {
            for i in 0..SUMS {
                let (a, b) = (simd.read(&a[i * S::LANES..]), simd.read(&b[i * S::LANES..]));
                sums[i] = self.term.add_to(simd, sums[i], a, b);
            }
        }
        for (a, b) in a.remainder().chunks(S::LANES).zip(b.remainder().chunks(S::LANES)) {
            sums[0] = self.term.add_to(simd, sums[0], simd.read_part(a), simd.read_part(b));
        }
        simd.reduce_add(simd.add(simd.add(sums[0], sums[1]), simd.add(sums[2], sums[3])))
    }
}

struct Divide<'a> {
    values: &'a mut [f32],
    divisor: f32,
}

impl SimdOp for Divide<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let divisor = simd.splat(self.divisor);
        let mut chunks = self.values.chunks_exact_mut(S::LANES);
        for chunk in &mut chunks {
            let value = simd.div(simd.read(chunk), divisor);
            simd.write(chunk, value);
        }
        let tail = chunks.into_remainder();
        let value = simd.div(simd.read_part(tail), divisor);
        simd.write_part(tail, value);
    }
}
