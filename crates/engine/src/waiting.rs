//! Calls that wait for their model: what all of them in the process hold is bounded.
//!
//! A download takes minutes, and calls bring their texts at once. So there is a limit as for a lane of the queue: a call
//! that would pass it is refused, unless nothing waits. A call leaves when its [`Place`] is dropped: when the load or its
//! cancellation has answered it. After that the queue counts it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::failure::Failure;

/// Bytes of the calls that wait.
pub(crate) struct Waiting {
    bytes: AtomicUsize,
}

/// What one of them holds.
pub(crate) struct Place<'a> {
    waiting: &'a Waiting,
    bytes: usize,
}

impl Waiting {
    pub(crate) const fn new() -> Waiting {
        Waiting { bytes: AtomicUsize::new(0) }
    }

    /// Lets a call of `bytes` wait.
    ///
    /// # Errors
    /// `Overloaded` when something waits and all would hold more than `limit` bytes.
    pub(crate) fn enter(&self, bytes: usize, limit: usize) -> Result<Place<'_>, Failure> {
        let with = |held: usize| held.saturating_add(bytes);
        let admitted = |held| (held == 0 || with(held) <= limit).then(|| with(held));
        match self.bytes.fetch_update(Relaxed, Relaxed, admitted) {
            Ok(_) => Ok(Place { waiting: self, bytes }),
            Err(held) => {
                let waits = "the model is being loaded, and too many calls wait for models";
                Err(Failure::overloaded(waits, with(held), limit))
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::ErrorKind;

    #[test]
    fn what_waits_for_loads_is_bounded_and_room_comes_back() {
        let waiting = Waiting::new();
        let large = waiting.enter(1000, 10).expect("nothing waits");
        let refused = waiting.enter(1, 10).err().expect("full");
        assert_eq!((refused.kind, refused.limit), (ErrorKind::Overloaded, Some(10.0)));
        assert_eq!((refused.actual, refused.unit), (Some(1001.0), Some("bytes")));
        for part in ["being loaded", "1001 bytes", "10 are allowed", "SIMILE_QUEUE_MB"] {
            assert!(refused.message.contains(part), "{refused}");
        }
        drop(large);
        let (four, _six) = (waiting.enter(4, 10), waiting.enter(6, 10).expect("just fits"));
        assert!(waiting.enter(1, 10).is_err());
        drop(four);
        assert!(waiting.enter(5, 10).is_err());
        assert!(waiting.enter(4, 10).is_ok());
    }
}
