//! A value that is loaded at its first use, by a thread of ours, once for all who need it.
//!
//! Two levels:
//! - [`Lazy`] belongs to one service. Construction loads nothing. The first request starts a loader thread; the outcome,
//!   success or failure, is kept in a set-once cell for the service's life: after a failure, make a new service.
//! - [`Loads`] belongs to the process. A loader first resolves what it is to load to a key. Is a value of that key alive,
//!   the service gets it; is one being loaded, the service waits for that one, without a thread. It holds values weakly
//!   and failures never, so the last service that lets go frees the memory, and a new service tries anew.
//!
//! Cancellation: who stops waiting is told so at once, and the load runs on, because its outcome is the service's, not
//! the waiter's. Disposal: waiters fail, the value is let go. The first half of a load may take minutes (a download), so
//! it is given a token that is cancelled when the service is disposed of or dropped. After a drop nobody can ask any more;
//! who waits still gets what the first half makes of the token, which is a cancellation if it ends early. The second half
//! is short, and finishes and answers whatever happened to the service.
//!
//! A panic in a loader is that load's failure (`ModelInitialization`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;

use crate::cancel::{CancelToken, Listener};
use crate::failure::{ErrorKind, Failure};
use crate::once::Once;
use crate::panics::{self, THREAD_PREFIX};

/// What a load came to.
pub type Outcome<T> = Result<Arc<T>, Failure>;

/// The second half of a load: runs only when no value of the key is alive or on its way.
pub type Load<T> = Box<dyn FnOnce() -> Result<T, Failure> + Send>;

/// The first half of a load: finds out what is to be loaded, and the key under which it can be shared. It may end early
/// when its token is cancelled; only who waited before the service was dropped sees its outcome then.
pub type Resolve<T> = Box<dyn FnOnce(&CancelToken) -> Result<(String, Load<T>), Failure> + Send>;

/// Is given the outcome of a load before anybody else hears of it, by the loader's thread.
pub type Ready<T> = Box<dyn FnOnce(&Outcome<T>) + Send>;

/// One service's value: not loaded, loading, loaded, failed or disposed.
pub struct Lazy<T> {
    loads: Arc<Loads<T>>,
    slot: Mutex<Option<Slot<T>>>,
    disposed: CancelToken,
    /// Cancelled when this is disposed of or dropped. Who waits and what runs listen to `disposed` only: after a drop the
    /// waiters get the outcome of the load, and calls that have their value run on.
    abandoned: CancelToken,
}

struct Slot<T> {
    cell: Arc<Once<Outcome<T>>>,
    /// Taken by the first request.
    steps: Option<(Resolve<T>, Ready<T>)>,
}

