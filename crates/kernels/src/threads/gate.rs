//! Waiting for a condition: spin, then yield, then sleep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a waiting thread spins: longer than the gaps between the regions of a forward pass, and about what waking a
/// parked thread costs.
pub const SPIN: Duration = Duration::from_micros(100);

/// Looks at the condition between two looks at the clock: 1 to 2 us where a pause is long (Intel since Skylake).
const LOOKS: u32 = 32;

/// Looks at the clock between two offers of the CPU to others. On a busy host it may be the awaited thread that needs it.
const ROUNDS: u32 = 8;

/// How often a thread that may not spin gives its CPU away before it sleeps.
const YIELDS: u32 = 64;

/// A place to wait for a condition on atomics that other threads change.
///
/// No wake-up is lost: whoever makes the condition true stores with `SeqCst` and then calls [`Gate::open`], which looks
/// for sleepers; a sleeper counts itself and then looks at the condition again. In the single order of these operations
/// one of the two sees the other.
pub struct Gate {
    spin: Duration,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Gate {
    /// A gate whose waiters spin for `spin` before they give their CPU away.
    pub fn new(spin: Duration) -> Gate {
        Gate { spin, sleepers: AtomicUsize::new(0), lock: Mutex::new(()), wake: Condvar::new() }
    }

    /// Returns when `ready` does. The condition must read its atomics with `SeqCst`.
    pub fn wait(&self, ready: impl Fn() -> bool) {
        if self.spin.is_zero() {
            for _ in 0..YIELDS {
                if ready() {
                    return;
                }
                std::thread::yield_now();
            }
        } else if self.spin(&ready) {
            return;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !ready() {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Looks at the condition for as long as spinning is allowed; whether it came true.
    fn spin(&self, ready: impl Fn() -> bool) -> bool {
        let mut start = None;
        loop {
            for _ in 0..ROUNDS {
                for _ in 0..LOOKS {
                    if ready() {
                        return true;
                    }
                    std::hint::spin_loop();
                }
                if start.get_or_insert_with(Instant::now).elapsed() > self.spin {
                    return false;
                }
            }
            std::thread::yield_now();
        }
    }

    /// Wakes the sleepers, to be called after the condition became true.
    pub fn open(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // With the lock, no sleeper is between its look at the condition and its sleep.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }
}
