//! Which work comes next: the one place of the scheduling policy.
//!
//! All calls of all models wait here, in two lanes. The policy:
//! - the interactive lane goes first; within a lane calls go in the order in which they came;
//! - bulk has a share: while it waits, interactive work of at most [`SHARE`] times what bulk last got goes before it, in
//!   estimated operations. So bulk gets at least a tenth of the computing however much interactive work comes, and a
//!   bulk call that finds its lane empty waits for one interactive micro-batch at most. The share also covers the
//!   interactive work that is let in between the layers of a bulk micro-batch, so a flood of it cannot hold that up;
//! - a call's texts are tokenised when its turn comes, [`WINDOW`] texts or [`WINDOW_BYTES`] bytes ahead at most, and
//!   planned into micro-batches of at most its `batch_size` texts and the lane's work budget;
//! - a call that needs no vectors (token counts, chunks) does not wait for the micro-batches of the calls before it: between
//!   two micro-batches of its lane one window of texts is counted, of the call that has waited longest;
//! - a micro-batch that has room is filled up with more pieces of the call, as far as its `batch_size` allows, then with
//!   those of the next [`LOOKAHEAD`] calls, if they are for the same model and dimensions. Calls that come while a
//!   micro-batch runs share the next one by this, so nobody waits for a window of time in which calls are collected.
//!
//! A lane has a limit in bytes: a call that would pass it is refused, unless the lane is empty. Each lane has its own,
//! so that a flood of bulk calls refuses no query. A call may also say how long it waits: it is given up when its first
//! text was not begun by then.
//!
//! Contract: the queue computes nothing and starts nothing. [`Queue::next`] hands out a step; a `Tokenise` step must be
//! answered with [`Queue::tokenised`] (or [`Queue::remove`]), and until then nobody else gets that call. Settled calls
//! are skipped and dropped.
//!
//! Cost: a step looks at [`LOOKAHEAD`] calls at most, and finding a call takes the logarithm of their number: 100,000
//! waiting calls cost each of them what a hundred do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use simile_pipeline::Tokens;

use crate::failure::Failure;
use crate::job::{Job, Kind, Priority};
use crate::tokenise;

/// The most texts of one call that are tokenised before the first of them is computed: bounds the memory of huge calls,
/// and sorting by length within so many loses nothing measurable to sorting all.
pub(crate) const WINDOW: usize = 4096;

/// The same in bytes of text, save for a text that is longer, which is a window of its own: 0.4 s of tokenising for one
/// thread.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;

/// Interactive work for each unit of bulk work while bulk waits: bulk gets a tenth.
const SHARE: i64 = 9;

/// How many calls are looked at to fill a micro-batch. So many of the shortest texts are enough for full speed.
const LOOKAHEAD: usize = 256;

/// Work of tokenising a byte, in floating-point operations that take as long: 0.4 us at 150 GFLOP/s.
const BYTE_WORK: u64 = 60_000;

/// What a text counts for besides its bytes, as so many more: an empty one is handed over and gets its tokens too.
const TEXT_BYTES: u64 = 32;

/// One text of a call, ready to compute.
#[derive(Debug)]
pub(crate) struct TokenRow {
    /// Position in the call.
    pub(crate) index: usize,
    /// It, after truncation.
    pub(crate) tokens: Tokens,
}

/// Texts of one call that are computed together.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) rows: Vec<TokenRow>,
    /// Estimated work in floating-point operations.
    pub(crate) work: u64,
}

/// The piece of one call in a micro-batch.
pub(crate) struct Share {
    pub(crate) job: Arc<Job>,
    pub(crate) piece: Piece,
}

/// Texts that run through the model together: pieces of one or more calls of one model, one width of rows.
pub(crate) struct MicroBatch {
    pub(crate) shares: Vec<Share>,
    /// Values of each row; `None` when each row has a length of its own.
    pub(crate) width: Option<usize>,
    pub(crate) priority: Priority,
}

/// What to do next.
pub(crate) enum Step {
    /// Tokenise the next texts of this call.
    Tokenise(Arc<Job>),
    /// Compute this.
    Encode(MicroBatch),
}

/// A call in its lane. While it is there its model's statistics count it as waiting.
struct Entry {
    job: Arc<Job>,
    /// Somebody tokenises its next texts now.
    busy: bool,
    /// Some of its texts are not tokenised yet.
    more: bool,
    pieces: VecDeque<Piece>,
    /// Texts that were not handed out to be computed.
    waiting: usize,
}

impl Entry {
    fn new(job: Arc<Job>) -> Entry {
        let waiting = job.order.texts.len();
        job.statistics.entered(waiting);
        Entry { job, busy: false, more: true, pieces: VecDeque::new(), waiting }
    }

    /// Hands out the next texts, and what that costs.
    fn tokenise(&mut self) -> (Step, u64) {
        self.busy = true;
        let order = &self.job.order;
        let texts = tokenise::window(order, self.job.cursor());
        let bytes = texts.fold(0_u64, |bytes, text| bytes.saturating_add(order.bytes(text) as u64 + TEXT_BYTES));
        // To be cut, a text is tokenised as a whole and then in its chunks.
        let passes = if matches!(order.kind, Kind::Chunk(_)) { 2 } else { 1 };
        (Step::Tokenise(self.job.clone()), bytes.saturating_mul(passes * BYTE_WORK))
    }

