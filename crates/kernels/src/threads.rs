//! A pool of threads for parallel regions that last microseconds.
//!
//! [`ThreadPool::run`] calls one closure on every thread at once; the closure shares the work out by rank, and may meet
//! the other ranks at a [barrier](Team::barrier). A parked thread takes 30 to 90 us to wake, longer than a layer of a
//! short text, so workers spin between regions for [`SPIN`] and park only then. On a host with fewer CPUs than threads
//! nobody spins: a spinning thread would keep a working one from its CPU.
//!
//! Invariants:
//! - `run` returns, or panics, only after every rank has left the closure, so the closure may borrow.
//! - A panic of a rank releases the ranks that wait at a barrier (they unwind too), is resumed on the caller, and leaves
//!   the pool usable.
//! - Regions of one pool run one after the other. `run` inside a region, of any pool, runs the closure on the calling
//!   thread alone as a team of one, so that it cannot wait for itself.
//!
//! Cost: some 0.2 us per region or barrier while the workers spin.

mod barrier;
mod gate;

use barrier::Barrier;
use gate::Gate;
use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use gate::SPIN;

thread_local! {
    /// Whether this thread is inside a region.
    static IN_REGION: Cell<bool> = const { Cell::new(false) };
}

/// The closure of a region.
type Region<'a> = &'a (dyn Fn(Team<'_>) + Sync + 'a);

/// Threads that wait for parallel regions. The thread that calls [`ThreadPool::run`] is one of them; the others are named
/// `simile-compute-1` and so on. Dropping the pool ends and joins them.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by the caller of `run`, for its region.
    turn: Mutex<()>,
}

/// What the threads of a pool share.
struct Shared {
    /// Regions begun so far. A worker that has seen fewer takes part in the next.
    begun: AtomicU64,
    /// The running region, a reference on the stack of the caller of `run`. Written before `begun` rises, read by workers
    /// after they saw it rise and before they leave `inside`.
    region: AtomicPtr<Region<'static>>,
    /// Workers still inside the running region.
    inside: AtomicUsize,
    shutdown: AtomicBool,
    /// Where workers wait for a region, and the caller for the workers.
    begin: Gate,
    end: Gate,
    barrier: Barrier,
    /// The first panic of the running region.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl ThreadPool {
    /// A pool of `threads` threads, the caller's included; 0 counts as 1.
    ///
    /// If the system refuses a thread, the pool goes without it: [`ThreadPool::threads`] says how many there are. Results
    /// never depend on the number.
    pub fn new(threads: usize) -> ThreadPool {
        let wanted = threads.max(1);
        let crowded = std::thread::available_parallelism().is_ok_and(|cpus| wanted > cpus.get());
        let spin = if crowded { Duration::ZERO } else { SPIN };
        let shared = Arc::new(Shared {
            begun: AtomicU64::new(0),
            region: AtomicPtr::new(null_mut()),
            inside: AtomicUsize::new(0),
            shutdown: AtomicBool::new(false),
            begin: Gate::new(spin),
            end: Gate::new(spin),
            barrier: Barrier::new(spin),
            panic: Mutex::new(None),
        });
        let start = Arc::new(AtomicUsize::new(0));
        let mut workers = Vec::new();
        for rank in 1..wanted {
            let (shared, start) = (shared.clone(), start.clone());
            let builder = std::thread::Builder::new().name(format!("simile-compute-{rank}"));
            match builder.spawn(move || work(&shared, rank, &start)) {
                Ok(worker) => workers.push(worker),
                Err(_) => break,
            }
        }
        // Only now is the team's size known.
        start.store(workers.len() + 1, Ordering::Release);
        for worker in &workers {
            worker.thread().unpark();
        }
        ThreadPool { shared, workers, turn: Mutex::new(()) }
    }

