//! A service's model: what to load, and the model when it is there.
//!
//! [`LazyModel`] is what one service (or one `TextEmbedding`) owns: a [`Lazy`] whose value is a [`LoadedModel`], and the
//! service's counters. Two services whose requests resolve to the same files and options share one loaded model.
//!
//! The environment is read where a [`LazyModel`] is made, never by the thread that loads: see `environment.rs`.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;

use simile_encoder::{Context, EncodeError};
use simile_hub::{HubSettings, ModelFiles, ModelRequest, Progress, Stop};
use simile_kernels::Isa;
use simile_pipeline::{
    Chunk, ChunkRequest, DescriptorOverrides, Device, HeadModel, Identity, Input, LoadError, LoadOptions, ModelKind,
    NonFinite, Outputs, PipelineError, Precision, Role, SavedCache, SavedCacheError, TextModel, Tokens, Truncate,
    check_config, check_registered, device_is_built, hint, support,
};

use crate::cancel::{CancelToken, Listener};
use crate::convert;
use crate::engine::Engine;
use crate::environment::Settings;
use crate::failure::Failure;
use crate::job::{ChunkJob, CountJob, EmbedJob, EmbedOutput, TokenCounts, held};
use crate::lazy::{Lazy, Load, Loads, Outcome};
use crate::model::Model;
use crate::panics::THREAD_PREFIX;
use crate::service::{self, Saved, Service};
use crate::statistics::{Statistics, StatisticsSnapshot};
use crate::threads;
use crate::waiting::Waiting;

/// What to load, and how.
#[derive(Clone, Debug, Default)]
pub struct LoadRequest {
    /// Which model, and where to look for it.
    pub model: ModelRequest,
    /// The hub that it is downloaded from when it is not on this machine.
    pub hub: HubSettings,
    /// Limit in tokens, special tokens included; `None` is the model's.
    pub max_length: Option<usize>,
    /// Whether vectors get unit length; `None` is the model's.
    pub normalize: Option<bool>,
    /// What happens to a text over the limit; `None` is the model's.
    pub truncate: Option<Truncate>,
    /// Facts that the caller knows better than files and registry.
    pub descriptor: Option<DescriptorOverrides>,
    /// What computes.
    pub device: Device,
    /// Number format of weights and arithmetic.
    pub precision: Precision,
    /// What the model is to give.
    pub kind: ModelKind,
    /// What a service asks for besides; `None` for all others.
    pub service: Option<Service>,
    /// Size of the process's pool; `None` leaves it as it is. See [`crate::threads`].
    pub threads: Option<usize>,
}

/// Loaded models of this process whose memory is not given back yet.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// A model that is loaded. It goes away on a thread of its own: unmapping weights and freeing a vocabulary of 250,000
/// words takes tens of milliseconds, which the JavaScript thread does not have.
pub struct LoadedModel {
    /// There until the drop.
    model: Option<Loaded>,
    /// Vectors that services save, with the files that they are saved to.
    saved: Mutex<Vec<(PathBuf, Arc<SavedCache>)>>,
}

/// A model of either sort.
enum Loaded {
    /// Dense.
    Text(Box<TextModel>),
    /// Sparse, multi-vector or rerank.
    Head(Box<dyn HeadModel>),
}

impl LoadedModel {
    fn new(model: Loaded) -> LoadedModel {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        LoadedModel { model: Some(model), saved: Mutex::default() }
    }

    /// The cache that is saved to `path`, restored from it by who asks first, and what was wrong with the file.
    pub(crate) fn saved(&self, path: &Path, identity: Identity) -> (Arc<SavedCache>, Option<SavedCacheError>) {
        let known = |saved: &[(PathBuf, Arc<SavedCache>)]| {
            let same = saved.iter().find(|(of, cache)| of == path && *cache.identity() == identity);
            same.map(|(_, cache)| cache.clone())
        };
        if let Some(cache) = known(&self.caches()) {
            return (cache, None);
        }
        // Without the lock, which calls that run take too. Two who come at once read the file twice.
        let cache = Arc::new(SavedCache::new(identity.clone()));
        let problem = cache.restore(path).err();
        let mut saved = self.caches();
        if let Some(cache) = known(&saved) {
            return (cache, None);
        }
        saved.push((path.to_path_buf(), cache.clone()));
        (cache, problem)
    }

    fn caches(&self) -> MutexGuard<'_, Vec<(PathBuf, Arc<SavedCache>)>> {
        self.saved.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Those for vectors of `dimensions`.
    fn caches_of(&self, dimensions: usize) -> Vec<Arc<SavedCache>> {
        let caches = self.caches();
        let fits = |cache: &&Arc<SavedCache>| cache.identity().dimensions == dimensions;
        caches.iter().map(|(_, cache)| cache).filter(fits).cloned().collect()
    }

