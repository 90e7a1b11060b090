//! The engine: calls in, results out. One of it serves all models of the process.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use simile_pipeline::Chunk;

use crate::cancel::CancelToken;
use crate::convert;
use crate::dispatcher::Shared;
use crate::environment::Settings;
use crate::failure::{ErrorKind, Failure};
use crate::job::{ChunkJob, CountJob, Done, EmbedJob, EmbedOutput, Finished, Job, Kind, Order, Priority, TokenCounts};
use crate::model::Model;
use crate::panics::THREAD_PREFIX;
use crate::statistics::Statistics;
use crate::threads;

/// A queue, the thread that computes, and its pool.
///
/// Models of this process share one. Dropping an engine (tests do) ends its thread after
/// the step that it is in; calls that wait fail.
pub struct Engine {
    shared: Arc<Shared>,
    limit: usize,
    dispatcher: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// An engine that computes on `threads` threads (at least one). Its threads start with the first call.
    pub fn new(threads: usize) -> Engine {
        Engine::with_limit(threads, usize::MAX)
    }

    /// As [`Engine::new`]; at most `bytes` of calls wait in each lane of its queue.
    pub fn with_limit(threads: usize, bytes: usize) -> Engine {
        let shared = Arc::new(Shared::new(threads.max(1), bytes));
        Engine { shared, limit: bytes, dispatcher: Mutex::new(None) }
    }

