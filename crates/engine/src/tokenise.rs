//! The texts of a call become tokens.
//!
//! An interactive call is short and somebody waits for it: the thread that found it tokenises it itself, which costs no
//! hand-over. The texts of a bulk call are shared out among the pool's threads one by one (their lengths differ a
//! hundredfold), and between two texts, and within a long one every few milliseconds, each thread lets interactive work
//! run and looks whether the call is still wanted.
//!
//! Contract: a failure names the first text that fails, whatever the threads' order, and is that call's alone.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use simile_encoder::Flow;
use simile_kernels::ThreadPool;
use simile_pipeline::Tokens;

use crate::convert;
use crate::failure::Failure;
use crate::job::{Job, Kind, Order};
use crate::panics;
use crate::queue::{Piece, TokenRow, WINDOW, WINDOW_BYTES};

/// What a slice of a call's texts became.
pub(crate) struct Slice {
    pub(crate) pieces: Vec<Piece>,
    /// Texts are left for another slice.
    pub(crate) more: bool,
}

/// Tokenises the next texts of `job`, on `pool` when given, and plans them into pieces of at most `budget` work.
/// `None` when `pause` said that nobody waits for the call any more.
pub(crate) fn next_slice(
    job: &Job,
    pool: Option<&ThreadPool>,
    budget: u64,
    pause: &(dyn Fn() -> Flow + Sync),
) -> Result<Option<Slice>, Failure> {
    let started = Instant::now();
    let range = window(&job.order, job.cursor());
    let more = range.end < job.order.texts.len();
    // Within a long text too.
    let go_on = || pause() == Flow::Continue;
    let slice = match job.order.kind {
        Kind::Count => {
            let one = |index: usize| job.model.count_tokens(&job.order.input(index), &go_on);
            each(range, pool, pause, &|index| guarded(|| one(index)).map_err(|failure| failure.at(index)))?.map(
                |counts| {
                    job.add_counts(started, counts.into_iter());
                    Slice { pieces: Vec::new(), more }
                },
            )
        }
        Kind::Chunk(request) => {
            let (order, model) = (&job.order, &job.model);
            let cut = || model.chunk(order.role, order.instruction.as_deref(), &order.texts[0], request, &go_on);
            guarded(cut)?.map(|chunks| {
                job.set_chunks(started, chunks);
                Slice { pieces: Vec::new(), more: false }
            })
        }
        Kind::Embed { .. } => {
            let one = |index: usize| job.model.tokenize(&job.order.input(index), &go_on);
            match each(range.clone(), pool, pause, &|index| {
                guarded(|| one(index)).map_err(|failure| failure.at(index))
            })? {
                None => None,
                Some(tokens) => {
                    job.add_counts(started, tokens.iter().map(|tokens| (tokens.total, tokens.embedded())));
                    let pieces = panics::catch(|| plan(job, range.start, tokens, budget))
                        .map_err(|panic| panics::failure("planning micro-batches", &panic))?;
                    Some(Slice { pieces, more })
                }
            }
        }
    };
    job.statistics.tokenised(started.elapsed());
    Ok(slice)
}

/// The next texts from `start` on: at least one, and otherwise so many that they keep within both limits.
pub(crate) fn window(order: &Order, start: usize) -> Range<usize> {
    let mut bytes = 0;
    let fits = |text: &usize| {
        let first = bytes == 0;
        bytes += order.bytes(*text).max(1);
        first || bytes <= WINDOW_BYTES
    };
    start..start + (start..order.texts.len()).take(WINDOW).take_while(fits).count()
}

/// One text; a panic is a failure of that text. `None` when it was given up.
fn guarded<T>(work: impl FnOnce() -> Result<Option<T>, simile_pipeline::PipelineError>) -> Result<Option<T>, Failure> {
    match panics::catch(work) {
        Ok(result) => result.map_err(convert::pipeline),
        Err(panic) => Err(panics::failure("the tokenizer", &panic)),
    }
}

