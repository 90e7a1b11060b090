//! Memory that forward passes reuse.
//!
//! # Invariants
//! - At most one forward pass uses a scratch at a time (`&mut` in [`Context`](crate::Context)).
//! - Between passes it holds at most 128 MiB for each thread: what one unusually long text needed goes back to the
//!   system.

use std::sync::Mutex;
use std::time::Duration;

use simile_kernels::AlignedVec;

use crate::simd::buffers::{BatchBuffers, ThreadBuffers};
use crate::simd::profile::Stage;
use crate::simd::team::TeamRecord;

/// The most that is kept of each kind of buffer, for each thread. A group of 512 tokens of a model of width 1,024 has
/// 11 MB of activations; a team that works together on one batch has those of all its threads in the first one's
/// buffers.
const KEEP_BYTES: usize = 32 << 20;

/// Buffers of past forward passes, kept for the next one.
#[derive(Default)]
pub struct Scratch {
    /// One for each thread: activations of the sequences that it computes. The first one serves the whole team when it
    /// works together.
    pub(crate) batches: Vec<Mutex<BatchBuffers>>,
    /// One for each thread: what only it reads.
    pub(crate) threads: Vec<Mutex<ThreadBuffers>>,
    /// A buffer for the next [`Hidden`](crate::Hidden).
    spare: Option<AlignedVec>,
    profiling: bool,
    teamwork: Teamwork,
    peak: usize,
    /// Whether it pays that threads work together.
    pub(crate) team: TeamRecord,
}

/// Whether threads may work together on one batch, where sharing out whole sequences would leave some idle. Only time
/// depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Teamwork {
    /// Unless the last such pass took longer than one thread alone would have, because the host is busy with something
    /// else; then not for a few passes.
    #[default]
    Adaptive,
    /// Whenever threads would be idle.
    Always,
    /// Each sequence is one thread's.
    Never,
}

impl Scratch {
    /// An empty scratch: the first forward pass fills it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes held between two passes.
    pub fn bytes(&mut self) -> usize {
        let batches: usize = self.batches.iter_mut().map(|buffers| get_mut(buffers).bytes()).sum();
        let threads: usize = self.threads.iter_mut().map(|buffers| get_mut(buffers).bytes()).sum();
        batches + threads + self.spare.as_ref().map_or(0, AlignedVec::bytes)
    }

    /// The most bytes that any pass has held so far, its result and what was given back since included.
    pub fn peak_bytes(&self) -> usize {
        self.peak
    }

    /// Whether threads may work together on one batch.
    pub fn set_teamwork(&mut self, teamwork: Teamwork) {
        self.teamwork = teamwork;
    }

    /// Whether they may in the next pass.
    pub(crate) fn team_allowed(&mut self) -> bool {
        match self.teamwork {
            Teamwork::Adaptive => self.team.usable(),
            Teamwork::Always => true,
            Teamwork::Never => false,
        }
    }

    /// Whether forward passes measure where their time goes (off by default; costs under 1 %).
    pub fn set_profiling(&mut self, on: bool) {
        self.profiling = on;
        for buffers in &mut self.threads {
            get_mut(buffers).clock.enable(on);
        }
    }

    /// Time spent in each stage since the last call, all threads together.
    pub fn take_profile(&mut self) -> Vec<(&'static str, Duration)> {
        let mut totals = Stage::ALL.map(|stage| (stage.name(), Duration::ZERO)).to_vec();
        for buffers in &mut self.threads {
            for (total, time) in totals.iter_mut().zip(get_mut(buffers).clock.take()) {
                total.1 += time;
            }
        }
        totals
    }

    /// Makes sure that there are buffers for `threads` threads.
    pub(crate) fn reserve(&mut self, threads: usize) {
        while self.threads.len() < threads {
            self.batches.push(Mutex::default());
            let mut buffers = ThreadBuffers::default();
            buffers.clock.enable(self.profiling);
            self.threads.push(Mutex::new(buffers));
        }
    }

    /// A buffer of at least `len` values, contents unspecified.
    pub(crate) fn take(&mut self, len: usize) -> AlignedVec {
        let mut buffer = self.spare.take().unwrap_or_default();
        buffer.grow(len);
        buffer
    }

    /// Keeps a buffer for the next [`take`](Self::take).
    pub(crate) fn give_back(&mut self, buffer: AlignedVec) {
        let kept = self.spare.as_ref().map_or(0, AlignedVec::bytes);
        if buffer.bytes() > kept && buffer.bytes() <= KEEP_BYTES * self.threads.len() {
            self.spare = Some(buffer);
        }
    }

    /// Ends a pass that has `output` bytes of results: lets go of what is too large to keep.
    pub(crate) fn trim(&mut self, output: usize) {
        self.peak = self.peak.max(self.bytes() + output);
        let team = KEEP_BYTES * self.threads.len();
        for (rank, buffers) in self.batches.iter_mut().enumerate() {
            let buffers = get_mut(buffers);
            if buffers.bytes() > if rank == 0 { team } else { KEEP_BYTES } {
                *buffers = BatchBuffers::default();
            }
        }
        for buffers in &mut self.threads {
            let buffers = get_mut(buffers);
            if buffers.bytes() > KEEP_BYTES {
                buffers.free();
            }
        }
    }
}

/// Buffers hold plain numbers that every pass writes before it reads them, so those of a pass that panicked are as good
/// as any.
fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
}
