//! One micro-batch through its model, and its rows to their calls.
//!
//! Contract: whatever happens, each call of the batch either gets its rows, or fails with a failure of its own, or was
//! settled before. A panic, or an error of the batch as a whole, does not say whose fault it was: the calls are then
//! tried once more, each alone, and only those that fail again fail.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use simile_encoder::{Context, EncodeError, Flow, Scratch};
use simile_kernels::ThreadPool;
use simile_pipeline::{Outputs, Tokens};

use crate::convert;
use crate::failure::{ErrorKind, Failure};
use crate::job::Job;
use crate::panics;
use crate::queue::{MicroBatch, Share};

/// What a thread that runs micro-batches owns.
pub(crate) struct Workspace {
    pub(crate) pool: ThreadPool,
    /// Threads that were asked for; the system may have given fewer.
    pub(crate) threads: usize,
    scratch: Scratch,
    /// The rows of one micro-batch before they go to their calls.
    outputs: Outputs,
}

impl Workspace {
    pub(crate) fn new(threads: usize) -> Workspace {
        Workspace { pool: ThreadPool::new(threads), threads, scratch: Scratch::new(), outputs: Outputs::default() }
    }

    /// Gives the memory of past micro-batches back.
    pub(crate) fn trim(&mut self) {
        self.scratch = Scratch::new();
        self.outputs = Outputs::default();
    }
}

/// Runs `batch` and settles or advances its calls. `interlude` is called at each checkpoint and may take its time.
pub(crate) fn run(mut batch: MicroBatch, workspace: &mut Workspace, interlude: &(dyn Fn() + Sync)) {
    batch.shares.retain(|share| !share.job.is_settled());
    let Err(failure) = attempt(&batch.shares, batch.width, workspace, interlude) else { return };
    if let [share] = &batch.shares[..] {
        return share.job.fail(failure);
    }
    for share in &batch.shares {
        if let Err(failure) = attempt(std::slice::from_ref(share), batch.width, workspace, interlude) {
            share.job.fail(failure);
        }
    }
}

fn attempt(
    shares: &[Share],
    width: Option<usize>,
    workspace: &mut Workspace,
    interlude: &(dyn Fn() + Sync),
) -> Result<(), Failure> {
    let rows: Vec<&Tokens> = shares.iter().flat_map(|share| share.piece.rows.iter().map(|row| &row.tokens)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let Workspace { pool, scratch, outputs, .. } = workspace;
    outputs.clear();

    let clock = LayerClock::start();
    let checkpoint = || {
        clock.tick(shares);
        if shares.iter().all(|share| share.job.is_settled()) {
            return Flow::Stop;
        }
        interlude();
        clock.restart();
        Flow::Continue
    };
    let model = &shares[0].job.model;
    let encoded = panics::catch(|| {
        let mut context = Context { pool, scratch: &mut *scratch, checkpoint: &checkpoint };
        model.encode(&rows, width, outputs, &mut context)
    });
    let took = clock.started.elapsed();
    let results = match encoded {
        Ok(Ok(results)) if results.len() == rows.len() && outputs.len() == rows.len() => results,
        Ok(Ok(results)) => {
            let message =
                format!("the model gave {} results and {} rows for {} texts", results.len(), outputs.len(), rows.len());
            return Err(Failure::new(ErrorKind::Internal, message));
        }
        Ok(Err(EncodeError::Stopped)) => return Ok(()),
        Ok(Err(error)) => return Err(convert::encode(error, |row| nth_index(shares, row))),
        Err(panic) => {
            *scratch = Scratch::new();
            return Err(panics::failure("the model", &panic));
        }
    };

    let longest = rows.iter().map(|tokens| tokens.ids.len()).max().unwrap_or_default();
    let work: u64 = shares.iter().map(|share| share.piece.work).sum();
    let mut first = 0;
    for (nth, share) in shares.iter().enumerate() {
        let (job, of_batch) = (&share.job, &share.piece.rows);
        let part = first..first + of_batch.len();
        first = part.end;
        // A micro-batch that holds many calls of one model is one.
        let first_of_model = !shares[..nth].iter().any(|other| Arc::ptr_eq(&other.job.statistics, &job.statistics));
        job.statistics.batch(first_of_model, took.mul_f64(share.piece.work as f64 / work.max(1) as f64));
        // Rows of a call are in the order of the plan; the failure names the first text of the call that has one.
        let bad = of_batch
            .iter()
            .zip(&results[part.clone()])
            .filter_map(|(row, result)| result.as_ref().err().map(|error| (row.index, error)));
        if let Some((index, error)) = bad.min_by_key(|(index, _)| *index) {
            job.fail(Failure::new(ErrorKind::InferenceFailed, error.to_string()).at(index));
            continue;
        }
        // Vectors that nobody gets are not counted: the tokens of a cancelled call stand still.
        if job.is_settled() {
            continue;
        }
        count(job, share, longest);
        job.write(width, of_batch.iter().map(|row| row.index).zip(part.map(|row| outputs.row(row))));
    }
    Ok(())
}

fn count(job: &Arc<Job>, share: &Share, longest: usize) {
    for row in &share.piece.rows {
        let (total, embedded) = job.counts(row.index);
        job.statistics.embedded(row.tokens.ids.len(), total > embedded, longest);
    }
}

/// The position in its call of the batch's row `row`.
fn nth_index(shares: &[Share], row: usize) -> Option<usize> {
    shares.iter().flat_map(|share| &share.piece.rows).nth(row).map(|row| row.index)
}

/// Measures the time between checkpoints, on whichever thread they come.
struct LayerClock {
    serial: u64,
    started: Instant,
}

thread_local! {
    /// The batch whose checkpoint this thread passed last, and when.
    static LAST: Cell<(u64, Option<Instant>)> = const { Cell::new((0, None)) };
}

impl LayerClock {
    fn start() -> LayerClock {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        LayerClock { serial: NEXT.fetch_add(1, Ordering::Relaxed), started: Instant::now() }
    }

    fn tick(&self, shares: &[Share]) {
        let since = match LAST.get() {
            (serial, Some(last)) if serial == self.serial => last,
            _ => self.started,
        };
        let took: Duration = since.elapsed();
        for share in shares {
            share.job.statistics.layer(took);
        }
    }

    fn restart(&self) {
        LAST.set((self.serial, Some(Instant::now())));
    }
}