/// `work` for each index of `range`, in order; the failure of the first that fails, `None` when stopped.
fn each<T: Send + Sync>(
    range: Range<usize>,
    pool: Option<&ThreadPool>,
    pause: &(dyn Fn() -> Flow + Sync),
    work: &(dyn Fn(usize) -> Result<Option<T>, Failure> + Sync),
) -> Result<Option<Vec<T>>, Failure> {
    let Some(pool) = pool.filter(|pool| pool.threads() > 1 && range.len() > 1) else {
        let mut results = Vec::with_capacity(range.len());
        for index in range {
            let Some(result) = work(index)? else { return Ok(None) };
            results.push(result);
            if pause() == Flow::Stop {
                return Ok(None);
            }
        }
        return Ok(Some(results));
    };
    let results: Vec<OnceLock<Result<T, Failure>>> = range.clone().map(|_| OnceLock::new()).collect();
    // Indices are taken in order, so when one fails, all before it have been taken and will be finished: the first
    // failure in the list is the first of the call.
    let next = AtomicUsize::new(range.start);
    let leave = AtomicBool::new(false);
    let stopped = AtomicBool::new(false);
    panics::catch(|| {
        pool.run(&|_team| {
            while !leave.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= range.end {
                    return;
                }
                let given_up = match work(index) {
                    Ok(Some(result)) => {
                        let _ = results[index - range.start].set(Ok(result));
                        pause() == Flow::Stop
                    }
                    Ok(None) => true,
                    Err(failure) => {
                        let _ = results[index - range.start].set(Err(failure));
                        leave.store(true, Ordering::Relaxed);
                        false
                    }
                };
                if given_up {
                    stopped.store(true, Ordering::Relaxed);
                    leave.store(true, Ordering::Relaxed);
                }
            }
        });
    })
    .map_err(|panic| panics::failure("tokenising", &panic))?;
    if stopped.into_inner() {
        return Ok(None);
    }
    // After a failure the list has holes, all of them behind it.
    results.into_iter().map_while(OnceLock::into_inner).collect::<Result<Vec<T>, Failure>>().map(Some)
}

/// Micro-batches of one call: see [`simile_pipeline::plan`].
fn plan(job: &Job, first: usize, tokens: Vec<Tokens>, budget: u64) -> Vec<Piece> {
    let lengths: Vec<usize> = tokens.iter().map(|tokens| tokens.ids.len()).collect();
    let mut tokens = tokens;
    let cost = |length| job.model.cost(length);
    simile_pipeline::plan(&lengths, job.order.batch_size, budget, cost)
        .into_iter()
        .map(|texts| Piece {
            work: texts.iter().map(|&text| cost(lengths[text])).sum(),
            rows: texts
                .into_iter()
                .map(|text| TokenRow { index: first + text, tokens: std::mem::take(&mut tokens[text]) })
                .collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_two_limits_and_at_least_a_text() {
        let text = |length: usize| "x".repeat(length);
        // (lengths of texts, ends of the windows)
        let cases: [(Vec<usize>, &[usize]); 5] = [
            (vec![1], &[1]),
            (vec![0; WINDOW + 1], &[WINDOW, WINDOW + 1]),
            (vec![WINDOW_BYTES, 1, 1], &[1, 3]),
            (vec![1, WINDOW_BYTES, 5 * WINDOW_BYTES, 1], &[1, 2, 3, 4]),
            (vec![WINDOW_BYTES / 2; 4], &[2, 4]),
        ];
        for (lengths, expected) in cases {
            let texts: Vec<String> = lengths.iter().map(|&length| text(length)).collect();
            let (count, mut ends) = (texts.len(), vec![]);
            let order = Order::counting(texts);
            while ends.last() != Some(&count) {
                ends.push(window(&order, ends.last().copied().unwrap_or_default()).end);
            }
            assert_eq!(ends, expected, "{count} texts");
        }
    }
}
