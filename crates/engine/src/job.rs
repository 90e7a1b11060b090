//! One call at work: its texts, its cancellation, its results.
//!
//! Contract: a job settles exactly once, by whatever comes first: its last row, a failure, a cancellation, or its end
//! without any of these (a bug, reported as `TaskFailed`). Settling calls the caller's function on the thread that
//! settles. After that the job's rows are ignored, wherever they are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use simile_pipeline::{Chunk, ChunkRequest, Input, Role};

use crate::cancel::{CancelToken, Listener};
use crate::dispatcher::Shared;
use crate::failure::{ErrorKind, Failure};
use crate::model::Model;
use crate::panics;
use crate::statistics::Statistics;

/// Who waits for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Somebody waits for the answer: runs before bulk work and between the layers of a bulk micro-batch.
    Interactive,
    /// Nobody waits for a single text of it.
    #[default]
    Bulk,
}

/// How long a call waits before its first text is begun; after that it is refused as `Overloaded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxWait {
    limit: Duration,
    since: Instant,
}

impl MaxWait {
    /// `limit` from now on.
    pub fn new(limit: Duration) -> MaxWait {
        MaxWait { limit, since: Instant::now() }
    }

    /// When the call is given up.
    pub(crate) fn deadline(self) -> Instant {
        // A century is for ever, and no clock's end.
        const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        self.since + self.limit.min(FOR_EVER)
    }

    pub(crate) fn failure(self) -> Failure {
        let ms = |time: Duration| (time.as_secs_f64() * 1e3).round();
        let (limit, waited) = (ms(self.limit), ms(self.since.elapsed()));
        let message = format!(
            "the call waited {waited} ms and was not begun, and its maxWait is {limit} ms; wait for results before sending \
             more, or allow more time"
        );
        Failure::new(ErrorKind::Overloaded, message).measured(limit, waited, "ms").of_option("maxWait")
    }
}

/// A request to embed texts.
#[derive(Clone, Debug, Default)]
pub struct EmbedJob {
    /// The texts, in the order of the result.
    pub texts: Vec<String>,
    /// For a model that scores pairs, the other text of each pair: one for all `texts`, or one for each. Empty for others.
    pub queries: Vec<String>,
    /// Which template is applied.
    pub role: Role,
    /// The instruction for the template, instead of the model's own.
    pub instruction: Option<String>,
    /// Output dimensions; `None` is the model's.
    pub dimensions: Option<usize>,
    /// The most texts of this call in one micro-batch; `None` is
    /// [`DEFAULT_BATCH_SIZE`](simile_pipeline::DEFAULT_BATCH_SIZE). It changes no result.
    pub batch_size: Option<usize>,
    /// Who waits for it.
    pub priority: Priority,
    /// How long it waits to be begun; `None` is as long as it takes.
    pub max_wait: Option<MaxWait>,
}

/// A request to count tokens.
#[derive(Clone, Debug, Default)]
pub struct CountJob {
    /// The texts, in the order of the result.
    pub texts: Vec<String>,
    /// Which template is applied.
    pub role: Role,
    /// The instruction for the template, instead of the model's own.
    pub instruction: Option<String>,
    /// Who waits for it.
    pub priority: Priority,
}

/// A request to cut a text into chunks. It waits as bulk work does: the text is long, or nobody would cut it.
#[derive(Clone, Debug, Default)]
pub struct ChunkJob {
    /// The text.
    pub text: String,
    /// Which template the chunks will get.
    pub role: Role,
    /// The instruction for the template, instead of the model's own.
    pub instruction: Option<String>,
    /// How it is cut.
    pub request: ChunkRequest,
}

/// Tokens of each text, template and special tokens included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Before truncation.
    pub total: Vec<u32>,
    /// After truncation: what the model sees.
    pub embedded: Vec<u32>,
}

/// The rows of a call: vectors, scores, sparse vectors or each text's token vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedOutput {
    /// Row after row, in the order of the request.
    pub data: Vec<f32>,
    /// Values of each row; 0 when each row has a length of its own.
    pub dimensions: usize,
    /// Where each row ends in `data`; empty when all have `dimensions` values.
    pub ends: Vec<usize>,
    /// Indices of the values of sparse rows, parallel to `data`; empty for others.
    pub indices: Vec<u32>,
    /// Tokens of each text.
    pub tokens: TokenCounts,
    /// What the vectors may be compared with: only vectors of the same contract.
    pub contract_id: String,
}

