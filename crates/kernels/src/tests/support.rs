//! What the tests share: random numbers, buffers that end where memory ends, and a list of failing cases.

use crate::Isa;
use std::ops::{Deref, DerefMut};

/// Numbers that are the same on every run (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Evenly in -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// Small integers: sums of some thousands of their products are exact in f32, so that results can be equal.
    pub fn integers(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.below(9) as f32 - 4.0).collect()
    }
}

/// All failing cases of a table, printed together.
#[derive(Default)]
pub struct Cases {
    checked: usize,
    failures: Vec<String>,
}

impl Cases {
    pub fn check(&mut self, holds: bool, describe: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.failures.push(describe());
        }
    }

    /// Checks that `actual` is within `tolerance` of `expected`, for every component.
    pub fn close(&mut self, actual: &[f32], expected: &[f64], tolerance: f64, describe: impl Fn() -> String) {
        self.check(actual.len() == expected.len(), || format!("{}: {} components", describe(), actual.len()));
        let worst = actual
            .iter()
            .zip(expected)
            .enumerate()
            .map(|(i, (actual, expected))| ((f64::from(*actual) - expected).abs(), i))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((error, i)) = worst {
            self.check(error <= tolerance, || {
                format!("{}: [{i}] is {} not {}, off by {error:e} > {tolerance:e}", describe(), actual[i], expected[i])
            });
        }
    }

    /// Checks that the bytes are the same.
    pub fn same(&mut self, actual: &[f32], expected: &[f32], describe: impl Fn() -> String) {
        self.check(actual.len() == expected.len(), || format!("{}: {} components", describe(), actual.len()));
        let differs = actual.iter().zip(expected).position(|(a, b)| a.to_bits() != b.to_bits());
        self.check(differs.is_none(), || {
            let i = differs.unwrap_or_default();
            format!("{}: [{i}] is {:?} not {:?}", describe(), actual[i], expected[i])
        });
    }
}

impl Drop for Cases {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert!(self.checked > 0, "the table is empty");
        assert!(
            self.failures.is_empty(),
            "{} of {} checks failed:\n{}",
            self.failures.len(),
            self.checked,
            self.failures.join("\n")
        );
    }
}

/// The greatest error of a function with one instruction set so far, and where it was.
pub struct Worst {
    pub isa: Isa,
    pub error: f64,
    pub at: f32,
}

impl Worst {
    /// One for each instruction set of this CPU.
    pub fn of_each() -> Vec<Worst> {
        Isa::available().into_iter().map(|isa| Worst { isa, error: 0.0, at: 0.0 }).collect()
    }

    /// Takes an error into account. NaN is the worst of all.
    pub fn take(&mut self, error: f64, at: f32) {
        if error > self.error || (error.is_nan() && !self.error.is_nan()) {
            (self.error, self.at) = (error, at);
        }
    }
}

/// A million f32 values of every sign and exponent: each 4093rd, a prime so that all low bits occur.
pub fn sampled_f32() -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(4093).map(f32::from_bits).filter(|x| x.is_finite())
}

/// All f32 values, a million at a time.
pub fn every_f32() -> impl Iterator<Item = Vec<f32>> {
    (0..1u32 << 12).map(|high| (0..1u32 << 20).map(|low| f32::from_bits(high << 20 | low)).collect())
}

/// Values right in front of a page that must not be touched: reading or writing behind the last value ends the process.
/// In front of the first value lie sentinels, checked on drop.
pub struct Guarded {
    base: *mut u8,
    bytes: usize,
    start: *mut f32,
    len: usize,
}

// SAFETY: as a vector of f32, which it stands for.
unsafe impl Sync for Guarded {}

const SENTINEL: u8 = 0xa5;

#[cfg(target_os = "linux")]
impl Guarded {
    pub fn new(values: &[f32]) -> Guarded {
        const PAGE: usize = 64 << 10;
        let size = size_of_val(values);
        let bytes = (size + 64).next_multiple_of(PAGE) + PAGE;
        // SAFETY: a fresh mapping, cut into a part to use and a page that no access is allowed to.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let base = base.cast::<u8>();
            assert_eq!(libc::mprotect(base.add(bytes - PAGE).cast(), PAGE, libc::PROT_NONE), 0);
            let start = base.add(bytes - PAGE - size);
            std::ptr::write_bytes(start.sub(64), SENTINEL, 64);
            std::ptr::copy_nonoverlapping(values.as_ptr().cast(), start, size);
            Guarded { base, bytes, start: start.cast(), len: values.len() }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Guarded {
    pub fn new(values: &[f32]) -> Guarded {
        let bytes = size_of_val(values) + 64;
        let base = Box::leak(vec![0u32; bytes / 4].into_boxed_slice()).as_mut_ptr().cast::<u8>();
        // SAFETY: within the allocation.
        unsafe {
            std::ptr::write_bytes(base, SENTINEL, 64);
            std::ptr::copy_nonoverlapping(values.as_ptr().cast(), base.add(64), size_of_val(values));
            Guarded { base, bytes, start: base.add(64).cast(), len: values.len() }
        }
    }
}

impl Guarded {
    pub fn filled(value: f32, len: usize) -> Guarded {
        Guarded::new(&vec![value; len])
    }
}

impl Deref for Guarded {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: `new` has initialised the values.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: `new` has initialised the values.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the sentinels lie in front of the values; the mapping is used no more.
        let intact = unsafe {
            let intact = std::slice::from_raw_parts(self.start.cast::<u8>().sub(64), 64).iter().all(|b| *b == SENTINEL);
            #[cfg(target_os = "linux")]
            libc::munmap(self.base.cast(), self.bytes);
            #[cfg(not(target_os = "linux"))]
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.base.cast::<u32>(), self.bytes / 4)));
            intact
        };
        assert!(intact || std::thread::panicking(), "something was written in front of a buffer");
    }
}

/// Lengths around every border of a vector, a panel and four accumulators.
pub fn lengths() -> impl Iterator<Item = usize> {
    (0..=70).chain([95, 96, 127, 128, 129, 255, 256, 257, 312, 384, 511, 512, 513, 768, 1024, 1025])
}
