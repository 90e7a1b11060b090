//! One service's model.

use napi::bindgen_prelude::{Function, Object};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Env, Error, Result, Status};
use napi_derive::napi;
use simile_engine::{CountJob, EmbedJob, ErrorKind, Failure, LazyModel, LoadRequest};

use crate::batch::NativeTextBatch;
use crate::cancel::NativeCancel;
use crate::descriptor::NativeModelInfo;
use crate::failure::NativeFailure;
use crate::head::NativeHeadInfo;
use crate::progress::{NativeProgress, Reports};
use crate::request::{NativeChunkOptions, NativeEmbedOptions, NativeLoadRequest, priority, role};
use crate::result::{NativeChunks, NativeResult, NativeTokenCounts};
use crate::settle::Settle;
use crate::stats::NativeStats;

/// A model that is loaded at its first use. A request that cannot be met is told by every method that works.
#[napi]
pub struct NativeModel {
    model: std::result::Result<LazyModel, Failure>,
    reports: Reports,
}

/// How many vectors were saved.
#[napi(object, object_from_js = false)]
pub struct NativeSaved {
    /// Entries of the file.
    pub entries: u32,
}

#[napi]
impl NativeModel {
    /// Reads nothing but the environment and starts nothing. `wake` is called when a download has something
    /// to report; it keeps no process alive.
    #[napi(constructor, catch_unwind)]
    pub fn new(request: NativeLoadRequest, wake: Option<Function<'_, (), ()>>) -> Result<Self> {
        let reports = Reports::default();
        let request = LoadRequest::try_from(request);
        let model = match (request, wake) {
            (Err(failure), _) => Err(failure),
            (Ok(request), None) => Ok(LazyModel::new(request)),
            (Ok(request), Some(wake)) => {
                let wake = wake.build_threadsafe_function().callee_handled::<false>().weak::<true>().build()?;
                let reports = reports.clone();
                Ok(LazyModel::reporting(request, move |progress| {
                    reports.push(progress);
                    // An environment that is gone takes no calls, and nobody is left to tell.
                    wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
                }))
            }
        };
        Ok(NativeModel { model, reports })
    }

    /// The reports of a download that were not taken yet, the oldest first.
    #[napi(catch_unwind)]
    pub fn take_progress(&self) -> Vec<NativeProgress> {
        self.reports.take()
    }

