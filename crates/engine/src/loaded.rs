//! A service's model: what to load, and the model when it is there.
//!
//! [`LazyModel`] is what one service (or one `TextEmbedding`) owns: a [`Lazy`] whose value is a [`LoadedModel`], and the
//! service's counters. Two services whose requests resolve to the same files and options share one loaded model.

use std::fmt::Write as _;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;

use simile_encoder::{Context, EncodeError};
use simile_hub::{ModelFiles, ModelRequest};
use simile_kernels::Isa;
use simile_pipeline::{
    DescriptorOverrides, LoadOptions, NonFinite, PipelineError, Precision, Role, TextModel, Tokens, Truncate,
};

use crate::cancel::CancelToken;
use crate::convert;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::job::{CountJob, EmbedJob, EmbedOutput, TokenCounts};
use crate::lazy::{Lazy, Load, Loads, Outcome};
use crate::model::Model;
use crate::panics::THREAD_PREFIX;
use crate::statistics::{Statistics, StatisticsSnapshot};
use crate::threads;

/// What to load, and how.
#[derive(Clone, Debug, Default)]
pub struct LoadRequest {
    /// Which model, and where to look for it.
    pub model: ModelRequest,
    /// Limit in tokens, special tokens included; `None` is the model's.
    pub max_length: Option<usize>,
    /// Whether vectors get unit length; `None` is the model's.
    pub normalize: Option<bool>,
    /// What happens to a text over the limit; `None` is the model's.
    pub truncate: Option<Truncate>,
    /// Facts that the caller knows better than files and registry.
    pub descriptor: Option<DescriptorOverrides>,
    /// Number format of weights and arithmetic.
    pub precision: Precision,
    /// Size of the process's pool; `None` leaves it as it is. See [`crate::threads`].
    pub threads: Option<usize>,
}

/// A model that is loaded, with where it came from. It goes away on a thread of its own: unmapping weights and freeing
/// a vocabulary of 250,000 words takes tens of milliseconds, which the JavaScript thread does not have.
#[derive(Debug)]
pub struct LoadedModel {
    /// There until the drop.
    model: Option<TextModel>,
    files: ModelFiles,
}

impl LoadedModel {
    /// The files that it was loaded from.
    pub fn files(&self) -> &ModelFiles {
        &self.files
    }
}

impl Deref for LoadedModel {
    type Target = TextModel;

    fn deref(&self) -> &TextModel {
        self.model.as_ref().expect("taken by the drop only")
    }
}

impl Drop for LoadedModel {
    fn drop(&mut self) {
        let model = self.model.take();
        // Without a thread to be had the closure comes back and is dropped here.
        let _ = thread::Builder::new().name(format!("{THREAD_PREFIX}unloader")).spawn(move || {
            drop(model);
            return_free_memory();
        });
    }
}

/// Gives what was freed back to the system. glibc keeps an arena for each thread that ever allocated, and a vocabulary
/// freed here came from the arena of a loader's thread: without this, twenty loads held up to 30 MB more than one.
fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

impl Model for LoadedModel {
    fn check_dimensions(&self, dimensions: Option<usize>) -> Result<usize, PipelineError> {
        Model::check_dimensions(&**self, dimensions)
    }

    fn contract(&self, dimensions: usize) -> String {
        Model::contract(&**self, dimensions)
    }

    fn tokenize(&self, role: Role, instruction: Option<&str>, text: &str) -> Result<Tokens, PipelineError> {
        Model::tokenize(&**self, role, instruction, text)
    }

    fn count_tokens(&self, role: Role, instruction: Option<&str>, text: &str) -> Result<(usize, usize), PipelineError> {
        Model::count_tokens(&**self, role, instruction, text)
    }

    fn cost(&self, length: usize) -> u64 {
        Model::cost(&**self, length)
    }

    fn encode(
        &self,
        batch: &[&[u32]],
        dimensions: usize,
        out: &mut [&mut [f32]],
        context: &mut Context<'_>,
    ) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
        Model::encode(&**self, batch, dimensions, out, context)
    }
}

/// One service's model, loaded at its first use.
pub struct LazyModel {
    lazy: Lazy<LoadedModel>,
    statistics: Arc<Statistics>,
    asked_for: String,
}

impl LazyModel {
    /// A model that is not loaded yet. Reads nothing and starts nothing.
    pub fn new(request: LoadRequest) -> LazyModel {
        static LOADS: OnceLock<Arc<Loads<LoadedModel>>> = OnceLock::new();
        let asked_for = request.model.id_or_folder.clone();
        let name = asked_for.clone();
        let resolve = move || resolve(request).map_err(|failure| failure.of_model(&name));
        LazyModel {
            lazy: Lazy::new(LOADS.get_or_init(Arc::default).clone(), Box::new(resolve)),
            statistics: Arc::default(),
            asked_for,
        }
    }

