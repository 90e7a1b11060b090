//! Cancellation: a switch that is thrown once, with a reason, and those who listen to it.
//!
//! Contract: [`CancelToken::cancel`] returns after every listener was told, on the caller's thread, so a listener must
//! be quick and must not wait; one that panics keeps no other from being told. A listener that comes late is told at once. Listeners are held weakly: a token that
//! outlives ten thousand calls holds none of them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use crate::failure::Failure;
use crate::panics;

/// Something that wants to know when a token is cancelled.
pub(crate) trait Listener: Send + Sync {
    /// The token was cancelled for this reason. Called at most once for each token listened to.
    fn cancelled(&self, reason: &Failure);
}

/// A switch that ends the calls that were given it. Clones are the same switch.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Inner>);

#[derive(Default)]
struct Inner {
    reason: OnceLock<Failure>,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    list: Vec<Weak<dyn Listener>>,
    /// The length at which dead entries are looked for, doubled as the living ones grow: constant cost for each call.
    sweep_at: usize,
}

impl CancelToken {
    /// A token that nobody has cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Ends the calls that hold this token: they fail with [`Failure::cancelled`] before this returns.
    pub fn cancel(&self) {
        self.cancel_with(Failure::cancelled());
    }

    /// As [`CancelToken::cancel`], with the failure that the calls get. Only the first cancellation counts.
    pub fn cancel_with(&self, reason: Failure) {
        self.0.cancelled(&reason);
    }

    /// A token of its own that is also cancelled when this one is: one call among all of a thread's. It lives as long as
    /// somebody holds it, which calls that it was given to do.
    pub fn child(&self) -> CancelToken {
        let child = CancelToken::new();
        self.listen(&child.0);
        child
    }

    /// Whether the token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.reason.get().is_some()
    }

    /// Why the token was cancelled.
    pub fn reason(&self) -> Option<&Failure> {
        self.0.reason.get()
    }

    /// Tells `listener` when the token is cancelled, at once if it is already.
    pub(crate) fn listen<L: Listener + 'static>(&self, listener: &Arc<L>) {
        {
            let mut listeners = self.0.lock();
            // Read under the lock: `cancel_with` sets the reason before it takes the list, so either it sees this
            // entry or we see its reason.
            if self.0.reason.get().is_none() {
                if listeners.list.len() >= listeners.sweep_at {
                    listeners.list.retain(|entry| entry.strong_count() > 0);
                    listeners.sweep_at = (listeners.list.len() * 2).max(16);
                }
                let listener: Arc<dyn Listener> = listener.clone();
                listeners.list.push(Arc::downgrade(&listener));
                return;
            }
        }
        listener.cancelled(self.0.reason.get().expect("seen above"));
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Listeners> {
        // Nothing in a critical section can panic half-way, so a poisoned list is a whole one.
        self.listeners.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A child hears of its parent.
impl Listener for Inner {
    fn cancelled(&self, reason: &Failure) {
        if self.reason.set(reason.clone()).is_err() {
            return;
        }
        let listeners = std::mem::take(&mut self.lock().list);
        for listener in listeners {
            if let Some(listener) = listener.upgrade() {
                // A caller's function that panics keeps no other call from ending.
                let _ = panics::catch(|| listener.cancelled(reason));
            }
        }
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("reason", &self.0.reason.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::ErrorKind;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Failure>>);

    impl Listener for Heard {
        fn cancelled(&self, reason: &Failure) {
            self.0.lock().unwrap().push(reason.clone());
        }
    }

    #[test]
    fn listeners_hear_the_first_reason_once() {
        let token = CancelToken::new();
        let (early, late) = (Arc::new(Heard::default()), Arc::new(Heard::default()));
        token.listen(&early);
        token.cancel_with(Failure::disposed());
        token.cancel();
        token.listen(&late);
        for heard in [early, late] {
            let reasons = heard.0.lock().unwrap();
            assert_eq!(reasons.len(), 1);
            assert_eq!(reasons[0].kind, ErrorKind::ModelNotLoaded);
        }
    }

    #[test]
    fn children_are_cancelled_with_their_parent_and_not_the_other_way() {
        let parent = CancelToken::new();
        let (first, second) = (parent.child(), parent.child());
        first.cancel();
        assert!(first.is_cancelled() && !parent.is_cancelled() && !second.is_cancelled());
        parent.cancel_with(Failure::disposed());
        assert_eq!(second.reason(), Some(&Failure::disposed()));
        assert_eq!(first.reason(), Some(&Failure::cancelled()));
        assert!(parent.child().is_cancelled());
    }

    #[test]
    fn a_listener_that_panics_leaves_nobody_behind() {
        struct Bad;
        impl Listener for Bad {
            fn cancelled(&self, _: &Failure) {
                panic!("told to");
            }
        }
        let token = CancelToken::new();
        let (bad, good) = (Arc::new(Bad), Arc::new(Heard::default()));
        token.listen(&bad);
        token.listen(&good);
        let cancelling = token.clone();
        let thread = std::thread::Builder::new().name("simile-test".to_owned());
        thread.spawn(move || cancelling.cancel()).unwrap().join().expect("the cancelling thread went on");
        assert_eq!(good.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_token_of_many_calls_does_not_grow() {
        let token = CancelToken::new();
        let staying = Arc::new(Heard::default());
        token.listen(&staying);
        for _ in 0..10_000 {
            token.listen(&Arc::new(Heard::default()));
        }
        assert!(token.0.lock().list.len() <= 32, "{} entries", token.0.lock().list.len());
        token.cancel();
        assert_eq!(staying.0.lock().unwrap().len(), 1);
    }
}
