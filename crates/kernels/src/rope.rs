//! Rotary position embedding of the heads of rows, halves paired: component i of a head turns with component
//! `i + head_dim / 2` (Su et al. 2021, in the layout of GPT-NeoX).
//!
//! Cost: one read and one write of the rows, and one read of a row's angles for all of its heads.

use crate::isa::Isa;
use crate::simd::{Simd, SimdOp};

/// Greatest error of a component, relative to the length of the pair that is turned.
pub const ROPE_MAX_ERROR: f64 = 1.8e-7;

/// Turns `heads` heads of each of `rows` rows: `(a, b)` becomes `(a cos - b sin, b cos + a sin)`.
///
/// Row r begins at `x + r * x_ld`, its heads are `head_ld` values apart. Row r of `angles` is the cosines of its
/// `head_dim / 2` angles, then the sines: `[rows][2][head_dim / 2]`. What lies between heads is not touched.
///
/// # Panics
/// If there are too few angles.
///
/// # Safety
/// `x` must be valid for reads and writes of `rows` rows of `heads` heads of `2 * half` values, and nothing else may access
/// them meanwhile.
#[allow(clippy::too_many_arguments, reason = "a matrix with two strides, and its shape")]
pub unsafe fn rotate_rows(
    isa: Isa,
    x: *mut f32,
    x_ld: usize,
    rows: usize,
    heads: usize,
    head_ld: usize,
    half: usize,
    angles: &[f32],
) {
    assert!(angles.len() >= rows * 2 * half, "{} angles for {rows} rows of {half} pairs", angles.len());
    isa.run(Rotate { x, x_ld, rows, heads, head_ld, half, angles });
}

struct Rotate<'a> {
    x: *mut f32,
    x_ld: usize,
    rows: usize,
    heads: usize,
    head_ld: usize,
    half: usize,
    angles: &'a [f32],
}

impl SimdOp for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let half = self.half;
        let (whole, tail) = (half - half % S::LANES, half % S::LANES);
        for row in 0..self.rows {
            let (cos, sin) = self.angles[row * 2 * half..][..2 * half].split_at(half);
            for head in 0..self.heads {
                let first = self.x.wrapping_add(row * self.x_ld + head * self.head_ld);
                let second = first.wrapping_add(half);
                for at in (0..whole).step_by(S::LANES) {
                    // SAFETY: the caller of `rotate_rows` promises the heads; `at` and a vector are below `half`.
                    unsafe {
                        let (a, b) = (simd.load(first.add(at)), simd.load(second.add(at)));
                        let (a, b) = turn(simd, a, b, simd.read(&cos[at..]), simd.read(&sin[at..]));
                        simd.store(first.add(at), a);
                        simd.store(second.add(at), b);
                    }
                }
                if tail > 0 {
                    // SAFETY: as above; `whole` and `tail` values are `half`.
                    unsafe {
                        let (a, b) = (simd.load_part(first.add(whole), tail), simd.load_part(second.add(whole), tail));
                        let (a, b) = turn(simd, a, b, simd.read_part(&cos[whole..]), simd.read_part(&sin[whole..]));
                        simd.store_part(first.add(whole), a, tail);
                        simd.store_part(second.add(whole), b, tail);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn turn<S: Simd>(simd: S, a: S::F32, b: S::F32, cos: S::F32, sin: S::F32) -> (S::F32, S::F32) {
    let turned = simd.sub(simd.mul(a, cos), simd.mul(b, sin));
    (turned, simd.mul_add(b, cos, simd.mul(a, sin)))
}
