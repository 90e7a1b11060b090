//! Vectors of f32 as an operation sees them, whatever the instruction set.
//!
//! An operation is written once, generic over [`Simd`], as a struct of its arguments that implements [`SimdOp`].
//! [`Isa::run`](crate::Isa::run) evaluates it inside a function that has the target features of the chosen
//! instruction set switched on.
//!
//! Contract for everything generic over `Simd`: `#[inline(always)]` on every function and method, and no closures.
//! Code that is not inlined into the function with the target features is compiled without them: still correct, but
//! each intrinsic becomes a call.
//!
//! Invariants of the implementations:
//! - A value of a `Simd` type exists only on a processor that has its features, so its methods may be called freely.
//! - Loads and stores of a part of a vector touch no memory outside that part.
//! - [`Simd::min`] and [`Simd::max`] keep a NaN in their second operand; one in the first may be lost, as x86 loses it.
//!   Code that must not hide a NaN puts the data second and the constant first, or uses [`Simd::max_propagating`].

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod portable;
pub(crate) mod quad;

/// An operation that can be compiled for any instruction set.
pub trait SimdOp {
    /// What the operation returns.
    type Output;

    /// Evaluates the operation. Implementations must be `#[inline(always)]`.
    fn eval<S: Simd>(self, simd: S) -> Self::Output;
}

/// An operation on a register tile of `ROWS` rows, compiled once for each height so that each has its own loop with its
/// accumulators in registers.
pub trait TileOp {
    /// Evaluates the operation. Implementations must be `#[inline(always)]`.
    fn eval<S: Simd, const ROWS: usize>(self, simd: S);
}

/// A [`TileOp`] whose height is fixed is a [`SimdOp`].
pub(crate) struct WithRows<Op, const ROWS: usize>(pub(crate) Op);

impl<Op: TileOp, const ROWS: usize> SimdOp for WithRows<Op, ROWS> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        self.0.eval::<S, ROWS>(simd)
    }
}

/// `Simd::call_rows` for the heights listed.
macro_rules! call_rows {
    ($simd:expr, $rows:expr, $op:expr, $($height:literal)*) => {
        match $rows {
            $($height => $simd.call($crate::simd::WithRows::<_, $height>($op)),)*
            rows => unreachable!("a tile has 1 to {} rows, not {rows}", Self::ROWS),
        }
    };
}
pub(crate) use call_rows;

mod sealed {
    pub trait Sealed {}
    #[cfg(target_arch = "x86_64")]
    impl Sealed for crate::Avx512 {}
    #[cfg(target_arch = "x86_64")]
    impl Sealed for crate::Avx2 {}
    impl Sealed for crate::Portable {}
}