    /// The dense model; `None` for one of another kind.
    pub fn text(&self) -> Option<&TextModel> {
        match self.loaded() {
            Loaded::Text(model) => Some(model),
            Loaded::Head(_) => None,
        }
    }

    /// The model of another kind; `None` for a dense one.
    pub fn head(&self) -> Option<&dyn HeadModel> {
        match self.loaded() {
            Loaded::Text(_) => None,
            Loaded::Head(model) => Some(&**model),
        }
    }

    fn loaded(&self) -> &Loaded {
        self.model.as_ref().expect("taken by the drop only")
    }
}

impl fmt::Debug for LoadedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_tuple("LoadedModel");
        match self.loaded() {
            Loaded::Text(model) => debug.field(model),
            Loaded::Head(model) => debug.field(model.descriptor()),
        };
        debug.finish()
    }
}

impl Drop for LoadedModel {
    fn drop(&mut self) {
        let model = Unload(self.model.take());
        // Without a thread to be had the closure comes back and is dropped here.
        let _ = thread::Builder::new().name(format!("{THREAD_PREFIX}unloader")).spawn(move || drop(model));
    }
}

/// Frees a model, and with the last one what the allocator kept of all.
struct Unload(Option<Loaded>);

impl Drop for Unload {
    fn drop(&mut self) {
        drop(self.0.take());
        if ALIVE.fetch_sub(1, Ordering::AcqRel) == 1 {
            return_free_memory();
        }
    }
}

/// Gives what was freed back to the system. glibc keeps an arena for each thread that ever allocated, and a vocabulary
/// freed here came from the arena of a loader's thread: without this, twenty loads held up to 30 MB more than one.
///
/// It locks one arena after the other, the one of the JavaScript thread too, so it is not called while models live.
fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

impl Model for LoadedModel {
    fn check_dimensions(&self, dimensions: Option<usize>) -> Result<Option<usize>, PipelineError> {
        match self.loaded() {
            Loaded::Text(model) => model.check_dimensions(dimensions).map(Some),
            // A score; sparse vectors and token vectors are as many as a text has.
            Loaded::Head(model) => Ok((model.descriptor().kind == ModelKind::Rerank).then_some(1)),
        }
    }

    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError> {
        match self.loaded() {
            Loaded::Text(model) => model.check_instruction(role, instruction),
            Loaded::Head(model) => model.check_instruction(role, instruction),
        }
    }

    fn takes_pairs(&self) -> bool {
        self.head().is_some_and(|model| model.descriptor().kind == ModelKind::Rerank)
    }

    fn contract(&self, width: Option<usize>) -> String {
        match self.loaded() {
            Loaded::Text(model) => model.contract(width),
            Loaded::Head(model) => model.contract().to_owned(),
        }
    }

    fn tokenize(&self, input: &Input<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
        match self.loaded() {
            Loaded::Text(model) => model.tokenize_while(input.role, input.instruction, input.text, go_on),
            Loaded::Head(model) => model.tokenize(input, go_on),
        }
    }

    fn count_tokens(
        &self,
        input: &Input<'_>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<(usize, usize)>, PipelineError> {
        match self.tokenize(input, go_on) {
            Ok(tokens) => Ok(tokens.map(|tokens| (tokens.total, tokens.embedded()))),
            Err(PipelineError::TextTooLong { limit, actual }) => Ok(Some((actual, limit))),
            Err(error) => Err(error),
        }
    }

    fn chunk(
        &self,
        role: Role,
        instruction: Option<&str>,
        text: &str,
        request: ChunkRequest,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Chunk>>, PipelineError> {
        match self.loaded() {
            Loaded::Text(model) => model.chunk(role, instruction, text, request, go_on),
            // Not offered by the classes that load them.
            Loaded::Head(_) => Ok(Some(Vec::new())),
        }
    }

    fn cost(&self, length: usize) -> u64 {
        match self.loaded() {
            Loaded::Text(model) => model.cost(length),
            Loaded::Head(model) => model.cost(length),
        }
    }

    fn encode(
        &self,
        batch: &[&Tokens],
        width: Option<usize>,
        out: &mut Outputs,
        context: &mut Context<'_>,
    ) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
        match self.loaded() {
            Loaded::Text(model) => {
                let width = width.unwrap_or_else(|| model.dimensions());
                let caches = self.caches_of(width);
                let mut out = out.fixed(batch.len(), width);
                let mut compute = |batch: &[&Tokens], out: &mut [&mut [f32]]| model.encode(batch, width, out, context);
                if caches.is_empty() {
                    compute(batch, &mut out)
                } else {
                    service::through(&caches, batch, &mut out, compute)
                }
            }
            Loaded::Head(model) => {
                model.encode(batch, out, context)?;
                let finite = |row| out.non_finite(row).map_or(Ok(()), |component| Err(NonFinite { component }));
                Ok((0..out.len()).map(finite).collect())
            }
        }
    }
}

