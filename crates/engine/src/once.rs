//! A value that is set once, and those who wait for it without holding a thread.
//!
//! [`std::sync::OnceLock`] with callbacks: JavaScript must not block, so whoever needs the value leaves a function.
//!
//! Contract: every waiter is called exactly once with the one value, by the thread that sets it, or at once by its own
//! thread when the value is there already. No lock is held during a call. A waiter that panics keeps no other from
//! being called.

use std::sync::{Mutex, OnceLock};

use crate::panics;

type Waiter<T> = Box<dyn FnOnce(&T) + Send>;

pub(crate) struct Once<T> {
    value: OnceLock<T>,
    waiters: Mutex<Vec<Waiter<T>>>,
}

impl<T> Once<T> {
    pub(crate) fn new() -> Once<T> {
        Once { value: OnceLock::new(), waiters: Mutex::new(Vec::new()) }
    }

    /// The value, if it was set.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value and calls the waiters in the order in which they came. A second value is dropped.
    pub(crate) fn set(&self, value: T) {
        if self.value.set(value).is_err() {
            return;
        }
        let waiters = std::mem::take(&mut *self.lock());
        let value = self.value.get().expect("set above");
        for waiter in waiters {
            // Waiters belong to different callers, and the setting thread has more to do than any of them.
            let _ = panics::catch(|| waiter(value));
        }
    }

    /// Calls `waiter` with the value as soon as there is one.
    pub(crate) fn when_set(&self, waiter: impl FnOnce(&T) + Send + 'static) {
        {
            let mut waiters = self.lock();
            // Read under the lock: `set` publishes the value before it takes the list.
            if self.value.get().is_none() {
                waiters.push(Box::new(waiter));
                return;
            }
        }
        waiter(self.value.get().expect("seen above"));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiter<T>>> {
        self.waiters.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;

    #[test]
    fn every_waiter_gets_the_first_value_once() {
        let once = Arc::new(Once::new());
        let (sender, receiver) = mpsc::channel();
        for name in ["first", "second"] {
            let sender = sender.clone();
            once.when_set(move |value: &u32| sender.send((name, *value)).unwrap());
        }
        once.set(7);
        once.set(8);
        once.when_set(move |value| sender.send(("late", *value)).unwrap());
        let heard: Vec<_> = receiver.iter().collect();
        assert_eq!(heard, [("first", 7), ("second", 7), ("late", 7)]);
    }

    #[test]
    fn a_waiter_that_panics_leaves_nobody_behind() {
        let once = Arc::new(Once::new());
        let (sender, receiver) = mpsc::channel();
        let after = sender.clone();
        once.when_set(move |value: &u32| sender.send(*value).unwrap());
        once.when_set(|_| panic!("told to"));
        once.when_set(move |value| after.send(*value + 1).unwrap());
        let setting = once.clone();
        let thread = std::thread::Builder::new().name("simile-test".to_owned());
        thread.spawn(move || setting.set(7)).unwrap().join().expect("the setting thread went on");
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn waiters_that_race_with_the_value_are_all_called() {
        for _ in 0..200 {
            let once = Arc::new(Once::new());
            let (sender, receiver) = mpsc::channel();
            let start = Arc::new(std::sync::Barrier::new(3));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let (once, sender, start) = (once.clone(), sender.clone(), start.clone());
                    scope.spawn(move || {
                        start.wait();
                        once.when_set(move |value: &u32| sender.send(*value).unwrap());
                    });
                }
                start.wait();
                once.set(1);
            });
            drop(sender);
            assert_eq!(receiver.iter().count(), 2);
        }
    }
}
