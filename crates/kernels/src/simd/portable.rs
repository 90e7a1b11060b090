//! Plain Rust on small arrays: what every target can run, and what ARM runs.
//!
//! The arrays are as long as the target's baseline registers make worthwhile: one SSE2 register on x86-64 (16
//! registers, so the 6 x 8 tile fills them), two NEON registers on aarch64 (32 registers, a 6 x 16 tile).

use crate::isa::Portable;
use crate::simd::{Simd, SimdOp, TileOp, call_rows};

const LANES: usize = if cfg!(target_arch = "aarch64") { 8 } else { 4 };

/// Whether the target multiplies and adds in one instruction. Without it `f32::mul_add` would be a library call.
const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// A method that does the same to every lane.
macro_rules! lanewise {
    ($name:ident($($arg:ident),*) $body:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: [f32; LANES]),*) -> [f32; LANES] {
            let mut out = [0.0; LANES];
            for (i, out) in out.iter_mut().enumerate() {
                $(let $arg = $arg[i];)*
                *out = $body;
            }
            out
        }
    };
}

impl Simd for Portable {
    type F32 = [f32; LANES];
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
    fn splat(self, value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [f32; LANES] {
        // SAFETY: the caller promises the memory; an array is aligned as its elements are.
        unsafe { from.cast::<[f32; LANES]>().read() }
    }

    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, count: usize) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        for (i, out) in out.iter_mut().enumerate() {
            if i < count {
                // SAFETY: the caller promises `count` values.
                *out = unsafe { from.add(i).read() };
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, value: [f32; LANES]) {
        // SAFETY: the caller promises the memory; an array is aligned as its elements are.
        unsafe { to.cast::<[f32; LANES]>().write(value) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, value: [f32; LANES], count: usize) {
        for (i, value) in value.into_iter().enumerate() {
            if i < count {
                // SAFETY: the caller promises `count` values.
                unsafe { to.add(i).write(value) };
            }
        }
    }

    #[inline(always)]
    unsafe fn transpose(
        self,
        from: *const f32,
        from_ld: usize,
        rows: usize,
        to: *mut f32,
        to_ld: usize,
    ) {
        let mut block = [[0.0; LANES]; LANES];
        for (r, row) in block.iter_mut().enumerate() {
            if r < rows {
                // SAFETY: the caller promises `rows` rows of `LANES` values.
                *row = unsafe { self.load(from.add(r * from_ld)) };
            }
        }
        let mut columns = [[0.0; LANES]; LANES];
        for (r, row) in block.iter().enumerate() {
            for (c, value) in row.iter().enumerate() {
                columns[c][r] = *value;
            }
        }
        for (c, column) in columns.into_iter().enumerate() {
            // SAFETY: the caller promises `LANES` rows of `LANES` values.
            unsafe { self.store(to.add(c * to_ld), column) };
        }
    }

    #[inline(always)]
    fn prefetch(self, _at: *const f32) {}

    #[inline(always)]
    fn first_lanes(self, value: [f32; LANES], count: usize, other: [f32; LANES]) -> [f32; LANES] {
        let mut out = other;
        for (i, out) in out.iter_mut().enumerate() {
            if i < count {
                *out = value[i];
            }
        }
        out
    }

    lanewise!(add(a, b) a + b);
    lanewise!(sub(a, b) a - b);
    lanewise!(mul(a, b) a * b);
    lanewise!(div(a, b) a / b);
    lanewise!(mul_add(a, b, c) if FUSED { a.mul_add(b, c) } else { a * b + c });
    lanewise!(min(a, b) if a < b { a } else { b });
    lanewise!(max(a, b) if a > b { a } else { b });
    lanewise!(max_propagating(a, b) if a.is_nan() || a > b { a } else { b });
    lanewise!(abs(a) a.abs());
    lanewise!(copysign(a, sign) a.copysign(sign));
    lanewise!(low_bits_to_exponent(a) f32::from_bits(a.to_bits() << 23));

    #[inline(always)]
    fn lookup16(self, table: &[f32; 16], index: [f32; LANES]) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        for (i, out) in out.iter_mut().enumerate() {
            *out = table[(index[i].to_bits() & 15) as usize];
        }
        out
    }

    #[inline(always)]
    fn reduce_add(self, a: [f32; LANES]) -> f32 {
        let mut sums = a;
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                sums[i] += sums[i + width];
            }
            width /= 2;
        }
        sums[0]
    }

    #[inline(always)]
    fn reduce_max(self, a: [f32; LANES]) -> f32 {
        let mut max = a[0];
        for value in &a[1..] {
            max = if max > *value { max } else { *value };
        }
        max
    }
}
