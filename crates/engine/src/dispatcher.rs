//! The thread that computes: rank 0 of the pool, one for all models of the process.
//!
//! It takes one step after the other from the queue: tokenise a call's texts, or run a micro-batch. While a bulk
//! micro-batch runs, the thread of the pool that passes a checkpoint first and finds an interactive call lets that run
//! in place, alone and with memory of its own, then goes on: a query waits for one layer.
//!
//! Calls that were not begun in their time are given up here: before each step, and at each checkpoint. There is no timer,
//! since a call only waits while this thread has something to do.
//!
//! Cost: a call that finds the queue empty costs one wake-up of this thread (30 to 50 µs when it sleeps in the kernel);
//! so it looks for work a little longer before it sleeps, see [`SPIN`]. Between two layers the interlude costs two
//! atomic loads.
//!
//! The thread starts with the first call and stays. It holds nothing that must be let go of at the end of the process:
//! no destructor runs there, and the exit of the process does not wait for it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use simile_encoder::Flow;

use crate::batch::{self, Workspace};
use crate::failure::Failure;
use crate::job::{Job, Priority};
use crate::panics;
use crate::queue::{MicroBatch, Queue, Step};
use crate::tokenise;

/// How long the dispatcher looks for more work before it sleeps: about the time that JavaScript takes from a settled
/// promise to its next call, so that a program which embeds one text after the other never meets a sleeping thread.
const SPIN: Duration = Duration::from_micros(200);

/// A yield that takes longer says that others want the processor. A thread that sleeps gets it back sooner, when it is
/// woken, than one that waits for its turn.
const BUSY: Duration = Duration::from_micros(50);

/// After that much sleep, the memory of past micro-batches goes back to the system.
const TRIM_AFTER: Duration = Duration::from_secs(10);

/// Work of a bulk micro-batch for each thread, in floating-point operations: about 3,800 tokens of a 6-layer MiniLM.
/// Enough whole texts that the threads finish together; interactive calls do not wait for it, only for a layer.
const BULK_WORK: u64 = 80_000_000_000;

/// Work of an interactive piece: what one thread does in place between two layers of a bulk micro-batch, about 950
/// tokens of a 6-layer MiniLM.
const INTERACTIVE_WORK: u64 = 20_000_000_000;

/// An interactive call with more bytes of text than that is tokenised by all threads: half a millisecond for one of them.
const ALONE_BYTES: usize = 4096;

/// What the dispatcher shares with those who submit and cancel.
pub(crate) struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// Whether any call waits: what the spinning dispatcher reads.
    pending: AtomicBool,
    /// How many interactive calls wait or are partly done: what checkpoints read.
    interactive: AtomicUsize,
    /// When the first of the calls that were not begun is given up, in nanoseconds since `epoch`: what checkpoints read.
    deadline: AtomicU64,
    epoch: Instant,
    threads: AtomicUsize,
    /// Workspaces of one thread, for interactive work in place.
    solos: Mutex<Vec<Workspace>>,
}

struct State {
    queue: Queue,
    asleep: bool,
    stop: bool,
}