    /// How many threads compute, the caller of [`ThreadPool::run`] included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f` on every thread of the pool at once and returns when all are done. The caller is rank 0.
    ///
    /// Inside a region (of this or another pool) `f` is called once, on the calling thread, with a team of one.
    ///
    /// # Panics
    /// If a rank panics: with the payload of the first that did, after all have left.
    pub fn run(&self, f: &(dyn Fn(Team<'_>) + Sync)) {
        if self.workers.is_empty() || IN_REGION.get() {
            return f(Team::solo());
        }
        // A panic is resumed below, with the lock held; it guards nothing that the panic could have broken.
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        shared.barrier.reset();
        let region: Region<'_> = f;
        // The lifetimes are dropped here: the workers use the pointer only while this function waits for them.
        shared.region.store((&raw const region).cast_mut().cast(), Ordering::Relaxed);
        shared.inside.store(self.workers.len(), Ordering::Relaxed);
        shared.begun.fetch_add(1, Ordering::SeqCst);
        shared.begin.open();

        shared.call(region, Team { barrier: Some(&shared.barrier), rank: 0, size: self.threads() });

        shared.end.wait(|| shared.inside.load(Ordering::SeqCst) == 0);
        shared.region.store(null_mut(), Ordering::Relaxed);
        let panic = lock(&shared.panic).take();
        drop(turn);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, Ordering::SeqCst);
        self.shared.begin.open();
        for worker in self.workers.drain(..) {
            // A worker catches every panic of a region, so there is no error to hand on.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Calls the closure as one rank; a panic is kept and releases the others.
    fn call(&self, f: Region<'_>, team: Team<'_>) {
        IN_REGION.set(true);
        // Unwind safety: the caller of `run` sees the panic, and what `f` borrows is its own.
        let result = catch_unwind(AssertUnwindSafe(|| f(team)));
        IN_REGION.set(false);
        if let Err(payload) = result {
            if !payload.is::<barrier::Poisoned>() {
                lock(&self.panic).get_or_insert(payload);
            }
            self.barrier.poison();
        }
    }
}

/// The life of a worker.
fn work(shared: &Shared, rank: usize, start: &AtomicUsize) {
    let mut size = start.load(Ordering::Acquire);
    while size == 0 {
        std::thread::park();
        size = start.load(Ordering::Acquire);
    }
    let mut seen = 0;
    loop {
        shared.begin.wait(|| shared.begun.load(Ordering::SeqCst) != seen || shared.shutdown.load(Ordering::SeqCst));
        if shared.begun.load(Ordering::SeqCst) == seen {
            return;
        }
        seen += 1;
        // SAFETY: `run` has stored a reference to the closure, and waits until `inside` is 0 before either goes.
        let region = unsafe { *shared.region.load(Ordering::Relaxed) };
        shared.call(region, Team { barrier: Some(&shared.barrier), rank, size });
        if shared.inside.fetch_sub(1, Ordering::SeqCst) == 1 {
            shared.end.open();
        }
    }
}

/// Nothing that these mutexes guard can be left half changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's place in a parallel region.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    barrier: Option<&'a Barrier>,
    rank: usize,
    size: usize,
}

impl Team<'_> {
    /// A team of one: its barrier waits for nobody.
    pub fn solo() -> Team<'static> {
        Team { barrier: None, rank: 0, size: 1 }
    }

    /// This thread's number, from 0 to `size() - 1`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many threads are in the region.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Waits until every rank is here. What they wrote before it can be read behind it.
    ///
    /// # Panics
    /// If another rank has panicked, since it will never arrive. [`ThreadPool::run`] reports that rank's panic.
    pub fn barrier(&self) {
        if let Some(barrier) = self.barrier {
            barrier.wait(self.size);
        }
    }

    /// This rank's share of `0..n`: consecutive, in the order of the ranks, the first ones longer by one at most.
    pub fn split(&self, n: usize) -> Range<usize> {
        let (share, longer) = (n / self.size, n % self.size);
        let start = self.rank * share + self.rank.min(longer);
        start..start + share + usize::from(self.rank < longer)
    }
}

impl std::fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Team({} of {})", self.rank, self.size)
    }
}