/// What a job gives when all goes well.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) tokens: TokenCounts,
    pub(crate) data: Vec<f32>,
    pub(crate) ends: Vec<usize>,
    pub(crate) indices: Vec<u32>,
    pub(crate) chunks: Vec<Chunk>,
}

pub(crate) type Done = Box<dyn FnOnce(Result<Finished, Failure>) + Send>;

/// What is asked of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rows of that many values, or each of a length of its own.
    Embed { width: Option<usize> },
    /// Token counts only.
    Count,
    /// The chunks of its one text.
    Chunk(ChunkRequest),
}

impl Kind {
    /// Whether texts go through the model, and not through its tokenizer only.
    pub(crate) fn computes(self) -> bool {
        matches!(self, Kind::Embed { .. })
    }
}

/// The parts of a job that the caller chose.
pub(crate) struct Order {
    pub(crate) texts: Vec<String>,
    /// None, one for all texts, or one for each.
    pub(crate) queries: Vec<String>,
    pub(crate) role: Role,
    pub(crate) instruction: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) batch_size: usize,
    pub(crate) priority: Priority,
    pub(crate) max_wait: Option<MaxWait>,
}

impl Order {
    /// The text at `index`, with its query if it has one.
    pub(crate) fn input(&self, index: usize) -> Input<'_> {
        Input {
            role: self.role,
            instruction: self.instruction.as_deref(),
            query: self.query(index).map(String::as_str),
            text: &self.texts[index],
        }
    }

    /// Bytes that are tokenised for the text at `index`.
    pub(crate) fn bytes(&self, index: usize) -> usize {
        self.texts[index].len() + self.query(index).map_or(0, String::len)
    }

    fn query(&self, index: usize) -> Option<&String> {
        if let [shared] = &self.queries[..] { Some(shared) } else { self.queries.get(index) }
    }

    /// An order that counts these texts, for tests.
    #[cfg(test)]
    pub(crate) fn counting(texts: Vec<String>) -> Order {
        Order {
            texts,
            queries: Vec::new(),
            role: Role::Generic,
            instruction: None,
            kind: Kind::Count,
            batch_size: 1,
            priority: Priority::Bulk,
            max_wait: None,
        }
    }
}

/// What a text holds besides its bytes while it waits: the string, its tokens and counts, its part of the call.
const TEXT_BYTES: usize = 512;

/// What a call holds while it waits, in bytes, estimated: its texts, a fixed amount for each, and its instruction.
pub(crate) fn held<'a>(texts: impl IntoIterator<Item = &'a String>, instruction: Option<&str>) -> usize {
    let texts = texts.into_iter().map(|text| text.len() + TEXT_BYTES);
    texts.chain(instruction.map(str::len)).fold(0, usize::saturating_add)
}

pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) order: Order,
    /// What the call holds while it waits: see [`held`].
    pub(crate) bytes: usize,
    submitted: Instant,
    settled: AtomicBool,
    progress: Mutex<Progress>,
    done: Mutex<Option<Done>>,
    /// What may end it. Kept because nobody else might: a token that only its parent knows is known weakly.
    _cancels: Vec<CancelToken>,
    /// The queue that it waits in, to leave it when it settles early.
    home: Weak<Shared>,
}

#[derive(Default)]
struct Progress {
    tokens: TokenCounts,
    /// Rows of one width, each in its place.
    data: Vec<f32>,
    /// Rows that have lengths of their own: values and indices.
    parts: Vec<(Vec<f32>, Vec<u32>)>,
    chunks: Vec<Chunk>,
    /// Rows that are not written yet.
    missing: usize,
}