    /// How many of the planned pieces still fit. A piece larger than the budget runs alone.
    fn fitting(&self, mut work: u64, budget: u64, mut alone: bool) -> usize {
        let mut rows = 0;
        let fits = |piece: &&Piece| {
            rows += piece.rows.len();
            work = work.saturating_add(piece.work);
            let first = std::mem::take(&mut alone);
            first || (work <= budget && rows <= self.job.order.batch_size)
        };
        self.pieces.iter().take_while(fits).count()
    }

    fn take(&mut self, pieces: usize) -> Share {
        let mut piece = Piece { rows: Vec::new(), work: 0 };
        for Piece { rows, work } in self.pieces.drain(..pieces) {
            piece.rows.extend(rows);
            piece.work = piece.work.saturating_add(work);
        }
        self.waiting -= piece.rows.len();
        self.job.statistics.begun(piece.rows.len());
        Share { job: self.job.clone(), piece }
    }

    fn is_done(&self) -> bool {
        !self.busy && !self.more && self.pieces.is_empty()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.job.statistics.left(self.waiting);
    }
}

/// Calls by their numbers, which are in the order in which they came.
type Calls = BTreeMap<u64, Entry>;

#[derive(Default)]
struct Lane {
    /// Calls for vectors.
    embeds: Calls,
    /// Calls that end with the tokens.
    counts: Calls,
    /// A window was counted since the last micro-batch of the lane.
    counted: bool,
    /// What all of them hold: see [`Job::bytes`].
    bytes: usize,
}

/// The calls that wait.
pub(crate) struct Queue {
    interactive: Lane,
    bulk: Lane,
    /// Interactive work that may still go before bulk work that waits; below zero it is the turn of bulk.
    balance: i64,
    /// When calls that were not begun are given up, with their numbers.
    deadlines: BTreeSet<(Instant, u64)>,
    /// The most bytes of a lane.
    limit: usize,
}

impl Queue {
    /// A queue whose lanes hold `limit` bytes each.
    pub(crate) fn new(limit: usize) -> Queue {
        Queue { interactive: Lane::default(), bulk: Lane::default(), balance: 0, deadlines: BTreeSet::new(), limit }
    }

    /// Puts a call at the end of its lane.
    ///
    /// # Errors
    /// `Overloaded` when the lane is full. Nothing of the call is kept.
    pub(crate) fn push(&mut self, job: Arc<Job>) -> Result<(), Failure> {
        let (priority, limit) = (job.order.priority, self.limit);
        let lane = self.lane(priority);
        let bytes = lane.bytes.saturating_add(job.bytes);
        if bytes > limit && lane.depth() > 0 {
            return Err(overloaded(priority, bytes, limit));
        }
        lane.bytes = bytes;
        let deadline = job.order.max_wait.map(|wait| wait.deadline());
        self.deadlines.extend(deadline.map(|at| (at, job.id)));
        self.lane(priority).calls(job.order.kind).insert(job.id, Entry::new(job));
        Ok(())
    }

    /// How many calls wait or are partly done, as (interactive, bulk).
    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.interactive.depth(), self.bulk.depth())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.depth() == (0, 0)
    }

    /// Forgets what bulk work is owed: nobody waits.
    pub(crate) fn rest(&mut self) {
        self.balance = 0;
    }

    /// The next step of any lane, while none of the bulk lane is being done. `budget` is the most estimated work of a
    /// micro-batch of a lane.
    pub(crate) fn next(&mut self, budget: impl Fn(Priority) -> u64) -> Option<Step> {
        use Priority::{Bulk, Interactive};
        if self.bulk.depth() == 0 {
            self.rest();
        }
        let order = if self.balance < 0 { [Bulk, Interactive] } else { [Interactive, Bulk] };
        order.into_iter().find_map(|priority| self.take(priority, budget(priority)))
    }

    /// The next step of the interactive lane, while one of the bulk lane is being done, unless bulk had too little.
    pub(crate) fn next_interactive(&mut self, budget: u64) -> Option<Step> {
        if self.balance < 0 { None } else { self.take(Priority::Interactive, budget) }
    }

    /// A step of one lane; books its work.
    fn take(&mut self, priority: Priority, budget: u64) -> Option<Step> {
        let (step, work) = self.lane(priority).step(budget)?;
        let work = i64::try_from(work).unwrap_or(i64::MAX);
        self.balance = match priority {
            Priority::Interactive => self.balance.saturating_sub(work),
            Priority::Bulk => {
                let earned = work.saturating_mul(SHARE);
                // What bulk got while nobody else waited is no reason to hold it back later.
                self.balance.saturating_add(earned).min(earned.max(self.balance))
            }
        };
        if let Step::Tokenise(job) = &step {
            self.no_deadline(job);
        }
        Some(step)
    }

    /// Answers a `Tokenise` step: the pieces that were made of it, and whether texts are left for another.
    pub(crate) fn tokenised(&mut self, job: &Job, pieces: Vec<Piece>, more: bool) {
        let lane = self.lane(job.order.priority);
        // A call that settled meanwhile is not there any more.
        let Some(entry) = lane.calls(job.order.kind).get_mut(&job.id) else { return };
        entry.busy = false;
        entry.more = more;
        entry.pieces.extend(pieces);
        if entry.is_done() {
            lane.remove(job.id);
        }
    }

    /// Takes a call out, wherever it is.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Arc<Job>> {
        let job = self.interactive.remove(id).or_else(|| self.bulk.remove(id))?;
        self.no_deadline(&job);
        Some(job)
    }

    /// Takes all calls out.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Job>> {
        let Queue { interactive, bulk, .. } = std::mem::replace(self, Queue::new(self.limit));
        let calls = [interactive.embeds, interactive.counts, bulk.embeds, bulk.counts];
        calls.into_iter().flatten().map(|(_, entry)| entry.job.clone()).collect()
    }

    /// When the first of the calls that were not begun is given up.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Takes out the calls that were not begun in time.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<Arc<Job>> {
        let mut late = Vec::new();
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            late.extend(self.remove(id));
        }
        late
    }

    /// A call that is begun, or gone, is not given up.
    fn no_deadline(&mut self, job: &Job) {
        if let Some(wait) = job.order.max_wait {
            self.deadlines.remove(&(wait.deadline(), job.id));
        }
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane {
        match priority {
            Priority::Interactive => &mut self.interactive,
            Priority::Bulk => &mut self.bulk,
        }
    }
}