/// One instruction set: a vector type and what can be done with it. The value is a proof that this CPU has it.
pub trait Simd: sealed::Sealed + Copy + Send + Sync + 'static {
    /// A vector of [`LANES`](Simd::LANES) f32 values.
    type F32: Copy;

    /// Values in a vector.
    const LANES: usize;

    /// Rows of the tallest register tile: with two accumulators a row, the registers are full.
    const ROWS: usize;

    /// Width of a panel of a packed matrix, and of a register tile: two vectors.
    const PANEL: usize = 2 * Self::LANES;

    /// Evaluates `op` inside a function that has this instruction set's features.
    fn call<Op: SimdOp>(self, op: Op) -> Op::Output;

    /// Evaluates `op` for a tile of `rows` rows, 1 to [`ROWS`](Simd::ROWS).
    fn call_rows<Op: TileOp>(self, rows: usize, op: Op);

    /// A vector with `value` in every lane.
    fn splat(self, value: f32) -> Self::F32;

    /// Reads a vector.
    ///
    /// # Safety
    /// `from` must be valid for reads of [`LANES`](Simd::LANES) values; it need not be aligned to a vector.
    unsafe fn load(self, from: *const f32) -> Self::F32;

    /// Reads the first `count` lanes; the others are 0.
    ///
    /// # Safety
    /// `from` must be valid for reads of `count` values, and `count <= LANES`. Nothing behind them is read.
    unsafe fn load_part(self, from: *const f32, count: usize) -> Self::F32;

    /// Writes a vector.
    ///
    /// # Safety
    /// `to` must be valid for writes of [`LANES`](Simd::LANES) values; it need not be aligned to a vector.
    unsafe fn store(self, to: *mut f32, value: Self::F32);

    /// Writes the first `count` lanes.
    ///
    /// # Safety
    /// `to` must be valid for writes of `count` values, and `count <= LANES`. Nothing behind them is written.
    unsafe fn store_part(self, to: *mut f32, value: Self::F32, count: usize);

    /// Transposes a square block: `to[c * to_ld + r] = from[r * from_ld + c]` for r and c below `LANES`, where rows from
    /// `rows` on are not read and count as 0.
    ///
    /// # Safety
    /// `from` must be valid for reads of `rows` rows (at most `LANES`) of `LANES` values, `to` for writes of `LANES` rows
    /// of `LANES` values, and the two must not overlap.
    unsafe fn transpose(self, from: *const f32, from_ld: usize, rows: usize, to: *mut f32, to_ld: usize);

    /// Asks for the cache line at `at` soon. Any address is allowed.
    fn prefetch(self, at: *const f32);

    /// The first `count` lanes of `value`, and `other` in the lanes behind them.
    fn first_lanes(self, value: Self::F32, count: usize, other: Self::F32) -> Self::F32;

    /// `a + b`
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a - b`
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a * b`
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a / b`
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// `a * b + c`, rounded once where the instruction set can (AVX-512, AVX2, ARM) and twice where it cannot.
    fn mul_add(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;

    /// The lesser of `a` and `b`; NaN if `b` is; `b` or NaN if only `a` is.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// The greater of `a` and `b`; NaN if `b` is; `b` or NaN if only `a` is.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// The greater of `a` and `b`; NaN if either is NaN.
    fn max_propagating(self, a: Self::F32, b: Self::F32) -> Self::F32;

    /// The absolute value; NaN stays NaN.
    fn abs(self, a: Self::F32) -> Self::F32;

    /// The magnitude of `a` with the sign of `sign`.
    fn copysign(self, a: Self::F32, sign: Self::F32) -> Self::F32;

    /// The bits of each lane shifted left by 23, so that its lowest eight bits become a biased exponent.
    fn low_bits_to_exponent(self, a: Self::F32) -> Self::F32;

    /// `table[i]` where `i` is the lowest four bits of each lane of `index`.
    fn lookup16(self, table: &[f32; 16], index: Self::F32) -> Self::F32;

    /// The sum of the lanes, in an order that is fixed for the instruction set.
    fn reduce_add(self, a: Self::F32) -> f32;

    /// The greatest lane. With a NaN among the lanes the result is NaN or the greatest of some of the others.
    fn reduce_max(self, a: Self::F32) -> f32;

    /// Reads the first [`LANES`](Simd::LANES) values of a slice.
    ///
    /// # Panics
    /// If the slice is shorter than a vector.
    #[inline(always)]
    fn read(self, from: &[f32]) -> Self::F32 {
        assert!(from.len() >= Self::LANES);
        // SAFETY: the slice is long enough.
        unsafe { self.load(from.as_ptr()) }
    }

    /// Reads a slice that is at most a vector long; the lanes behind it are 0.
    ///
    /// # Panics
    /// If the slice is longer than a vector.
    #[inline(always)]
    fn read_part(self, from: &[f32]) -> Self::F32 {
        assert!(from.len() <= Self::LANES);
        // SAFETY: the whole slice is read and no more.
        unsafe { self.load_part(from.as_ptr(), from.len()) }
    }

    /// Writes the first [`LANES`](Simd::LANES) values of a slice.
    ///
    /// # Panics
    /// If the slice is shorter than a vector.
    #[inline(always)]
    fn write(self, to: &mut [f32], value: Self::F32) {
        assert!(to.len() >= Self::LANES);
        // SAFETY: the slice is long enough.
        unsafe { self.store(to.as_mut_ptr(), value) }
    }

    /// Writes as many lanes as the slice is long, at most a vector.
    ///
    /// # Panics
    /// If the slice is longer than a vector.
    #[inline(always)]
    fn write_part(self, to: &mut [f32], value: Self::F32) {
        assert!(to.len() <= Self::LANES);
        // SAFETY: the whole slice is written and no more.
        unsafe { self.store_part(to.as_mut_ptr(), value, to.len()) }
    }
}