impl Shared {
    /// `limit`: the most bytes of calls that wait in a lane.
    pub(crate) fn new(threads: usize, limit: usize) -> Shared {
        Shared {
            state: Mutex::new(State { queue: Queue::new(limit), asleep: false, stop: false }),
            wake: Condvar::new(),
            pending: AtomicBool::new(false),
            interactive: AtomicUsize::new(0),
            deadline: AtomicU64::new(u64::MAX),
            epoch: Instant::now(),
            threads: AtomicUsize::new(threads),
            solos: Mutex::default(),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    pub(crate) fn set_threads(&self, threads: usize) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// How many calls wait or are partly done, as (interactive, bulk).
    pub(crate) fn depth(&self) -> (usize, usize) {
        self.lock().queue.depth()
    }

    /// Puts a call into its lane and wakes the dispatcher.
    ///
    /// # Errors
    /// `Overloaded` when the lane is full.
    pub(crate) fn push(&self, job: Arc<Job>) -> Result<(), Failure> {
        let mut state = self.lock();
        state.queue.push(job)?;
        self.publish(&state.queue);
        if state.asleep {
            drop(state);
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Takes a settled call out of the queue.
    pub(crate) fn forget(&self, id: u64) {
        // Dropped after the lock is released: the last owner of a job frees its texts.
        let _job = self.with_queue(|queue| queue.remove(id));
    }

    /// Ends the dispatcher after the step that it is in, and gives back the calls that wait.
    pub(crate) fn stop(&self) -> Vec<Arc<Job>> {
        let mut state = self.lock();
        state.stop = true;
        let jobs = state.queue.drain();
        self.publish(&state.queue);
        drop(state);
        self.wake.notify_one();
        jobs
    }

    /// The life of the dispatcher. A panic between two steps (in the queue, or in making a workspace) is not that of one
    /// call: all that wait fail, because the next turn could meet it again, and the dispatcher starts afresh.
    pub(crate) fn dispatch(&self) {
        let mut workspace = None;
        loop {
            match panics::catch(|| self.turn(&mut workspace)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(panic) => {
                    let _ = panics::catch(|| workspace = None);
                    self.abandon(&panic);
                }
            }
        }
    }

    /// Waits for a step and does it. `false` when the engine stops.
    fn turn(&self, workspace: &mut Option<Workspace>) -> bool {
        if !self.wait(workspace) {
            return false;
        }
        let threads = self.threads();
        let workspace = match workspace {
            Some(workspace) if workspace.threads == threads => workspace,
            // The old pool's threads end before the new one's start.
            other => {
                *other = None;
                other.insert(Workspace::new(threads))
            }
        };
        self.give_up();
        if let Some(step) = self.with_queue(|queue| queue.next(|priority| budget(priority, threads))) {
            self.perform(step, workspace, true);
        }
        true
    }

    /// Fails all calls that wait.
    fn abandon(&self, panic: &str) {
        for job in self.with_queue(Queue::drain) {
            // The last owner of a job lets go of what the caller gave.
            let _ = panics::catch(move || job.fail(panics::failure("the dispatcher", panic)));
        }
    }

    /// Fails the calls that were not begun in their time.
    fn give_up(&self) {
        let deadline = self.deadline.load(Ordering::Relaxed);
        if deadline == u64::MAX || self.since_epoch(Instant::now()) < deadline {
            return;
        }
        for job in self.with_queue(|queue| queue.expired(Instant::now())) {
            if let Some(wait) = job.order.max_wait {
                job.fail(wait.failure());
            }
        }
    }

    fn since_epoch(&self, at: Instant) -> u64 {
        // 584 years fit.
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// One interactive micro-batch, if any waits, on the calling thread alone.
    fn interlude(&self) {
        if self.interactive.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut solo = lock(&self.solos).pop();
        while let Some(step) = self.with_queue(|queue| queue.next_interactive(budget(Priority::Interactive, 1))) {
            let computed = matches!(step, Step::Encode(_));
            self.perform(step, solo.get_or_insert_with(|| Workspace::new(1)), false);
            if computed {
                break;
            }
        }
        lock(&self.solos).extend(solo);
    }

    /// Does one step. `top`: by the dispatcher itself, with the whole pool; else by a thread of the pool, in place.
    fn perform(&self, step: Step, workspace: &mut Workspace, top: bool) {
        let jobs = match &step {
            Step::Tokenise(job) => vec![job.clone()],
            Step::Encode(batch) => batch.shares.iter().map(|share| share.job.clone()).collect(),
        };
        // Models, tokenizers and callers' functions are caught where they are called. This is for bugs of the engine:
        // no call may wait for ever, and the dispatcher goes on.
        let done = panics::catch(|| match step {
            Step::Tokenise(job) => self.tokenise(&job, workspace, top),
            Step::Encode(batch) => self.encode(batch, workspace, top),
        });
        if let Err(panic) = done {
            jobs.iter().for_each(|job| job.fail(panics::failure("the dispatcher", &panic)));
        }
    }

    fn tokenise(&self, job: &Job, workspace: &Workspace, top: bool) {
        let priority = job.order.priority;
        let bulk = priority == Priority::Bulk;
        let order = &job.order;
        let long = || (0..order.texts.len()).map(|text| order.bytes(text)).sum::<usize>() > ALONE_BYTES;
        let pool = (top && (bulk || long())).then_some(&workspace.pool);
        let pause = || {
            if job.is_settled() {
                return Flow::Stop;
            }
            self.give_up();
            if bulk && top {
                self.interlude();
            }
            Flow::Continue
        };
        // A piece of an interactive call must suit a single thread, which may run it in place.
        let piece = budget(priority, if bulk { self.threads() } else { 1 });
        match tokenise::next_slice(job, pool, piece, &pause) {
            Err(failure) => job.fail(failure),
            Ok(None) => self.forget(job.id),
            Ok(Some(slice)) => {
                self.with_queue(|queue| queue.tokenised(job, slice.pieces, slice.more));
                if !job.order.kind.computes() && !slice.more {
                    job.finish();
                }
            }
        }
    }

    fn encode(&self, batch: MicroBatch, workspace: &mut Workspace, top: bool) {
        let bulk = batch.priority == Priority::Bulk;
        batch::run(batch, workspace, &|| {
            self.give_up();
            if bulk && top {
                self.interlude();
            }
        });
    }

    /// Waits for work: first awake, then asleep. `false` when the engine stops.
    fn wait(&self, workspace: &mut Option<Workspace>) -> bool {
        let start = Instant::now();
        let mut last = start;
        while !self.pending.load(Ordering::Acquire) {
            // Yielding gives the JavaScript thread, which is about to bring the work, the processor when all are busy.
            std::thread::yield_now();
            let now = Instant::now();
            if now - last > BUSY || now - start > SPIN {
                break;
            }
            last = now;
        }
        let mut state = self.lock();
        if state.queue.is_empty() {
            state.queue.rest();
        }
        let mut trimmed = false;
        while state.queue.is_empty() && !state.stop {
            state.asleep = true;
            if trimmed {
                state = self.wake.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            } else {
                let (woken, timeout) =
                    self.wake.wait_timeout(state, TRIM_AFTER).unwrap_or_else(|poisoned| poisoned.into_inner());
                state = woken;
                if timeout.timed_out() && state.queue.is_empty() {
                    drop(state);
                    workspace.iter_mut().for_each(Workspace::trim);
                    lock(&self.solos).clear();
                    trimmed = true;
                    state = self.lock();
                }
            }
            state.asleep = false;
        }
        !state.stop
    }

    fn with_queue<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        let mut state = self.lock();
        let result = work(&mut state.queue);
        self.publish(&state.queue);
        result
    }

    /// Tells those who look without a lock. Called under the lock, after each change of the queue.
    fn publish(&self, queue: &Queue) {
        let (interactive, bulk) = queue.depth();
        self.interactive.store(interactive, Ordering::Relaxed);
        let deadline = queue.deadline().map_or(u64::MAX, |at| self.since_epoch(at));
        self.deadline.store(deadline, Ordering::Relaxed);
        self.pending.store(interactive + bulk > 0, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The most estimated work of a micro-batch on so many threads.
fn budget(priority: Priority, threads: usize) -> u64 {
    let each = match priority {
        Priority::Interactive => INTERACTIVE_WORK,
        Priority::Bulk => BULK_WORK,
    };
    each * threads as u64
}

/// Locks what no panic can leave half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::failure::{ErrorKind, Failure};
    use crate::job::{Finished, Order};
    use crate::model::Model;
    use crate::model::fake::Named;

    fn counting(model: Arc<dyn Model>) -> (Arc<Job>, Receiver<Result<Finished, Failure>>) {
        let order = Order::counting(vec!["a".to_owned()]);
        let (sender, receiver) = channel();
        let done = Box::new(move |result| sender.send(result).unwrap());
        (Job::new(model, Arc::default(), order, &[], Weak::new(), done), receiver)
    }

    #[test]
    fn a_panic_between_two_steps_fails_the_calls_that_wait_and_the_dispatcher_goes_on() {
        let shared = Arc::new(Shared::new(1, usize::MAX));
        // The queue is the last owner of a settled call, and lets go of it when it looks for the next step: the model's
        // destructor panics there, under the lock.
        let (settled, _heard) = counting(Arc::new(Named { drop_panics: true }));
        settled.fail(Failure::cancelled());
        shared.push(settled).unwrap();
        let (waiting, answer) = counting(Arc::new(Named::default()));
        shared.push(waiting).unwrap();
        let dispatching = shared.clone();
        let thread = std::thread::Builder::new().name("simile-test".to_owned());
        let thread = thread.spawn(move || dispatching.dispatch()).unwrap();

        let failure = answer.recv_timeout(Duration::from_secs(60)).expect("answered").unwrap_err();
        assert_eq!(failure.kind, ErrorKind::TaskFailed);
        assert!(failure.message.contains("told to"), "{failure}");
        assert_eq!(shared.depth(), (0, 0));

        let (next, answer) = counting(Arc::new(Named::default()));
        shared.push(next).unwrap();
        let finished = answer.recv_timeout(Duration::from_secs(60)).expect("answered").unwrap();
        assert_eq!(finished.tokens.total, [1]);
        shared.stop();
        thread.join().expect("no panic got out");
    }
}
