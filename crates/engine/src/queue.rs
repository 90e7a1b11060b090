//! Which work comes next: the one place of the scheduling policy.
//!
//! All calls of all models wait here, in two lanes. The policy now:
//! - the interactive lane goes first; within a lane calls go in the order in which they came;
//! - a call's texts are tokenised when its turn comes, at most [`WINDOW`] texts ahead, and planned into micro-batches of
//!   at most its `batch_size` texts and the lane's work budget;
//! - a call that only needs the tokenizer (token counts, chunks) does not wait for the micro-batches of the calls before it: between two micro-batches
//!   of its lane one window of texts is counted, of the call that has waited longest;
//! - a micro-batch that has room is filled up with more pieces of the call, as far as its `batch_size` allows, then with
//!   those of the calls behind it, if they are for the same model and dimensions.
//!
//! Interactive work can hold bulk work back as long as it keeps coming, except between the layers of a bulk micro-batch,
//! where one interactive micro-batch is let in at a time.
//!
//! Contract: the queue computes nothing and starts nothing. [`Queue::next`] hands out a step; a `Tokenise` step must be
//! answered with [`Queue::tokenised`] (or [`Queue::remove`]), and until then nobody else gets that call. Settled calls
//! are skipped and dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::job::{Job, Kind, Priority};

/// The most texts of one call that are tokenised before the first of them is computed: bounds the memory of huge calls,
/// and sorting by length within so many loses nothing measurable to sorting all.
pub(crate) const WINDOW: usize = 4096;

/// One text of a call, ready to compute.
#[derive(Debug)]
pub(crate) struct TokenRow {
    /// Position in the call.
    pub(crate) index: usize,
    /// Its tokens, after truncation.
    pub(crate) ids: Vec<u32>,
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

/// Texts that run through the model together: pieces of one or more calls of one model, one length of vector.
pub(crate) struct MicroBatch {
    pub(crate) shares: Vec<Share>,
    pub(crate) dimensions: usize,
    pub(crate) priority: Priority,
}

/// What to do next.
pub(crate) enum Step {
    /// Tokenise the next texts of this call.
    Tokenise(Arc<Job>),
    /// Compute this.
    Encode(MicroBatch),
}

struct Entry {
    job: Arc<Job>,
    /// Somebody tokenises its next texts now.
    busy: bool,
    /// Some of its texts are not tokenised yet.
    more: bool,
    pieces: VecDeque<Piece>,
}

#[derive(Default)]
struct Lane {
    entries: VecDeque<Entry>,
    /// A window was counted since the last micro-batch of the lane.
    counted: bool,
}

/// The calls that wait.
#[derive(Default)]
pub(crate) struct Queue {
    interactive: Lane,
    bulk: Lane,
}

impl Queue {
    /// Puts a call at the end of its lane.
    pub(crate) fn push(&mut self, job: Arc<Job>) {
        let entry = Entry { busy: false, more: true, pieces: VecDeque::new(), job };
        self.lane(entry.job.order.priority).entries.push_back(entry);
    }

    /// How many calls wait or are partly done, as (interactive, bulk).
    pub(crate) fn depth(&self) -> (usize, usize) {
        (self.interactive.entries.len(), self.bulk.entries.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.depth() == (0, 0)
    }

    /// The next step of any lane. `budget` is the most estimated work of a micro-batch of a lane.
    pub(crate) fn next(&mut self, budget: impl Fn(Priority) -> u64) -> Option<Step> {
        step(&mut self.interactive, budget(Priority::Interactive))
            .or_else(|| step(&mut self.bulk, budget(Priority::Bulk)))
    }

    /// The next step of the interactive lane.
    pub(crate) fn next_interactive(&mut self, budget: u64) -> Option<Step> {
        step(&mut self.interactive, budget)
    }

    /// Answers a `Tokenise` step: the pieces that were made of it, and whether texts are left for another.
    pub(crate) fn tokenised(&mut self, job: &Job, pieces: Vec<Piece>, more: bool) {
        let lane = &mut self.lane(job.order.priority).entries;
        // A call that settled meanwhile is not there any more.
        let Some(at) = lane.iter().position(|entry| entry.job.id == job.id) else { return };
        if pieces.is_empty() && !more {
            lane.remove(at);
            return;
        }
        let entry = &mut lane[at];
        entry.busy = false;
        entry.more = more;
        entry.pieces.extend(pieces);
    }

    /// Takes a call out, wherever it is.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Arc<Job>> {
        [&mut self.interactive.entries, &mut self.bulk.entries].into_iter().find_map(|lane| {
            let at = lane.iter().position(|entry| entry.job.id == id)?;
            lane.remove(at).map(|entry| entry.job)
        })
    }