/// Who gets the result of a call.
type Done<R> = Box<dyn FnOnce(Result<R, Failure>) + Send>;

/// One service's model, loaded at its first use.
pub struct LazyModel {
    lazy: Lazy<LoadedModel>,
    /// A variable whose value is not allowed is the failure of the load, and of every call.
    engine: Result<&'static Engine, Failure>,
    statistics: Arc<Statistics>,
    saved: Saved,
    asked_for: String,
}

impl LazyModel {
    /// A model that is not loaded yet. Reads nothing but the environment's variables and starts nothing.
    pub fn new(request: LoadRequest) -> LazyModel {
        LazyModel::reporting(request, |_| {})
    }

    /// As [`LazyModel::new`]; `report` is told by the loader's thread how a download goes, if there is one. It must be quick.
    pub fn reporting(request: LoadRequest, mut report: impl FnMut(Progress) + Send + 'static) -> LazyModel {
        static LOADS: OnceLock<Arc<Loads<LoadedModel>>> = OnceLock::new();
        let asked_for = request.model.id_or_folder.clone();
        let name = asked_for.clone();
        let threads = request.threads;
        let settings = Settings::read();
        let engine = settings.as_ref().map(Engine::of_process).map_err(Failure::clone);
        let saved = Saved::default();
        let (service, opening, isa) =
            (request.service.clone(), saved.clone(), settings.as_ref().map(|all| all.isa).ok());
        let device = request.device;
        let resolve = move |abandoned: &CancelToken| {
            let files = settings.and_then(|settings| resolve(request, settings.isa, abandoned, &mut report));
            files.map_err(|failure| failure.of_model(&name))
        };
        let ready = move |outcome: &Outcome<LoadedModel>| {
            if let (Ok(model), Some(service), Some(isa)) = (outcome, service, isa) {
                let (architecture, version) = (std::env::consts::ARCH, env!("CARGO_PKG_VERSION"));
                let way = format!("{architecture} {}, device {device}, simile {version}", isa.name());
                opening.open(&service, model, &way);
            }
        };
        let loads = LOADS.get_or_init(Arc::default).clone();
        let lazy = Lazy::preparing(loads, Box::new(resolve), Box::new(ready));
        if let (Some(threads), Ok(engine)) = (threads, engine.clone()) {
            // Also when the model was loaded already, for somebody else.
            lazy.when_settled(move |outcome| {
                if outcome.is_ok() {
                    engine.set_threads(threads);
                }
            });
        }
        LazyModel { lazy, engine, statistics: Arc::default(), saved, asked_for }
    }

    /// Asks for the model, loading it if nobody did. `done` is called exactly once, as [`Lazy::load`] tells.
    ///
    /// Failures: `ModelInitialization`, `UnsupportedModel` or `InvalidInput` of the load, the same each time;
    /// `ModelNotLoaded` after [`LazyModel::dispose`]; `TaskFailed` when cancelled. Dropping this stops a download too: who
    /// waits for it then fails as cancelled. Calls whose model is loaded are not touched by a drop.
    pub fn load(&self, cancel: &CancelToken, done: impl FnOnce(Outcome<LoadedModel>) + Send + 'static) {
        self.lazy.load(cancel, done);
    }

    /// The outcome of the load, if there is one and the model was not disposed of.
    pub fn get(&self) -> Option<Outcome<LoadedModel>> {
        self.lazy.get()
    }

    /// Embeds texts on the engine of the process, loading the model first if need be. `done`: see [`Engine::embed`].
    /// The call also ends when the model is disposed of. `Overloaded` also when it would wait for the load and too much
    /// does already.
    pub fn embed(
        &self,
        job: EmbedJob,
        cancel: &CancelToken,
        done: impl FnOnce(Result<EmbedOutput, Failure>) + Send + 'static,
    ) {
        let bytes = held(job.texts.iter().chain(&job.queries), job.instruction.as_deref());
        self.call(bytes, cancel, done, |engine, model, statistics, cancels, done| {
            engine.embed(model, statistics, job, cancels, done);
        });
    }

