//! Where the ranks of a region meet, and where a panic sets the waiting ones free.

use super::gate::Gate;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The payload with which a rank unwinds because another one has panicked.
pub struct Poisoned;

/// A barrier for any number of meetings of the same ranks.
pub struct Barrier {
    arrived: AtomicUsize,
    /// Meetings so far.
    meeting: AtomicUsize,
    poisoned: AtomicBool,
    gate: Gate,
}

impl Barrier {
    pub fn new(spin: Duration) -> Barrier {
        Barrier {
            arrived: AtomicUsize::new(0),
            meeting: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
            gate: Gate::new(spin),
        }
    }

    /// Forgets a region that ended in a panic. No rank may be inside.
    pub fn reset(&self) {
        self.arrived.store(0, Ordering::Relaxed);
        self.poisoned.store(false, Ordering::Relaxed);
    }

    /// Sets free, by unwinding, whoever waits or comes to wait.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
        self.gate.open();
    }

    /// Returns when `size` ranks have called it; unwinds with [`Poisoned`] if one of them never will.
    pub fn wait(&self, size: usize) {
        // So that a rank that swallowed the unwinding is not counted twice.
        if self.poisoned.load(Ordering::SeqCst) {
            leave();
        }
        let meeting = self.meeting.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == size {
            // Nobody arrives for the next meeting before this one is over.
            self.arrived.store(0, Ordering::Relaxed);
            self.meeting.store(meeting.wrapping_add(1), Ordering::SeqCst);
            self.gate.open();
        } else {
            self.gate.wait(|| self.meeting.load(Ordering::SeqCst) != meeting || self.poisoned.load(Ordering::SeqCst));
            // A meeting that took place counts, even if a rank panicked right behind it: all of them go on alike.
            if self.meeting.load(Ordering::SeqCst) == meeting {
                leave();
            }
        }
    }
}

/// Unwinds. Not by `panic!`: the panic that caused this has been reported already.
fn leave() -> ! {
    resume_unwind(Box::new(Poisoned))
}
