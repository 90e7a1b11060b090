//! Buffers for weights and scratch: aligned, zeroed, on huge pages where that pays, and given back when dropped.
//!
//! Small buffers come from the global allocator. From [`MAPPED_BYTES`] on, Linux maps pages of its own for the buffer:
//! they arrive zeroed without being touched and go back to the system on drop, which `free` does not promise: once glibc
//! has freed a large buffer it serves the next ones of that size from its heap and keeps them. From 2 MiB on they
//! also ask for 2 MiB pages (a 40 MB model on 4 KiB pages misses the TLB all the time).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer in bytes: a cache line, and a vector of the widest instruction set.
pub const ALIGNMENT: usize = 64;

/// Buffers of at least this many bytes have pages of their own on Linux. A matrix of 384 x 384 values has 576 KiB; what is
/// smaller than this are biases and a short text's activations.
pub const MAPPED_BYTES: usize = 256 << 10;

/// Buffers of at least this many bytes start at a multiple of it and ask for pages of this size.
const HUGE_PAGE: usize = 2 << 20;

/// A zero-initialised buffer of f32 values, aligned to [`ALIGNMENT`] bytes. Its length is fixed; [`AlignedVec::grow`]
/// replaces it by a longer one.
pub struct AlignedVec {
    start: NonNull<f32>,
    len: usize,
    origin: Origin,
}

/// Who the memory came from and has to go back to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Nobody: the length is 0.
    Nothing,
    /// The global allocator.
    Allocator,
    /// `mmap`, this many bytes.
    #[cfg(target_os = "linux")]
    Mapping(usize),
}

// SAFETY: the buffer owns its memory, and f32 may be sent and shared.
unsafe impl Send for AlignedVec {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for AlignedVec {}

impl AlignedVec {
    /// A buffer of `len` zeros.
    ///
    /// # Panics
    /// If the size in bytes overflows. Out of memory ends the process, as for every Rust collection.
    pub fn zeroed(len: usize) -> AlignedVec {
        let layout = Self::layout(len);
        if len == 0 {
            return AlignedVec { start: NonNull::dangling(), len: 0, origin: Origin::Nothing };
        }
        #[cfg(target_os = "linux")]
        if layout.size() >= MAPPED_BYTES
            && let Some((start, bytes)) = mapping::map(layout.size())
        {
            return AlignedVec { start: start.cast(), len, origin: Origin::Mapping(bytes) };
        }
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast::<f32>()) else { handle_alloc_error(layout) };
        AlignedVec { start, len, origin: Origin::Allocator }
    }

    /// Makes the buffer at least `len` values long. A buffer that is long enough is left alone; otherwise it is replaced
    /// by one of zeros.
    pub fn grow(&mut self, len: usize) {
        if len > self.len {
            // The old one goes first, so that both are never held.
            *self = AlignedVec::default();
            *self = AlignedVec::zeroed(len);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        match self.origin {
            #[cfg(target_os = "linux")]
            Origin::Mapping(bytes) => bytes,
            _ => self.len * size_of::<f32>(),
        }
    }

    fn layout(len: usize) -> Layout {
        len.checked_mul(size_of::<f32>())
            .and_then(|bytes| Layout::from_size_align(bytes, ALIGNMENT).ok())
            .unwrap_or_else(|| panic!("a buffer of {len} f32 values is larger than the address space"))
    }
}

impl Default for AlignedVec {
    fn default() -> Self {
        AlignedVec::zeroed(0)
    }
}

impl Drop for AlignedVec {
    fn drop(&mut self) {
        match self.origin {
            Origin::Nothing => {}
            // SAFETY: allocated with this layout, and not used any more.
            Origin::Allocator => unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) },
            // SAFETY: mapped with this size, and not used any more.
            #[cfg(target_os = "linux")]
            Origin::Mapping(bytes) => unsafe { mapping::unmap(self.start.cast(), bytes) },
        }
    }
}

impl Deref for AlignedVec {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the buffer owns `len` initialised values.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedVec {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: the buffer owns `len` initialised values, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedVec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedVec").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(target_os = "linux")]
mod mapping {
    use super::HUGE_PAGE;
    use std::ptr::{NonNull, null_mut};

    /// A multiple of the page size of every Linux that simile runs on (4, 16 or 64 KiB).
    const PAGE: usize = 64 << 10;

    /// Zeroed pages for `bytes` bytes, and how many bytes they are. From [`HUGE_PAGE`] on, huge pages where there are some.
    pub fn map(bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        if bytes < HUGE_PAGE {
            return Some((anonymous(bytes)?, bytes));
        }
        // Mapped with room to move the start up to the next huge page; what is left over at both ends goes back.
        let base = anonymous(bytes.checked_add(HUGE_PAGE)?)?;
        let before = base.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `before < HUGE_PAGE`, so start and end lie in the mapping; the two ends are used by nobody, and the
        // advice changes no contents. The page size divides every address and size here.
        unsafe {
            let start = base.add(before);
            if before > 0 {
                unmap(base, before);
            }
            unmap(start.add(bytes), HUGE_PAGE - before);
            // A kernel without huge pages refuses, and small pages serve.
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
            Some((start, bytes))
        }
    }

    fn anonymous(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: an anonymous mapping at an address that the system chooses touches nothing else.
        let base = unsafe {
            libc::mmap(
                null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        NonNull::new(base.cast::<u8>())
    }

    /// Gives pages back.
    ///
    /// # Safety
    /// The pages must come from `map` and not be used any more.
    pub unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise. A failure would mean wrong arguments, which `map` rules out.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_size_are_aligned_zero_and_writable() {
        let (mapped, huge) = (MAPPED_BYTES / 4, HUGE_PAGE / 4);
        let around = [mapped - 1, mapped, mapped + 1, huge - 1, huge, huge + 1];
        for len in [0, 1, 15, 16, 17, 1000, 3_000_001].into_iter().chain(around) {
            let mut buffer = AlignedVec::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.bytes() >= 4 * len, "{len}");
            assert!(buffer.iter().all(|value| *value == 0.0), "{len}");
            if len > 0 {
                assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0, "{len}");
                buffer[0] = 1.0;
                buffer[len - 1] = 2.0;
            }
        }
    }

    #[test]
    fn grow_keeps_what_is_long_enough() {
        let mut buffer = AlignedVec::default();
        buffer.grow(10);
        buffer[3] = 7.0;
        buffer.grow(5);
        assert_eq!((buffer.len(), buffer[3]), (10, 7.0));
        buffer.grow(MAPPED_BYTES);
        assert_eq!((buffer.len(), buffer[3]), (MAPPED_BYTES, 0.0));
    }

    /// Pages of a mapping have to go back when it is dropped, or a process that loads models in turn grows without end.
    #[cfg(target_os = "linux")]
    #[test]
    fn dropping_a_large_buffer_returns_its_memory() {
        fn mapped_kib() -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted on Linux");
            let line = status.lines().find(|line| line.starts_with("VmSize:")).expect("VmSize is always there");
            line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of KiB")
        }
        let before = mapped_kib();
        for _ in 0..64 {
            let mut buffer = AlignedVec::zeroed(16 << 20);
            buffer[12345] = 1.0;
        }
        let grown = mapped_kib().saturating_sub(before);
        // Other tests run beside this one, so some growth is theirs; 64 leaked buffers would be 4 GiB.
        assert!(grown < 2 << 20, "{grown} KiB more are mapped");
    }
}