    /// Counts tokens, as [`LazyModel::embed`] embeds. `done`: see [`Engine::count`].
    pub fn count(
        &self,
        job: CountJob,
        cancel: &CancelToken,
        done: impl FnOnce(Result<TokenCounts, Failure>) + Send + 'static,
    ) {
        let bytes = held(&job.texts, job.instruction.as_deref());
        self.call(bytes, cancel, done, |engine, model, statistics, cancels, done| {
            engine.count(model, statistics, job, cancels, done);
        });
    }

    /// Cuts a text into chunks, as [`LazyModel::embed`] embeds. `done`: see [`Engine::chunk`].
    pub fn chunk(
        &self,
        job: ChunkJob,
        cancel: &CancelToken,
        done: impl FnOnce(Result<Vec<Chunk>, Failure>) + Send + 'static,
    ) {
        let bytes = held(std::slice::from_ref(&job.text), job.instruction.as_deref());
        self.call(bytes, cancel, done, |engine, model, statistics, cancels, done| {
            engine.chunk(model, statistics, job, cancels, done);
        });
    }

    /// Gives a call that holds `bytes` to the engine when the model is there. Its failures name the model.
    fn call<R: 'static>(
        &self,
        bytes: usize,
        cancel: &CancelToken,
        done: impl FnOnce(Result<R, Failure>) + Send + 'static,
        submit: impl FnOnce(&Engine, Arc<LoadedModel>, Arc<Statistics>, &[CancelToken], Done<R>) + Send + 'static,
    ) {
        static WAITING: Waiting = Waiting::new();
        let name = self.asked_for.clone();
        let done = move |result: Result<R, Failure>| done(result.map_err(|failure| failure.of_model(&name)));
        let engine = match &self.engine {
            Ok(engine) => *engine,
            Err(failure) => return done(Err(failure.clone())),
        };
        let place = if self.lazy.is_pending() { WAITING.enter(bytes, engine.limit()).map(Some) } else { Ok(None) };
        let place = match place {
            Ok(place) => place,
            Err(failure) => {
                self.statistics.settled(Some(failure.kind));
                return done(Err(failure));
            }
        };
        let (statistics, cancels) = (self.statistics.clone(), [cancel.clone(), self.lazy.disposal().clone()]);
        self.load(cancel, move |outcome| {
            drop(place);
            match outcome {
                Ok(model) => submit(engine, model, statistics, &cancels, Box::new(done)),
                Err(failure) => done(Err(failure)),
            }
        });
    }

    /// Whether texts of `role` can be embedded with this instruction, or without one. A model that is not loaded says
    /// nothing: its first call will. Quick.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), Failure> {
        match self.get() {
            Some(Ok(model)) => Model::check_instruction(&*model, role, instruction)
                .map_err(|error| convert::pipeline(error).of_model(&self.asked_for)),
            _ => Ok(()),
        }
    }

    /// This service's counters.
    pub fn statistics(&self) -> StatisticsSnapshot {
        self.statistics.snapshot()
    }

    /// Writes the saved vectors of this service's model to their file; `done` is called once, with their number: 0 while
    /// no model is loaded, and for a model that saves none. See [`crate::service`].
    ///
    /// Failures: `TaskFailed` when the file cannot be written; what was there is untouched then.
    pub fn save_cache(&self, done: impl FnOnce(Result<usize, Failure>) + Send + 'static) {
        let name = self.asked_for.clone();
        self.saved.save(move |result| done(result.map_err(|failure| failure.of_model(&name))));
    }

    /// Number of vectors that would be saved now.
    pub fn cache_size(&self) -> usize {
        self.saved.len()
    }

    /// What went wrong on the way, was no failure, and was not told yet: a file of saved vectors that was not used.
    pub fn take_warnings(&self) -> Vec<String> {
        self.saved.take_warnings()
    }

    /// Lets go of the model. Calls that wait or run fail with `ModelNotLoaded`; what runs stops at its next layer, and
    /// then the memory is free, unless another service uses the model.
    pub fn dispose(&self) {
        self.lazy.dispose();
    }
}

/// Ends a download that nobody can want any more.
struct StopDownload(Stop);

impl Listener for StopDownload {
    fn cancelled(&self, _: &Failure) {
        self.0.stop();
    }
}

