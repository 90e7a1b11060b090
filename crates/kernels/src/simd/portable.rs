//! The vectors that every CPU of the compilation target has, [four values each](super::quad).
//!
//! As many of them side by side as fill the registers with a tile: one on x86-64 (16 registers, a 6 x 8 tile), two on
//! aarch64 (32 registers, a 6 x 16 tile). This is what ARM runs.

use crate::isa::Portable;
use crate::simd::quad::{self, Quad, from_array, to_array};
use crate::simd::{Simd, SimdOp, TileOp, call_rows};

const QUADS: usize = if cfg!(target_arch = "aarch64") { 2 } else { 1 };
const LANES: usize = 4 * QUADS;

/// A method that does the same to every register.
macro_rules! each {
    ($name:ident($first:ident $(, $arg:ident)*)) => {
        #[inline(always)]
        fn $name(self, $first: [Quad; QUADS] $(, $arg: [Quad; QUADS])*) -> [Quad; QUADS] {
            let mut out = $first;
            for i in 0..QUADS {
                out[i] = quad::$name($first[i] $(, $arg[i])*);
            }
            out
        }
    };
}

impl Simd for Portable {
    type F32 = [Quad; QUADS];
    const LANES: usize = LANES;
    const ROWS: usize = 6;

    #[inline(always)]
    fn call<Op: SimdOp>(self, op: Op) -> Op::Output {
        #[inline(never)]
        fn enter<Op: SimdOp>(simd: Portable, op: Op) -> Op::Output {
            op.eval(simd)
        }
        enter(self, op)
    }

    #[inline(always)]
    fn call_rows<Op: TileOp>(self, rows: usize, op: Op) {
        call_rows!(self, rows, op, 1 2 3 4 5 6)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [Quad; QUADS] {
        [quad::splat(value); QUADS]
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [Quad; QUADS] {
        // SAFETY: the caller promises the memory, of any alignment.
        unsafe { from.cast::<[Quad; QUADS]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, count: usize) -> [Quad; QUADS] {
        let mut out = [0.0; LANES];
        for (i, out) in out.iter_mut().enumerate() {
            if i < count {
                // SAFETY: the caller promises `count` values.
                *out = unsafe { from.add(i).read() };
            }
        }
        gathered(out)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: [Quad; QUADS]) {
        // SAFETY: the caller promises the memory, of any alignment.
        unsafe { to.cast::<[Quad; QUADS]>().write_unaligned(value) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, value: [Quad; QUADS], count: usize) {
        for (i, value) in lanes(value).into_iter().enumerate() {
            if i < count {
                // SAFETY: the caller promises `count` values.
                unsafe { to.add(i).write(value) };
            }
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_ld: usize, rows: usize, to: *mut f32, to_ld: usize) {
        let mut columns = [[0.0; LANES]; LANES];
        for r in 0..LANES {
            if r < rows {
                // SAFETY: the caller promises `rows` rows of `LANES` values.
                let row = lanes(unsafe { self.load(from.add(r * from_ld)) });
                for (column, value) in columns.iter_mut().zip(row) {
                    column[r] = value;
                }
            }
        }
        for (c, column) in columns.into_iter().enumerate() {
            // SAFETY: the caller promises `LANES` rows of `LANES` values.
            unsafe { self.store(to.add(c * to_ld), gathered(column)) };
        }
    }

    #[inline(always)]
    fn prefetch(self, _at: *const f32) {
        // Rust has no stable prefetch for ARM, and an x86 without AVX2 is too slow to need one.
    }

    #[inline(always)]
    fn first_lanes(self, value: [Quad; QUADS], count: usize, other: [Quad; QUADS]) -> [Quad; QUADS] {
        let mut out = lanes(other);
        for (i, (out, value)) in out.iter_mut().zip(lanes(value)).enumerate() {
            if i < count {
                *out = value;
            }
        }
        gathered(out)
    }

    each!(add(a, b));
    each!(sub(a, b));
    each!(mul(a, b));
    each!(div(a, b));
    each!(mul_add(a, b, c));
    each!(min(a, b));
    each!(max(a, b));
    each!(max_propagating(a, b));
    each!(abs(a));
    each!(copysign(a, sign));
    each!(low_bits_to_exponent(a));

    #[inline(always)]
    fn lookup16(self, table: &[f32; 16], index: [Quad; QUADS]) -> [Quad; QUADS] {
        let mut out = index;
        for quad in &mut out {
            *quad = quad::lookup16(table, *quad);
        }
        out
    }

    #[inline(always)]
    fn reduce_add(self, a: [Quad; QUADS]) -> f32 {
        let mut sum = a[0];
        for quad in &a[1..] {
            sum = quad::add(sum, *quad);
        }
        quad::reduce_add(sum)
    }

    #[inline(always)]
    fn reduce_max(self, a: [Quad; QUADS]) -> f32 {
        let mut max = a[0];
        for quad in &a[1..] {
            max = quad::max(max, *quad);
        }
        quad::reduce_max(max)
    }
}

/// The values of some registers.
#[inline(always)]
fn lanes(value: [Quad; QUADS]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for (out, quad) in out.chunks_exact_mut(4).zip(value) {
        out.copy_from_slice(&to_array(quad));
    }
    out
}

/// Values in registers.
#[inline(always)]
fn gathered(value: [f32; LANES]) -> [Quad; QUADS] {
    let mut out = [quad::splat(0.0); QUADS];
    for (out, value) in out.iter_mut().zip(value.chunks_exact(4)) {
        *out = from_array([value[0], value[1], value[2], value[3]]);
    }
    out
}