    /// Loads the model, or waits for the load in flight. Cancelling ends the waiting, not the load.
    #[napi(catch_unwind, ts_return_type = "Promise<NativeModelInfo | NativeFailure>")]
    pub fn load<'env>(&self, env: &'env Env, cancel: &NativeCancel) -> Result<Object<'env>> {
        let (settle, promise) = Settle::new(env)?;
        match &self.model {
            Ok(model) => model.load(&cancel.token, move |outcome| {
                // Made here and not on the JavaScript thread: it hashes.
                let info = outcome.and_then(|model| model.text().map(NativeModelInfo::of).ok_or_else(other_kind));
                settle.with(info, |info| info);
            }),
            Err(failure) => settle.fail(failure.clone()),
        }
        Ok(promise)
    }

    /// As `load`, for a model that is not dense.
    #[napi(catch_unwind, ts_return_type = "Promise<NativeHeadInfo | NativeFailure>")]
    pub fn load_head<'env>(&self, env: &'env Env, cancel: &NativeCancel) -> Result<Object<'env>> {
        let (settle, promise) = Settle::new(env)?;
        match &self.model {
            Ok(model) => model.load(&cancel.token, move |outcome| {
                let info = outcome.and_then(|model| model.head().map(NativeHeadInfo::of).ok_or_else(other_kind));
                settle.with(info, |info| info);
            }),
            Err(failure) => settle.fail(failure.clone()),
        }
        Ok(promise)
    }

    /// What is known of the dense model; `null` while it is not loaded.
    #[napi(catch_unwind)]
    pub fn info(&self) -> Option<NativeModelInfo> {
        self.model.as_ref().ok()?.get()?.ok()?.text().map(NativeModelInfo::of)
    }

    /// Embeds the texts of `batch`, which is empty then. Loads the model first if need be.
    #[napi(catch_unwind, ts_return_type = "Promise<NativeResult | NativeFailure>")]
    pub fn embed<'env>(
        &self,
        env: &'env Env,
        batch: &NativeTextBatch,
        options: NativeEmbedOptions,
        cancel: &NativeCancel,
    ) -> Result<Object<'env>> {
        let (settle, promise) = Settle::new(env)?;
        let job = options.into_job(batch.take());
        match (&self.model, job) {
            (Ok(model), Ok(job)) => {
                model.embed(job, &cancel.token, move |result| settle.with(result, NativeResult::from));
            }
            (Err(failure), _) => settle.fail(failure.clone()),
            (_, Err(failure)) => settle.fail(failure),
        }
        Ok(promise)
    }

    /// Scores the texts of `batch`, each with its query: `queries` holds one for all, or one for each. Both are empty then.
    #[napi(catch_unwind, ts_return_type = "Promise<NativeResult | NativeFailure>")]
    pub fn score<'env>(
        &self,
        env: &'env Env,
        queries: &NativeTextBatch,
        batch: &NativeTextBatch,
        options: NativeEmbedOptions,
        cancel: &NativeCancel,
    ) -> Result<Object<'env>> {
        let (settle, promise) = Settle::new(env)?;
        let (queries, texts) = (queries.take(), batch.take());
        match (&self.model, options.into_job(texts)) {
            (Ok(model), Ok(job)) => {
                let job = EmbedJob { queries, ..job };
                model.embed(job, &cancel.token, move |result| settle.with(result, NativeResult::from));
            }
            (Err(failure), _) => settle.fail(failure.clone()),
            (_, Err(failure)) => settle.fail(failure),
        }
        Ok(promise)
    }

    /// Counts the tokens of the texts of `batch`, which is empty then, in the prompt of their role.
    #[napi(catch_unwind, ts_return_type = "Promise<NativeTokenCounts | NativeFailure>")]
    pub fn token_counts<'env>(
        &self,
        env: &'env Env,
        batch: &NativeTextBatch,
        role_name: String,
        instruction: Option<String>,
        priority_name: String,
        cancel: &NativeCancel,
    ) -> Result<Object<'env>> {
        let (settle, promise) = Settle::new(env)?;
        let texts = batch.take();
        let job = role(&role_name).and_then(|role| {
            let priority = priority(&priority_name)?;
            Ok(CountJob { texts, role, instruction, priority })
        });
        match (&self.model, job) {
            (Ok(model), Ok(job)) => {
                model.count(job, &cancel.token, move |result| settle.with(result, NativeTokenCounts::from));
            }
            (Err(failure), _) => settle.fail(failure.clone()),
            (_, Err(failure)) => settle.fail(failure),
        }
        Ok(promise)
    }

    /// Cuts the one text of `batch`, which is empty then, into chunks that are embedded whole in the prompt of their role.
    #[napi(catch_unwind, ts_return_type = "Promise<NativeChunks | NativeFailure>")]
    pub fn chunks<'env>(
        &self,
        env: &'env Env,
        batch: &NativeTextBatch,
        options: NativeChunkOptions,
        cancel: &NativeCancel,
    ) -> Result<Object<'env>> {
        let (settle, promise) = Settle::new(env)?;
        let text = batch.take().pop().unwrap_or_default();
        match (&self.model, options.into_job(text)) {
            (Ok(model), Ok(job)) => {
                model.chunk(job, &cancel.token, move |result| settle.with(result, NativeChunks::from));
            }
            (Err(failure), _) => settle.fail(failure.clone()),
            (_, Err(failure)) => settle.fail(failure),
        }
        Ok(promise)
    }

    /// Why the loaded model does not take this instruction, or none, in that role; `null`: it does.
    #[napi(catch_unwind)]
    pub fn check_instruction(&self, role_name: String, instruction: Option<String>) -> Option<NativeFailure> {
        let model = self.model.as_ref().ok()?;
        let checked = role(&role_name).and_then(|role| model.check_instruction(role, instruction.as_deref()));
        checked.err().map(NativeFailure::from)
    }

    /// Contract id of vectors with these dimensions. The model must be loaded.
    #[napi(catch_unwind)]
    pub fn contract(&self, dimensions: u32) -> Result<String> {
        let model = self.model.as_ref().ok().and_then(LazyModel::get).and_then(std::result::Result::ok);
        match model.as_ref().and_then(|model| model.text()) {
            Some(model) => Ok(model.contract(Some(dimensions as usize))),
            None => Err(Error::new(Status::GenericFailure, "the model is not loaded")),
        }
    }

    /// Writes the saved vectors of this service's model to their file.
    #[napi(catch_unwind, ts_return_type = "Promise<NativeSaved | NativeFailure>")]
    pub fn save_cache<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        let (settle, promise) = Settle::new(env)?;
        match &self.model {
            Ok(model) => model.save_cache(move |saved| {
                settle.with(saved, |entries| NativeSaved { entries: entries as u32 });
            }),
            // Nothing is loaded, so nothing is saved.
            Err(_) => settle.with(Ok(()), |()| NativeSaved { entries: 0 }),
        }
        Ok(promise)
    }

    /// Number of vectors that would be saved now.
    #[napi(catch_unwind)]
    pub fn cache_size(&self) -> u32 {
        self.model.as_ref().map_or(0, LazyModel::cache_size) as u32
    }

    /// What went wrong, was no failure, and was not taken yet.
    #[napi(catch_unwind)]
    pub fn take_warnings(&self) -> Vec<String> {
        self.model.as_ref().map(LazyModel::take_warnings).unwrap_or_default()
    }

    /// Counters of this model as this service uses it.
    #[napi(catch_unwind)]
    pub fn stats(&self) -> NativeStats {
        self.model.as_ref().map(LazyModel::statistics).unwrap_or_default().into()
    }

    /// Lets go of the model. Calls in flight fail as `ModelNotLoaded`; memory is free when their layer is done.
    #[napi(catch_unwind)]
    pub fn dispose(&self) {
        if let Ok(model) = &self.model {
            model.dispose();
        }
    }
}

/// The kind is asked for when a model is made, so this is a mistake of the TypeScript side.
fn other_kind() -> Failure {
    Failure::new(ErrorKind::Internal, "the model is of another kind than was asked for")
}
