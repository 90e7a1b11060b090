//! Counters of one model as one service uses it, for bug reports and for tuning.
//!
//! Contract: counters only grow, save for what waits now, and reading them disturbs nobody. They are independent atomics:
//! a reading taken while a call runs may show its texts and not yet its time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::failure::ErrorKind;

/// The counters themselves.
#[derive(Debug, Default)]
pub struct Statistics {
    calls: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    queued_calls: AtomicU64,
    queued_texts: AtomicU64,
    texts: AtomicU64,
    truncated: AtomicU64,
    tokens: AtomicU64,
    padded_tokens: AtomicU64,
    batches: AtomicU64,
    queue: AtomicU64,
    tokenising: AtomicU64,
    computing: AtomicU64,
    longest_layer: AtomicU64,
}

/// The counters at one moment. Times are those of the wall, summed over calls or micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatisticsSnapshot {
    /// Calls that gave a result.
    pub calls: u64,
    /// Calls that ended otherwise: failed, refused, cancelled or disposed.
    pub failed: u64,
    /// Of these, calls that were refused as `Overloaded`.
    pub refused: u64,
    /// Calls that wait now, or are partly done.
    pub queued_calls: u64,
    /// Their texts that wait now.
    pub queued_texts: u64,
    /// Texts that became vectors.
    pub texts: u64,
    /// Of these, texts that were cut because they were too long.
    pub truncated: u64,
    /// Tokens that were computed, special tokens included.
    pub tokens: u64,
    /// Tokens that padding every micro-batch to its longest text would have computed instead.
    pub padded_tokens: u64,
    /// Micro-batches that held texts of this model's calls.
    pub batches: u64,
    /// Time between the submission of a call and the start of its tokenising.
    pub queue_time: Duration,
    /// Time in which its texts were tokenised.
    pub tokenise_time: Duration,
    /// Time in which its micro-batches ran, by its share of their work.
    pub compute_time: Duration,
    /// The longest time between two checkpoints of a thread, about one layer of a large micro-batch: what a query may
    /// have to wait for while bulk work runs.
    pub longest_layer_time: Duration,
}

impl Statistics {
    /// The counters now.
    pub fn snapshot(&self) -> StatisticsSnapshot {
        let time = |counter: &AtomicU64| Duration::from_nanos(counter.load(Relaxed));
        StatisticsSnapshot {
            calls: self.calls.load(Relaxed),
            failed: self.failed.load(Relaxed),
            refused: self.refused.load(Relaxed),
            queued_calls: self.queued_calls.load(Relaxed),
            queued_texts: self.queued_texts.load(Relaxed),
            texts: self.texts.load(Relaxed),
            truncated: self.truncated.load(Relaxed),
            tokens: self.tokens.load(Relaxed),
            padded_tokens: self.padded_tokens.load(Relaxed),
            batches: self.batches.load(Relaxed),
            queue_time: time(&self.queue),
            tokenise_time: time(&self.tokenising),
            compute_time: time(&self.computing),
            longest_layer_time: time(&self.longest_layer),
        }
    }

    /// A call ended, with that failure.
    pub(crate) fn settled(&self, failure: Option<ErrorKind>) {
        let Some(kind) = failure else {
            self.calls.fetch_add(1, Relaxed);
            return;
        };
        self.failed.fetch_add(1, Relaxed);
        self.refused.fetch_add(u64::from(kind == ErrorKind::Overloaded), Relaxed);
    }

    /// A call of that many texts waits.
    pub(crate) fn entered(&self, texts: usize) {
        self.queued_calls.fetch_add(1, Relaxed);
        self.queued_texts.fetch_add(texts as u64, Relaxed);
    }

    /// So many texts of it are being computed.
    pub(crate) fn begun(&self, texts: usize) {
        self.queued_texts.fetch_sub(texts as u64, Relaxed);
    }

    /// It waits no more, with so many texts that were not begun.
    pub(crate) fn left(&self, texts: usize) {
        self.queued_calls.fetch_sub(1, Relaxed);
        self.queued_texts.fetch_sub(texts as u64, Relaxed);
    }

    pub(crate) fn started(&self, waited: Duration) {
        self.queue.fetch_add(nanos(waited), Relaxed);
    }

    pub(crate) fn tokenised(&self, took: Duration) {
        self.tokenising.fetch_add(nanos(took), Relaxed);
    }

    pub(crate) fn embedded(&self, tokens: usize, truncated: bool, longest: usize) {
        self.texts.fetch_add(1, Relaxed);
        self.truncated.fetch_add(u64::from(truncated), Relaxed);
        self.tokens.fetch_add(tokens as u64, Relaxed);
        self.padded_tokens.fetch_add(longest as u64, Relaxed);
    }

    /// A call's share of a micro-batch; `first` of its model's shares in it.
    pub(crate) fn batch(&self, first: bool, share_of_time: Duration) {
        self.batches.fetch_add(u64::from(first), Relaxed);
        self.computing.fetch_add(nanos(share_of_time), Relaxed);
    }

    pub(crate) fn layer(&self, took: Duration) {
        self.longest_layer.fetch_max(nanos(took), Relaxed);
    }
}

fn nanos(time: Duration) -> u64 {
    // 584 years fit.
    time.as_nanos() as u64
}