impl<T: Send + Sync + 'static> Lazy<T> {
    /// A value that `resolve` will load, shared through `loads`.
    pub fn new(loads: Arc<Loads<T>>, resolve: Resolve<T>) -> Lazy<T> {
        Lazy::preparing(loads, resolve, Box::new(|_| {}))
    }

    /// As [`Lazy::new`], and `ready` is done with the value before it is anybody's.
    pub fn preparing(loads: Arc<Loads<T>>, resolve: Resolve<T>, ready: Ready<T>) -> Lazy<T> {
        let slot = Slot { cell: Arc::new(Once::new()), steps: Some((resolve, ready)) };
        Lazy { loads, slot: Mutex::new(Some(slot)), disposed: CancelToken::new(), abandoned: CancelToken::new() }
    }

    /// Calls `hook` with the outcome of the load when it comes, before anybody who asks for the value afterwards is
    /// answered by the loader. Never, when there is no load.
    pub(crate) fn when_settled(&self, hook: impl FnOnce(&Outcome<T>) + Send + 'static) {
        let cell = lock(&self.slot).as_ref().map(|slot| slot.cell.clone());
        if let Some(cell) = cell {
            cell.when_set(hook);
        }
    }

    /// Asks for the value. `done` is called exactly once: by this thread when the outcome is known, by the loader's
    /// thread when it comes, or by the thread that cancels `cancel` or disposes of this.
    pub fn load(&self, cancel: &CancelToken, done: impl FnOnce(Outcome<T>) + Send + 'static) {
        if let Some(reason) = cancel.reason() {
            return done(Err(reason.clone()));
        }
        let (cell, steps) = {
            let mut slot = lock(&self.slot);
            match slot.as_mut() {
                None => {
                    drop(slot);
                    return done(Err(Failure::disposed()));
                }
                Some(slot) => (slot.cell.clone(), slot.steps.take()),
            }
        };
        if let Some(steps) = steps {
            self.start(cell.clone(), steps);
        }
        if let Some(outcome) = cell.get() {
            return done(outcome.clone());
        }
        let waiter = Arc::new(Waiter { done: Mutex::new(Some(Box::new(done))), _cancel: cancel.clone() });
        cancel.listen(&waiter);
        self.disposed.listen(&waiter);
        cell.when_set(move |outcome| waiter.finish(outcome.clone()));
    }

    /// Whether who asks now must wait: there is no outcome yet, and this was not disposed of.
    pub(crate) fn is_pending(&self) -> bool {
        lock(&self.slot).as_ref().is_some_and(|slot| slot.cell.get().is_none())
    }

    /// The outcome, if there is one and the value was not disposed of.
    pub fn get(&self) -> Option<Outcome<T>> {
        lock(&self.slot).as_ref()?.cell.get().cloned()
    }

    /// Lets go of the value: whoever waits for it fails with [`Failure::disposed`], and so does every later request.
    /// Its memory is free when the calls in flight and other services have let go too.
    pub fn dispose(&self) {
        let slot = lock(&self.slot).take();
        self.disposed.cancel_with(Failure::disposed());
        self.abandoned.cancel();
        drop(slot);
    }

    /// Cancelled when this is disposed of.
    pub fn disposal(&self) -> &CancelToken {
        &self.disposed
    }

    fn start(&self, cell: Arc<Once<Outcome<T>>>, (resolve, ready): (Resolve<T>, Ready<T>)) {
        let (loads, settled, abandoned) = (self.loads.clone(), cell.clone(), self.abandoned.clone());
        let thread = thread::Builder::new().name(format!("{THREAD_PREFIX}loader"));
        let spawned = thread.spawn(move || match caught(|| resolve(&abandoned)) {
            Ok((key, load)) => {
                let loaded = Arc::new(Once::new());
                loaded.when_set(move |outcome: &Outcome<T>| {
                    // The value is as good without it.
                    let _ = panics::catch(|| ready(outcome));
                    cell.set(outcome.clone());
                });
                loads.join(key, loaded, load);
            }
            Err(failure) => cell.set(Err(failure)),
        });
        if let Err(error) = spawned {
            let message = format!("the system gave no thread to load on: {error}");
            settled.set(Err(Failure::new(ErrorKind::ModelInitialization, message)));
        }
    }
}

impl<T> Drop for Lazy<T> {
    fn drop(&mut self) {
        self.abandoned.cancel();
    }
}

type Done<T> = Box<dyn FnOnce(Outcome<T>) + Send>;

/// Somebody who waits for a load and may stop waiting.
struct Waiter<T> {
    done: Mutex<Option<Done<T>>>,
    /// Kept because nobody else might: a token that only its parent knows is known weakly.
    _cancel: CancelToken,
}

impl<T> Waiter<T> {
    fn finish(&self, outcome: Outcome<T>) {
        let done = lock(&self.done).take();
        if let Some(done) = done {
            done(outcome);
        }
    }
}

impl<T: Send + Sync> Listener for Waiter<T> {
    fn cancelled(&self, reason: &Failure) {
        self.finish(Err(reason.clone()));
    }
}

/// The loads in flight and the live values of a process, by key.
pub struct Loads<T> {
    entries: Mutex<HashMap<String, Entry<T>>>,
}

enum Entry<T> {
    /// Being loaded, for these services.
    Loading(Vec<Arc<Once<Outcome<T>>>>),
    Live(Weak<T>),
}

impl<T> Default for Loads<T> {
    fn default() -> Self {
        Loads { entries: Mutex::default() }
    }
}