    /// Takes all calls out.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Job>> {
        let Queue { interactive, bulk } = self;
        interactive.entries.drain(..).chain(bulk.entries.drain(..)).map(|entry| entry.job).collect()
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane {
        match priority {
            Priority::Interactive => &mut self.interactive,
            Priority::Bulk => &mut self.bulk,
        }
    }
}

fn step(lane: &mut Lane, budget: u64) -> Option<Step> {
    let Lane { entries: lane, counted } = lane;
    lane.retain(|entry| !entry.job.is_settled());
    let count = lane.iter().position(|entry| !entry.job.order.kind.computes() && !entry.busy);
    if let Some(at) = count
        && !*counted
    {
        *counted = true;
        return Some(tokenise(&mut lane[at]));
    }
    // (place in the lane, pieces taken of it)
    let mut chosen: Vec<(usize, usize)> = Vec::new();
    let mut work = 0;
    for at in 0..lane.len() {
        let entry = &lane[at];
        let mates = chosen.first().is_none_or(|&(first, _)| goes_with(&lane[first].job, &entry.job));
        if entry.busy || !entry.job.order.kind.computes() || !mates {
            continue;
        }
        if entry.pieces.is_empty() {
            // Its texts may fit beside those chosen so far, so they are made ready first.
            return Some(tokenise(&mut lane[at]));
        }
        let pieces = fitting(entry, work, budget, chosen.is_empty());
        if pieces > 0 {
            work += entry.pieces.iter().take(pieces).map(|piece| piece.work).sum::<u64>();
            chosen.push((at, pieces));
        }
        if pieces < entry.pieces.len() || work >= budget {
            break;
        }
    }
    let Some(&(first, _)) = chosen.first() else {
        return count.map(|at| tokenise(&mut lane[at]));
    };
    let first = &lane[first].job;
    let Kind::Embed { dimensions } = first.order.kind else { return None };
    let priority = first.order.priority;
    *counted = false;
    let shares = chosen
        .into_iter()
        .map(|(at, pieces)| {
            let entry = &mut lane[at];
            let work = entry.pieces.iter().take(pieces).map(|piece| piece.work).sum();
            let rows = entry.pieces.drain(..pieces).flat_map(|piece| piece.rows).collect();
            Share { job: entry.job.clone(), piece: Piece { rows, work } }
        })
        .collect();
    lane.retain(|entry| entry.busy || entry.more || !entry.pieces.is_empty());
    Some(Step::Encode(MicroBatch { shares, dimensions, priority }))
}

/// Hands out the next texts of a call.
fn tokenise(entry: &mut Entry) -> Step {
    entry.busy = true;
    Step::Tokenise(entry.job.clone())
}

/// How many of a call's planned pieces still fit. A piece larger than the budget runs alone.
fn fitting(entry: &Entry, mut work: u64, budget: u64, mut alone: bool) -> usize {
    let mut rows = 0;
    let fits = |piece: &&Piece| {
        rows += piece.rows.len();
        work += piece.work;
        let first = std::mem::take(&mut alone);
        first || (work <= budget && rows <= entry.job.order.batch_size)
    };
    entry.pieces.iter().take_while(fits).count()
}

/// Whether texts of two calls can share a micro-batch.
fn goes_with(a: &Job, b: &Job) -> bool {
    Arc::ptr_eq(&a.model, &b.model) && a.order.kind == b.order.kind
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use simile_pipeline::Role;

    use super::*;
    use crate::failure::Failure;
    use crate::job::Order;
    use crate::model::Model;
    use crate::model::fake::Named;

    const BUDGET: u64 = 100;

    fn job(model: &Arc<dyn Model>, priority: Priority, batch_size: usize) -> Arc<Job> {
        job_of(Kind::Embed { dimensions: 8 }, model, priority, batch_size)
    }

    fn job_of(kind: Kind, model: &Arc<dyn Model>, priority: Priority, batch_size: usize) -> Arc<Job> {
        let order = Order { texts: Vec::new(), role: Role::Generic, instruction: None, kind, batch_size, priority };
        Job::new(model.clone(), Arc::default(), order, &[], Weak::new(), Box::new(|_| {}))
    }

    /// Pieces of one text each, with that work.
    fn pieces(work: &[u64]) -> Vec<Piece> {
        let row = |index| TokenRow { index, ids: vec![] };
        work.iter().enumerate().map(|(index, &work)| Piece { rows: vec![row(index)], work }).collect()
    }

    /// Pushes a job that is tokenised already.
    fn ready(queue: &mut Queue, job: &Arc<Job>, work: &[u64]) {
        queue.push(job.clone());
        queue.tokenised(job, pieces(work), false);
    }

    /// The next step as text: `tokenise 3`, or `encode` with the pieces' work of each job.
    fn next(queue: &mut Queue, jobs: &[Arc<Job>]) -> String {
        let name = |job: &Arc<Job>| jobs.iter().position(|one| Arc::ptr_eq(one, job)).unwrap();
        match queue.next(|_| BUDGET) {
            None => "nothing".to_owned(),
            Some(Step::Tokenise(job)) => format!("tokenise {}", name(&job)),
            Some(Step::Encode(batch)) => {
                let shares = batch.shares.iter();
                let shares = shares
                    .map(|share| format!(" {}:{}/{}", name(&share.job), share.piece.rows.len(), share.piece.work));
                format!("encode{}", shares.collect::<String>())
            }
        }
    }

    #[test]
    fn the_policy() {
        use Priority::{Bulk, Interactive};
        let (a, b): (Arc<dyn Model>, Arc<dyn Model>) = (Arc::new(Named::default()), Arc::new(Named::default()));
        // (what it shows, jobs as (model, lane, batch size, work of each text or none yet), steps)
        type Case<'a> = (&'a str, Vec<(&'a Arc<dyn Model>, Priority, usize, Option<&'a [u64]>)>, &'a [&'a str]);
        let cases: Vec<Case> = vec![
            ("an empty queue has nothing to do", vec![], &["nothing"]),
            (
                "interactive goes before bulk",
                vec![(&a, Bulk, 9, Some(&[1])), (&a, Interactive, 9, Some(&[1]))],
                &["encode 1:1/1", "encode 0:1/1", "nothing"],
            ),
            (
                "a call's own pieces go together, up to the budget",
                vec![(&a, Bulk, 9, Some(&[60, 40, 1]))],
                &["encode 0:2/100", "encode 0:1/1", "nothing"],
            ),
            (
                "and up to its batch size",
                vec![(&a, Bulk, 2, Some(&[10, 10, 10]))],
                &["encode 0:2/20", "encode 0:1/10", "nothing"],
            ),
            (
                "a piece over the budget goes alone",
                vec![(&a, Bulk, 9, Some(&[500, 1]))],
                &["encode 0:1/500", "encode 0:1/1", "nothing"],
            ),
            (
                "calls of one model are filled up in their order, others wait",
                vec![(&a, Bulk, 9, Some(&[50])), (&b, Bulk, 9, Some(&[1])), (&a, Bulk, 9, Some(&[40, 40]))],
                &["encode 0:1/50 2:1/40", "encode 1:1/1", "encode 2:1/40", "nothing"],
            ),
            (
                "nobody overtakes a call that does not fit",
                vec![(&a, Bulk, 9, Some(&[50])), (&a, Bulk, 9, Some(&[60])), (&a, Bulk, 9, Some(&[1]))],
                &["encode 0:1/50", "encode 1:1/60 2:1/1", "nothing"],
            ),
            (
                "a call that may fit is tokenised first, and by one only",
                vec![(&a, Bulk, 9, Some(&[50])), (&a, Bulk, 9, None)],
                &["tokenise 1", "encode 0:1/50", "nothing"],
            ),
            (
                "a call behind a full micro-batch is not",
                vec![(&a, Bulk, 9, Some(&[100])), (&a, Bulk, 9, None)],
                &["encode 0:1/100", "tokenise 1", "nothing"],
            ),
        ];
        let mut wrong = Vec::new();
        for (shows, entries, steps) in cases {
            let mut queue = Queue::default();
            let jobs: Vec<Arc<Job>> = entries.iter().map(|(model, lane, size, _)| job(model, *lane, *size)).collect();
            for (job, (.., work)) in jobs.iter().zip(&entries) {
                match work {
                    Some(work) => ready(&mut queue, job, work),
                    None => queue.push(job.clone()),
                }
            }
            let taken: Vec<String> = steps.iter().map(|_| next(&mut queue, &jobs)).collect();
            if taken != *steps {
                wrong.push(format!("{shows}: {taken:?} and not {steps:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn counting_waits_for_one_micro_batch_of_its_lane_and_holds_back_none() {
        let model: Arc<dyn Model> = Arc::new(Named::default());
        let mut queue = Queue::default();
        let count = || job_of(Kind::Count, &model, Priority::Bulk, usize::MAX);
        let jobs = [job(&model, Priority::Bulk, 1), count(), count()];
        ready(&mut queue, &jobs[0], &[1, 1, 1]);
        queue.push(jobs[1].clone());
        queue.push(jobs[2].clone());
        assert_eq!(next(&mut queue, &jobs), "tokenise 1");
        // More windows of it are left, and micro-batches get in between.
        queue.tokenised(&jobs[1], Vec::new(), true);
        assert_eq!(next(&mut queue, &jobs), "encode 0:1/1");
        assert_eq!(next(&mut queue, &jobs), "tokenise 1");
        queue.tokenised(&jobs[1], Vec::new(), false);
        assert_eq!(next(&mut queue, &jobs), "encode 0:1/1");
        assert_eq!(next(&mut queue, &jobs), "tokenise 2");
        // While somebody counts, others compute.
        assert_eq!(next(&mut queue, &jobs), "encode 0:1/1");
        queue.tokenised(&jobs[2], Vec::new(), true);
        // Without micro-batches to get in between, one window follows the other.
        for _ in 0..2 {
            assert_eq!(next(&mut queue, &jobs), "tokenise 2");
            queue.tokenised(&jobs[2], Vec::new(), true);
        }
        queue.tokenised(&jobs[2], Vec::new(), false);
        assert!(queue.is_empty());
    }

    #[test]
    fn settled_calls_leave() {
        let model: Arc<dyn Model> = Arc::new(Named::default());
        let mut queue = Queue::default();
        let jobs: Vec<_> = (0..4).map(|_| job(&model, Priority::Bulk, 9)).collect();
        for job in &jobs {
            ready(&mut queue, job, &[1]);
        }
        assert!(queue.remove(jobs[0].id).is_some());
        assert!(queue.remove(jobs[0].id).is_none());
        jobs[1].fail(Failure::cancelled());
        assert_eq!(next(&mut queue, &jobs), "encode 2:1/1 3:1/1");
        assert!(queue.is_empty());
        // The answer of a step that comes too late is no error.
        queue.tokenised(&jobs[0], pieces(&[1]), false);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_call_in_windows_is_tokenised_again_when_its_pieces_are_gone() {
        let model: Arc<dyn Model> = Arc::new(Named::default());
        let mut queue = Queue::default();
        let jobs = [job(&model, Priority::Bulk, 9)];
        queue.push(jobs[0].clone());
        assert_eq!(next(&mut queue, &jobs), "tokenise 0");
        queue.tokenised(&jobs[0], pieces(&[100, 100]), true);
        assert_eq!(next(&mut queue, &jobs), "encode 0:1/100");
        assert_eq!(next(&mut queue, &jobs), "encode 0:1/100");
        assert_eq!(next(&mut queue, &jobs), "tokenise 0");
        queue.tokenised(&jobs[0], pieces(&[1]), false);
        assert_eq!(next(&mut queue, &jobs), "encode 0:1/1");
        assert!(queue.is_empty());
    }
}