    /// Asks for the model, loading it if nobody did. `done` is called exactly once, as [`Lazy::load`] tells.
    ///
    /// Failures: `ModelInitialization`, `UnsupportedModel` or `InvalidInput` of the load, the same each time;
    /// `ModelNotLoaded` after [`LazyModel::dispose`]; `TaskFailed` when cancelled.
    pub fn load(&self, cancel: &CancelToken, done: impl FnOnce(Outcome<LoadedModel>) + Send + 'static) {
        self.lazy.load(cancel, done);
    }

    /// The outcome of the load, if there is one and the model was not disposed of.
    pub fn get(&self) -> Option<Outcome<LoadedModel>> {
        self.lazy.get()
    }

    /// Embeds texts on the engine of the process, loading the model first if need be. `done`: see [`Engine::embed`].
    /// The call also ends when the model is disposed of.
    pub fn embed(
        &self,
        job: EmbedJob,
        cancel: &CancelToken,
        done: impl FnOnce(Result<EmbedOutput, Failure>) + Send + 'static,
    ) {
        let (statistics, cancels) = (self.statistics.clone(), [cancel.clone(), self.lazy.disposal().clone()]);
        let name = self.asked_for.clone();
        self.load(cancel, move |outcome| match outcome {
            Err(failure) => done(Err(failure.of_model(&name))),
            Ok(model) => Engine::process().embed(model, statistics, job, &cancels, move |result| {
                done(result.map_err(|failure| failure.of_model(&name)));
            }),
        });
    }

    /// Counts tokens, loading the model first if need be. `done`: see [`Engine::count`].
    pub fn count(
        &self,
        job: CountJob,
        cancel: &CancelToken,
        done: impl FnOnce(Result<TokenCounts, Failure>) + Send + 'static,
    ) {
        let (statistics, cancels) = (self.statistics.clone(), [cancel.clone(), self.lazy.disposal().clone()]);
        let name = self.asked_for.clone();
        self.load(cancel, move |outcome| match outcome {
            Err(failure) => done(Err(failure.of_model(&name))),
            Ok(model) => Engine::process().count(model, statistics, job, &cancels, move |result| {
                done(result.map_err(|failure| failure.of_model(&name)));
            }),
        });
    }

    /// This service's counters.
    pub fn statistics(&self) -> StatisticsSnapshot {
        self.statistics.snapshot()
    }

    /// Lets go of the model. Calls that wait or run fail with `ModelNotLoaded`; what runs stops at its next layer, and
    /// then the memory is free, unless another service uses the model.
    pub fn dispose(&self) {
        self.lazy.dispose();
    }
}

/// Finds the files and checks the options: the cheap half of a load.
fn resolve(request: LoadRequest) -> Result<(String, Load<LoadedModel>), Failure> {
    let threads = match request.threads {
        Some(threads) => Some(threads::check(threads)?),
        None => None,
    };
    // Read here although the engine reads it too, so that a malformed value is an error and not ignored.
    threads::from_environment()?;
    let isa = Isa::from_env().map_err(convert::isa)?;
    let files = simile_hub::resolve(&request.model).map_err(convert::hub)?;
    let options = LoadOptions {
        max_length: request.max_length,
        normalize: request.normalize,
        truncate: request.truncate,
        descriptor: request.descriptor,
        isa,
        precision: request.precision,
    };
    if let Some(threads) = threads {
        Engine::process().set_threads(threads);
    }
    let key = key(&files, &options);
    let load = move || {
        let model = TextModel::load(&files, &options).map_err(convert::load)?;
        Ok(LoadedModel { model: Some(model), files })
    };
    Ok((key, Box::new(load)))
}

/// Requests with the same key give the same model: the folder as it is now, and every option.
fn key(files: &ModelFiles, options: &LoadOptions) -> String {
    let folder = files.folder.canonicalize().unwrap_or_else(|_| files.folder.clone());
    let mut key = format!("{}\n{}\n{:?}\n{options:?}\n", folder.display(), files.id, files.revision);
    for (path, size, time) in listing(&folder) {
        // A folder whose model was trained anew is another model, even while the old one is still alive.
        let _ = writeln!(key, "{} {size} {time}", path.display());
    }
    key
}

/// The files right in `folder`, with sizes and times of change (nanoseconds since 1970), sorted by name.
fn listing(folder: &Path) -> Vec<(PathBuf, u64, u128)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            // Follows links: the hub's cache is made of them.
            let data = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
            let time = data.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos();
            Some((path, data.len(), time))
        })
        .collect();
    files.sort();
    files
}