impl Lane {
    fn depth(&self) -> usize {
        self.embeds.len() + self.counts.len()
    }

    fn calls(&mut self, kind: Kind) -> &mut Calls {
        if kind.computes() { &mut self.embeds } else { &mut self.counts }
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Job>> {
        let entry = self.embeds.remove(&id).or_else(|| self.counts.remove(&id))?;
        self.bytes -= entry.job.bytes;
        Some(entry.job.clone())
    }

    /// The next step and its work.
    fn step(&mut self, budget: u64) -> Option<(Step, u64)> {
        if !self.counted
            && let Some(step) = self.count()
        {
            self.counted = true;
            return Some(step);
        }
        self.embed(budget).or_else(|| self.count())
    }

    /// A window of the call that has waited longest for its counts.
    fn count(&mut self) -> Option<(Step, u64)> {
        loop {
            let entry = self.counts.values_mut().find(|entry| !entry.busy)?;
            if !entry.job.is_settled() {
                return Some(entry.tokenise());
            }
            let id = entry.job.id;
            self.remove(id);
        }
    }

    /// A micro-batch, or the tokenising of a call that may have a part in it.
    fn embed(&mut self, budget: u64) -> Option<(Step, u64)> {
        let settled: Vec<u64> = self
            .embeds
            .values()
            .take(LOOKAHEAD)
            .filter(|entry| entry.job.is_settled())
            .map(|entry| entry.job.id)
            .collect();
        settled.into_iter().for_each(|id| drop(self.remove(id)));

        let mut first: Option<Arc<Job>> = None;
        // Pieces taken of each call.
        let mut chosen: Vec<(u64, usize)> = Vec::new();
        let mut work = 0_u64;
        for (&id, entry) in self.embeds.iter_mut().take(LOOKAHEAD) {
            if entry.busy || !first.as_ref().is_none_or(|first| goes_with(first, &entry.job)) {
                continue;
            }
            if entry.pieces.is_empty() {
                // Its texts may fit beside those chosen so far, so they are made ready first.
                return Some(entry.tokenise());
            }
            let pieces = entry.fitting(work, budget, chosen.is_empty());
            if pieces > 0 {
                work = entry.pieces.iter().take(pieces).fold(work, |work, piece| work.saturating_add(piece.work));
                chosen.push((id, pieces));
                first.get_or_insert_with(|| entry.job.clone());
            }
            if pieces < entry.pieces.len() || work >= budget {
                break;
            }
        }
        let first = first?;
        let Kind::Embed { width } = first.order.kind else { return None };
        let mut shares = Vec::with_capacity(chosen.len());
        for (id, pieces) in chosen {
            let Some(entry) = self.embeds.get_mut(&id) else { continue };
            shares.push(entry.take(pieces));
            if entry.is_done() {
                self.remove(id);
            }
        }
        self.counted = false;
        Some((Step::Encode(MicroBatch { shares, width, priority: first.order.priority }), work))
    }
}

/// Whether texts of two calls can share a micro-batch.
fn goes_with(a: &Job, b: &Job) -> bool {
    Arc::ptr_eq(&a.model, &b.model) && a.order.kind == b.order.kind
}

/// The lane holds `limit` bytes, and `bytes` would be there with one more call.
fn overloaded(priority: Priority, bytes: usize, limit: usize) -> Failure {
    let lane = match priority {
        Priority::Interactive => "interactive",
        Priority::Bulk => "bulk",
    };
    Failure::overloaded(&format!("too many {lane} calls wait"), bytes, limit)
}

#[cfg(test)]
mod tests;