impl<T: Send + Sync + 'static> Loads<T> {
    /// Sets `cell` to the value of `key`: a live one, one that is on its way, or what `load` gives.
    fn join(&self, key: String, cell: Arc<Once<Outcome<T>>>, load: Load<T>) {
        let live = {
            let mut entries = lock(&self.entries);
            let live = match entries.get_mut(&key) {
                Some(Entry::Loading(followers)) => return followers.push(cell),
                Some(Entry::Live(value)) => value.upgrade(),
                None => None,
            };
            if live.is_none() {
                entries.insert(key.clone(), Entry::Loading(vec![cell.clone()]));
            }
            live
        };
        if let Some(value) = live {
            return cell.set(Ok(value));
        }
        let outcome = caught(load).map(Arc::new);
        let followers = {
            let mut entries = lock(&self.entries);
            entries.retain(|_, entry| !matches!(entry, Entry::Live(value) if value.strong_count() == 0));
            let followers = match entries.remove(&key) {
                Some(Entry::Loading(followers)) => followers,
                _ => Vec::new(),
            };
            if let Ok(value) = &outcome {
                entries.insert(key, Entry::Live(Arc::downgrade(value)));
            }
            followers
        };
        for follower in followers {
            follower.set(outcome.clone());
        }
    }
}

fn caught<R>(step: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    panics::catch(step).unwrap_or_else(|panic| {
        let kind = ErrorKind::ModelInitialization;
        Err(Failure { kind, ..panics::failure("loading the model", &panic) })
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_during_a_load_waits_for_it() {
        let loads: Arc<Loads<u32>> = Arc::default();
        let (leader, follower) = (Arc::new(Once::new()), Arc::new(Once::new()));
        let (inner, joined) = (loads.clone(), follower.clone());
        let load: Load<u32> = Box::new(move || {
            inner.join("a".into(), joined.clone(), Box::new(|| panic!("loaded twice")));
            assert!(joined.get().is_none(), "it waits");
            Ok(7)
        });
        loads.join("a".into(), leader.clone(), load);
        let outcome = |cell: &Once<Outcome<u32>>| cell.get().expect("settled").clone().expect("loaded");
        assert!(Arc::ptr_eq(&outcome(&leader), &outcome(&follower)));
    }

    #[test]
    fn a_failure_reaches_all_who_waited_and_is_then_forgotten() {
        let loads: Arc<Loads<u32>> = Arc::default();
        let (leader, follower, late) = (Arc::new(Once::new()), Arc::new(Once::new()), Arc::new(Once::new()));
        let (inner, joined) = (loads.clone(), follower.clone());
        let failure = Failure::new(ErrorKind::ModelInitialization, "no such file");
        let given = failure.clone();
        let load: Load<u32> = Box::new(move || {
            inner.join("a".into(), joined, Box::new(|| panic!("loaded twice")));
            Err(given)
        });
        loads.join("a".into(), leader.clone(), load);
        assert_eq!(leader.get().expect("settled").clone().expect_err("failed"), failure);
        assert_eq!(follower.get().expect("settled").clone().expect_err("failed"), failure);
        loads.join("a".into(), late.clone(), Box::new(|| Ok(8)));
        assert_eq!(*late.get().expect("settled").clone().expect("loaded"), 8);
    }

    #[test]
    fn a_follower_that_panics_leaves_no_other_unset() {
        let loads: Arc<Loads<u32>> = Arc::default();
        let cells: Vec<_> = (0..3).map(|_| Arc::new(Once::new())).collect();
        cells[1].when_set(|_| panic!("told to"));
        let (inner, followers) = (loads.clone(), cells[1..].to_vec());
        let load: Load<u32> = Box::new(move || {
            followers.into_iter().for_each(|cell| inner.join("a".into(), cell, Box::new(|| panic!("loaded twice"))));
            Ok(7)
        });
        let leader = cells[0].clone();
        let thread = thread::Builder::new().name(format!("{THREAD_PREFIX}test"));
        thread.spawn(move || loads.join("a".into(), leader, load)).unwrap().join().expect("the loader went on");
        assert!(cells.iter().all(|cell| cell.get().is_some_and(Result::is_ok)));
    }

    #[test]
    fn dead_values_leave_no_entries() {
        let loads: Arc<Loads<u32>> = Arc::default();
        for key in 0..100 {
            loads.join(key.to_string(), Arc::new(Once::new()), Box::new(|| Ok(1)));
        }
        assert_eq!(lock(&loads.entries).len(), 1);
    }
}