impl Job {
    /// A job that any of `cancels` ends, at once if one is cancelled already.
    pub(crate) fn new(
        model: Arc<dyn Model>,
        statistics: Arc<Statistics>,
        order: Order,
        cancels: &[CancelToken],
        home: Weak<Shared>,
        done: Done,
    ) -> Arc<Job> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let progress = Progress { missing: order.texts.len(), ..Progress::default() };
        let bytes = held(order.texts.iter().chain(&order.queries), order.instruction.as_deref());
        let job = Arc::new(Job {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            model,
            statistics,
            order,
            bytes,
            submitted: Instant::now(),
            settled: AtomicBool::new(false),
            progress: Mutex::new(progress),
            done: Mutex::new(Some(done)),
            _cancels: cancels.to_vec(),
            home,
        });
        for cancel in cancels {
            cancel.listen(&job);
        }
        job
    }

    /// Whether nobody waits for this job any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// How many texts are tokenised: where the next slice begins.
    pub(crate) fn cursor(&self) -> usize {
        self.lock().tokens.total.len()
    }

    /// The chunks of the job's text.
    pub(crate) fn set_chunks(&self, started: Instant, chunks: Vec<Chunk>) {
        self.statistics.started(started.saturating_duration_since(self.submitted));
        self.lock().chunks = chunks;
    }

    /// Appends the counts of the next texts; the first call ends the job's waiting time.
    pub(crate) fn add_counts(&self, started: Instant, counts: impl Iterator<Item = (usize, usize)>) {
        let mut progress = self.lock();
        if progress.tokens.total.is_empty() {
            self.statistics.started(started.saturating_duration_since(self.submitted));
        }
        for (total, embedded) in counts {
            progress.tokens.total.push(saturate(total));
            progress.tokens.embedded.push(saturate(embedded));
        }
    }

    /// Tokens of one text, as `(before, after)` truncation.
    pub(crate) fn counts(&self, index: usize) -> (u32, u32) {
        let progress = self.lock();
        let of = |counts: &[u32]| counts.get(index).copied().unwrap_or_default();
        (of(&progress.tokens.total), of(&progress.tokens.embedded))
    }

    /// Writes rows to their places and settles the job when none is missing.
    pub(crate) fn write<'a>(&self, width: Option<usize>, rows: impl Iterator<Item = (usize, (&'a [f32], &'a [u32]))>) {
        let finished = {
            let mut progress = self.lock();
            if self.is_settled() {
                return;
            }
            let texts = self.order.texts.len();
            match width {
                Some(width) if progress.data.is_empty() => progress.data = vec![0.0; texts * width],
                None if progress.parts.is_empty() => progress.parts = vec![Default::default(); texts],
                _ => {}
            }
            for (index, (values, indices)) in rows {
                match width {
                    Some(width) => progress.data[index * width..][..width].copy_from_slice(values),
                    None => progress.parts[index] = (values.to_vec(), indices.to_vec()),
                }
                progress.missing -= 1;
            }
            progress.missing == 0
        };
        if finished {
            self.finish();
        }
    }

    /// Settles the job with what it has.
    pub(crate) fn finish(&self) {
        let Progress { tokens, mut data, parts, chunks, .. } = std::mem::take(&mut *self.lock());
        let (mut ends, mut indices) = (Vec::with_capacity(parts.len()), Vec::new());
        for (values, of_row) in parts {
            data.extend_from_slice(&values);
            indices.extend_from_slice(&of_row);
            ends.push(data.len());
        }
        self.settle(Ok(Finished { tokens, data, ends, indices, chunks }), || {});
    }

    /// Settles the job with a failure and takes it out of the queue.
    pub(crate) fn fail(&self, failure: Failure) {
        self.settle(Err(failure), || {
            if let Some(home) = self.home.upgrade() {
                home.forget(self.id);
            }
        });
    }

    /// `leave` runs before the caller is answered, who may then look at the queue.
    fn settle(&self, result: Result<Finished, Failure>, leave: impl FnOnce()) {
        if self.settled.swap(true, Ordering::AcqRel) {
            return;
        }
        self.statistics.settled(result.as_ref().err().map(|failure| failure.kind));
        let done = self.done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if result.is_err() {
            // Results that nobody gets; the texts go when the queue lets go of the job.
            *self.lock() = Progress::default();
        }
        leave();
        if let Some(done) = done {
            // The caller's function panicking must not take the dispatcher with it, and there is nobody left to tell.
            let _ = panics::catch(|| done(result));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Listener for Job {
    fn cancelled(&self, reason: &Failure) {
        self.fail(reason.clone());
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Not `fail`: nobody holds the job, so no queue does, and one may be locked.
        self.settle(Err(Failure::new(ErrorKind::TaskFailed, "the call was dropped before it was finished")), || {});
    }
}

fn saturate(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