    /// The engine of this process. Its threads: see [`crate::threads`]; its limit: `SIMILE_QUEUE_MB`, else 256 MiB. Call it
    /// on a thread that may read the environment.
    ///
    /// # Errors
    /// `InvalidInput` for a variable whose value is not allowed.
    pub fn process() -> Result<&'static Engine, Failure> {
        Settings::read().map(|settings| Engine::of_process(&settings))
    }

    /// The engine of this process, made with the first `settings` that it is asked for with. Starts nothing.
    pub(crate) fn of_process(settings: &Settings) -> &'static Engine {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        ENGINE.get_or_init(|| {
            Engine::with_limit(settings.threads.unwrap_or_else(threads::available), settings.queue_limit)
        })
    }

    /// The most bytes that wait in each lane of its queue.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Threads that compute, the dispatcher among them.
    pub fn threads(&self) -> usize {
        self.shared.threads()
    }

    /// Sets the size of the pool for all models, from the next micro-batch on. It changes no result.
    pub fn set_threads(&self, threads: usize) {
        self.shared.set_threads(threads.max(1));
    }

    /// Calls that wait or are partly done, as (interactive, bulk).
    pub fn depth(&self) -> (usize, usize) {
        self.shared.depth()
    }

    /// Embeds texts. `done` is called exactly once: by a thread of the engine, or by the thread that cancels one of
    /// `cancels`, or by this one when the request is refused, empty or cancelled already. It must be quick.
    ///
    /// Failures: `Overloaded` when its lane is full, or it was not begun in its time; `InvalidInput` for dimensions or an
    /// instruction that the model does not take, `TextTooLong` under the `error` policy, `InferenceFailed` for a vector
    /// that is not finite, `TaskFailed` for a panic or a cancellation.
    pub fn embed(
        &self,
        model: Arc<dyn Model>,
        statistics: Arc<Statistics>,
        request: EmbedJob,
        cancels: &[CancelToken],
        done: impl FnOnce(Result<EmbedOutput, Failure>) + Send + 'static,
    ) {
        let EmbedJob { texts, queries, role, instruction, dimensions, batch_size, priority, max_wait } = request;
        let width = match model.check_dimensions(dimensions) {
            Ok(width) => width,
            Err(error) => return done(Err(convert::pipeline(error))),
        };
        if let Err(error) = model.check_instruction(role, instruction.as_deref()) {
            return done(Err(convert::pipeline(error)));
        }
        let expected = if model.takes_pairs() { [1, texts.len()] } else { [0, 0] };
        if !expected.contains(&queries.len()) {
            let message = format!("{} queries came with {} texts", queries.len(), texts.len());
            return done(Err(Failure::new(ErrorKind::Internal, message)));
        }
        if batch_size == Some(0) {
            let message = "batchSize is 0; allowed is a whole number from 1";
            return done(Err(Failure::new(ErrorKind::InvalidInput, message).of_option("batchSize")));
        }
        let batch_size = batch_size.unwrap_or(simile_pipeline::DEFAULT_BATCH_SIZE);
        let kind = Kind::Embed { width };
        let order = Order { texts, queries, role, instruction, kind, batch_size, priority, max_wait };
        let contract = model.clone();
        let finish = move |finished: Result<Finished, Failure>| {
            done(finished.map(|Finished { tokens, data, ends, indices, .. }| EmbedOutput {
                data,
                dimensions: width.unwrap_or_default(),
                ends,
                indices,
                tokens,
                contract_id: contract.contract(width),
            }));
        };
        self.submit(model, statistics, order, cancels, Box::new(finish));
    }

    /// Counts tokens. As [`Engine::embed`], without a forward pass; a text over the limit is no failure.
    pub fn count(
        &self,
        model: Arc<dyn Model>,
        statistics: Arc<Statistics>,
        request: CountJob,
        cancels: &[CancelToken],
        done: impl FnOnce(Result<TokenCounts, Failure>) + Send + 'static,
    ) {
        let CountJob { texts, role, instruction, priority } = request;
        if let Err(error) = model.check_instruction(role, instruction.as_deref()) {
            return done(Err(convert::pipeline(error)));
        }
        let (kind, batch_size) = (Kind::Count, usize::MAX);
        let queries = Vec::new();
        let order = Order { texts, queries, role, instruction, kind, batch_size, priority, max_wait: None };
        let finish = move |finished: Result<Finished, Failure>| done(finished.map(|finished| finished.tokens));
        self.submit(model, statistics, order, cancels, Box::new(finish));
    }

    /// Cuts a text into chunks. As [`Engine::embed`]; `InvalidInput` also for a request that does not suit the model.
    pub fn chunk(
        &self,
        model: Arc<dyn Model>,
        statistics: Arc<Statistics>,
        job: ChunkJob,
        cancels: &[CancelToken],
        done: impl FnOnce(Result<Vec<Chunk>, Failure>) + Send + 'static,
    ) {
        let ChunkJob { text, role, instruction, request } = job;
        let (texts, kind, batch_size, priority) = (vec![text], Kind::Chunk(request), usize::MAX, Priority::Bulk);
        let queries = Vec::new();
        let order = Order { texts, queries, role, instruction, kind, batch_size, priority, max_wait: None };
        let finish = move |finished: Result<Finished, Failure>| done(finished.map(|finished| finished.chunks));
        self.submit(model, statistics, order, cancels, Box::new(finish));
    }

    fn submit(
        &self,
        model: Arc<dyn Model>,
        statistics: Arc<Statistics>,
        order: Order,
        cancels: &[CancelToken],
        done: Done,
    ) {
        let empty = order.texts.is_empty();
        let job = Job::new(model, statistics, order, cancels, Arc::downgrade(&self.shared), done);
        if job.is_settled() {
            return;
        }
        if empty {
            return job.finish();
        }
        if let Err(failure) = self.start() {
            return job.fail(failure);
        }
        if let Err(failure) = self.shared.push(job.clone()) {
            return job.fail(failure);
        }
        // A cancellation between listening and pushing found nothing to take out of the queue.
        if job.is_settled() {
            self.shared.forget(job.id);
        }
    }

    fn start(&self) -> Result<(), Failure> {
        let mut dispatcher = self.dispatcher.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // It ends only when the engine does: see `Shared::dispatch`. Should it be gone all the same, calls get another.
        if dispatcher.as_ref().is_none_or(JoinHandle::is_finished) {
            let shared = self.shared.clone();
            let thread = thread::Builder::new()
                .name(format!("{THREAD_PREFIX}compute-0"))
                .spawn(move || shared.dispatch())
                .map_err(|error| {
                    Failure::new(ErrorKind::Internal, format!("the system gave no thread to compute on: {error}"))
                })?;
            *dispatcher = Some(thread);
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for job in self.shared.stop() {
            job.fail(Failure::new(ErrorKind::TaskFailed, "the engine was stopped"));
        }
        let thread = self.dispatcher.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