/// Checks the options and finds the files, downloading them if need be: the first half of a load.
fn resolve(
    request: LoadRequest,
    isa: Isa,
    abandoned: &CancelToken,
    report: &mut dyn FnMut(Progress),
) -> Result<(String, Load<LoadedModel>), Failure> {
    request.threads.map(threads::check).transpose()?;
    // Before anything is downloaded: nothing in the files would change the answer.
    device_is_built(request.device).map_err(|error| convert::encoder(&error, error.to_string()))?;
    let sparse = request.kind == ModelKind::Sparse;
    support::check(None, sparse, request.device, request.precision).map_err(convert::load)?;
    if sparse {
        simile_pipeline::check_id(&request.model.id_or_folder).map_err(convert::load)?;
    }
    if sparse && simile_pipeline::is_computed(&request.model.id_or_folder) {
        let (max_length, truncate) = (request.max_length, request.truncate);
        let options = LoadOptions { max_length, truncate, ..LoadOptions::new(isa) };
        let key = format!("computed\n{max_length:?}\n{truncate:?}");
        return Ok((key, Box::new(move || Ok(LoadedModel::new(Loaded::Head(simile_pipeline::computed(&options)))))));
    }
    let download = Arc::new(StopDownload(Stop::default()));
    abandoned.listen(&download);
    let id = request.model.id_or_folder.as_str();
    check_registered(request.kind, id).map_err(convert::load)?;
    let by_rule = request.service.as_ref().map(|service| service.files(&request.model)).transpose()?.flatten();
    let ruled = by_rule.is_some();
    let files = match by_rule {
        Some(files) => files,
        None => {
            simile_hub::obtain(&request.model, &request.hub, &download.0, report, &check_config).map_err(|error| {
                let missing = matches!(&error, LoadError::Hub(error) if service::is_missing(error));
                let hints = [hint(id), request.service.as_ref().and_then(|service| service.hint(&request.model))];
                let failure = convert::load(error);
                hints.into_iter().flatten().filter(|_| missing).fold(failure, Failure::hinting)
            })?
        }
    };
    let options = LoadOptions {
        max_length: request.max_length,
        normalize: request.normalize,
        truncate: request.truncate,
        descriptor: request.descriptor,
        isa,
        device: request.device,
        precision: request.precision,
    };
    let kind = request.kind;
    let key = format!("{kind}\n{}", key(&files, &options));
    let rule = request.service.clone().filter(|_| ruled);
    let load = move || {
        let model = match kind {
            ModelKind::Dense => TextModel::load(&files, &options).map(|model| Loaded::Text(Box::new(model))),
            _ => simile_pipeline::load_head(kind, &files, &options).map(Loaded::Head),
        };
        let model = model.map(LoadedModel::new).map_err(convert::load)?;
        if let (Some(rule), Some(text)) = (&rule, model.text()) {
            rule.check(&files, text.descriptor())?;
        }
        Ok(model)
    };
    Ok((key, Box::new(load)))
}

/// Requests with the same key give the same model: the folder as it is now, and every option.
fn key(files: &ModelFiles, options: &LoadOptions) -> String {
    let folder = files.folder.canonicalize().unwrap_or_else(|_| files.folder.clone());
    let mut key = format!("{}\n{}\n{:?}\n{options:?}\n", folder.display(), files.id, files.revision);
    let mut files = Vec::new();
    list(&folder, LISTED_LEVELS, &mut files);
    for (path, size, time) in &files {
        // A folder whose model was trained anew is another model, even while the old one is still alive.
        let _ = writeln!(key, "{} {size} {time}", path.display());
    }
    if files.len() >= LISTED_FILES {
        // Whether the rest has changed is not known, so nobody shares it.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let _ = writeln!(key, "alone {}", NEXT.fetch_add(1, Ordering::Relaxed));
    }
    key
}

/// How deep a model's files lie: right in its folder, and in the folders of its modules (`1_Pooling`, `2_Dense`).
const LISTED_LEVELS: usize = 2;

/// The most files that are looked at: a model has a few dozen, and somebody may keep more than a model in its folder.
const LISTED_FILES: usize = 4096;

/// Appends the files of `folder` and of the `levels` - 1 levels of folders below it, [`LISTED_FILES`] at most in all, with
/// sizes and times of change (nanoseconds since 1970), in the order of their names.
fn list(folder: &Path, levels: usize, files: &mut Vec<(PathBuf, u64, u128)>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if files.len() >= LISTED_FILES {
            return;
        }
        // Follows links: the hub's cache is made of them.
        let Ok(data) = std::fs::metadata(&path) else { continue };
        if data.is_file() {
            let time = data.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            files.push((path, data.len(), time.unwrap_or_default().as_nanos()));
        } else if data.is_dir() && levels > 1 {
            list(&path, levels - 1, files);
        }
    }
}
