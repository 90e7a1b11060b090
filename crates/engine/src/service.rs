//! What the model of a service has besides: the folder rule of Qwen3-Embedding, and vectors that are saved.
//!
//! Both are for services only; who loads a model by itself names its folder, and keeps what vectors it likes.
//!
//! **Folder.** A Qwen3-Embedding model that is asked for by its id is taken from the folder that `SIMILE_QWEN_MODEL_DIR` names,
//! else from `.simile/models/<name>` below the home directory, where that is a folder. It must be whole then,
//! and the model asked for: another size or kind is refused after the load. Without such a folder the model is looked for as every other is. A revision is one of the hub, so the rule does not hold with it.
//!
//! **Saved vectors.** A service whose model is a Qwen3 has a [`SavedCache`] for its dimensions, restored before the first call is
//! answered and saved when it is asked to. Its file is `embed_{model}_{dimension}d.bin` in `.simile/cache` below the home
//! directory, or below the system's folder of temporary files without one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use simile_encoder::EncodeError;
use simile_hub::{HubError, ModelFiles, ModelRequest, Source};
use simile_pipeline::{Identity, ModelDescriptor, ModelFamily, NonFinite, SavedCache, Tokens, registered};

use crate::failure::{ErrorKind, Failure};
use crate::loaded::LoadedModel;
use crate::panics::{self, THREAD_PREFIX};

/// The environment variable that names the folder of a Qwen3-Embedding model. Blank is as good as absent.
pub const QWEN_VARIABLE: &str = "SIMILE_QWEN_MODEL_DIR";

/// `model_type` of the models whose vectors are saved.
const SAVED_MODEL_TYPE: &str = "qwen3";

/// The files without which no model loads; the last stands for shards too.
const FILES: [&str; 3] = ["config.json", "tokenizer.json", "model.safetensors"];

/// A service's own settings of a load.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Length of its vectors; `None` is the model's.
    pub dimensions: Option<usize>,
    /// What [`QWEN_VARIABLE`] names.
    pub qwen_dir: Option<PathBuf>,
    /// The home directory.
    pub home: Option<PathBuf>,
}

impl Service {
    /// The settings that an environment makes.
    pub fn from_environment(dimensions: Option<usize>, lookup: &dyn Fn(&str) -> Option<String>) -> Service {
        let path = |name| lookup(name).filter(|value| !value.trim().is_empty()).map(PathBuf::from);
        let home = path(if cfg!(windows) { "USERPROFILE" } else { "HOME" });
        let of_home = |folder: PathBuf| match (folder.strip_prefix("~"), &home) {
            (Ok(below), Some(home)) => home.join(below),
            _ => folder,
        };
        Service { dimensions, qwen_dir: path(QWEN_VARIABLE).map(of_home), home }
    }

    /// The files of the model by the folder rule; `None` when the rule says nothing.
    ///
    /// # Errors
    /// `ModelInitialization` with what is missing and where to get it, when there is a folder that has not all of it.
    pub(crate) fn files(&self, request: &ModelRequest) -> Result<Option<ModelFiles>, Failure> {
        let Some((id, name)) = qwen(&request.id_or_folder).filter(|_| request.revision.is_none()) else {
            return Ok(None);
        };
        let default = || self.folder(&name).filter(|folder| folder.is_dir());
        let Some(folder) = self.qwen_dir.clone().or_else(default) else { return Ok(None) };
        let missing: Vec<&str> = FILES.into_iter().filter(|file| !has(&folder, file)).collect();
        if !missing.is_empty() {
            let from =
                if self.qwen_dir.is_some() { format!(", the folder of {QWEN_VARIABLE},") } else { String::new() };
            let problem =
                if folder.is_dir() { format!("has no {}", missing.join(", ")) } else { "is not there".to_owned() };
            let message = format!("'{}'{from} {problem}. {}", folder.display(), self.guidance(id, &name));
            return Err(Failure::new(ErrorKind::ModelInitialization, message));
        }
        Ok(Some(ModelFiles { id: id.to_owned(), revision: None, folder, source: Source::Folder }))
    }

    /// Refuses a model of the folder rule that is not the one asked for: its prompts and dimensions would be another's.
    ///
    /// # Errors
    /// `ModelInitialization` with the folder, the variable, and what is different.
    pub(crate) fn check(&self, files: &ModelFiles, loaded: &ModelDescriptor) -> Result<(), Failure> {
        let Some(entry) = registered(&files.id) else { return Ok(()) };
        let found = loaded.dimensions;
        let difference = match entry.dimensions {
            _ if loaded.model_type != SAVED_MODEL_TYPE => {
                format!("its model_type is '{}', that of {} is '{SAVED_MODEL_TYPE}'", loaded.model_type, entry.id)
            }
            Some(wanted) if wanted != found => {
                format!("its vectors have {found} dimensions, those of {} have {wanted}", entry.id)
            }
            _ => return Ok(()),
        };
        let (folder, name) = (files.folder.display(), file_name(entry.id));
        let message = format!(
            "'{folder}' holds another model than {}: {difference}. Let {QWEN_VARIABLE} name the folder of the model asked \
             for, or unset it. {}",
            entry.id,
            self.guidance(entry.id, &name)
        );
        Err(Failure::new(ErrorKind::ModelInitialization, message))
    }

    /// What to do about a Qwen3-Embedding model that was found nowhere.
    pub(crate) fn hint(&self, request: &ModelRequest) -> Option<String> {
        let (id, name) = qwen(&request.id_or_folder)?;
        Some(self.guidance(id, &name))
    }

    fn guidance(&self, id: &str, name: &str) -> String {
        let default = self.folder(name).map(|folder| format!(", or into '{}'", folder.display())).unwrap_or_default();
        format!(
            "Download {} of https://huggingface.co/{id} (`hf download {id} --local-dir <folder>`) into a folder that \
             {QWEN_VARIABLE} names{default}",
            FILES.join(", ")
        )
    }

    fn folder(&self, name: &str) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(".simile/models").join(name))
    }

    /// Where the vectors of a model are saved.
    fn cache_file(&self, id: &str, dimensions: usize) -> PathBuf {
        let home = self.home.clone().unwrap_or_else(std::env::temp_dir);
        home.join(".simile/cache").join(format!("embed_{}_{dimensions}d.bin", file_name(id)))
    }
}

/// The id and the folder's name of a Qwen3-Embedding model of the registry.
fn qwen(id: &str) -> Option<(&'static str, String)> {
    let entry = registered(id).filter(|entry| entry.family == ModelFamily::Qwen3)?;
    Some((entry.id, file_name(entry.id)))
}

/// The last part of an id or a path, in letters that every file system takes.
fn file_name(id: &str) -> String {
    let name = id.trim_end_matches(['/', '\\']).rsplit(['/', '\\']).next().unwrap_or_default();
    let kept = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c.to_ascii_lowercase() } else { '-' };
    // Names of files end at 255 bytes; the identity in the file tells apart what is cut alike.
    name.chars().take(100).map(kept).collect()
}

/// Whether a folder has a file, in shards or as a whole.
fn has(folder: &Path, file: &str) -> bool {
    [file.to_owned(), format!("{file}.index.json")].iter().any(|name| folder.join(name).is_file())
}

/// Whether an error says that a model is not there, and not that it is wrong.
pub(crate) fn is_missing(error: &HubError) -> bool {
    matches!(
        error,
        HubError::InvalidId { .. }
            | HubError::NotFound { .. }
            | HubError::Offline { .. }
            | HubError::NotOnHub { .. }
            | HubError::Unreachable { .. }
            | HubError::NoCacheDir
    )
}

/// The saved vectors of one service.
#[derive(Clone, Default)]
pub(crate) struct Saved {
    place: Arc<OnceLock<(PathBuf, Arc<SavedCache>)>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Saved {
    /// Restores what was saved for a model that has just been loaded, if its kind is saved. `way` is what decides a vector's
    /// bytes besides the contract.
    pub(crate) fn open(&self, service: &Service, model: &LoadedModel, way: &str) {
        let Some(text) = model.text().filter(|model| model.descriptor().model_type == SAVED_MODEL_TYPE) else {
            return;
        };
        // Dimensions that the model does not give are the error of the first call.
        let Ok(dimensions) = text.check_dimensions(service.dimensions) else { return };
        let path = service.cache_file(&text.descriptor().id, dimensions);
        let space = format!("contract {}, {way}", text.contract(Some(dimensions)));
        let (cache, problem) = model.saved(&path, Identity { space, dimensions });
        if let Some(problem) = problem {
            let warning = format!("{problem}. It was not used");
            self.warnings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(warning);
        }
        let _ = self.place.set((path, cache));
    }

    /// Entries; 0 before the load and for a model that saves none.
    pub(crate) fn len(&self) -> usize {
        self.place.get().map_or(0, |(_, cache)| cache.len())
    }

    /// What went wrong and was not told yet.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Writes the entries to their file on a thread of its own, and tells `done` their number.
    pub(crate) fn save(&self, done: impl FnOnce(Result<usize, Failure>) + Send + 'static) {
        let Some((path, cache)) = self.place.get().cloned() else { return done(Ok(0)) };
        // Shared, because a thread that is not to be had takes its closure with it.
        let done: Arc<Mutex<Option<Done>>> = Arc::new(Mutex::new(Some(Box::new(done))));
        let last = done.clone();
        let spawned = thread::Builder::new().name(format!("{THREAD_PREFIX}saver")).spawn(move || {
            let saved = panics::catch(|| cache.save(&path));
            let result = match saved {
                Ok(saved) => saved.map_err(|error| Failure::new(ErrorKind::TaskFailed, error.to_string())),
                Err(panic) => Err(panics::failure("saving the cache", &panic)),
            };
            tell(&done, result);
        });
        if let Err(error) = spawned {
            let message = format!("the system gave no thread to save on: {error}");
            tell(&last, Err(Failure::new(ErrorKind::TaskFailed, message)));
        }
    }
}

type Done = Box<dyn FnOnce(Result<usize, Failure>) + Send>;

fn tell(done: &Mutex<Option<Done>>, result: Result<usize, Failure>) {
    let done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    if let Some(done) = done {
        done(result);
    }
}

/// A batch whose rows are looked up in `caches` first. `compute` gets those that none has, and what it gives is kept by all.
///
/// # Errors
/// Those of `compute`, about the rows of `batch`.
pub(crate) fn through(
    caches: &[Arc<SavedCache>],
    batch: &[&Tokens],
    out: &mut [&mut [f32]],
    compute: impl FnOnce(&[&Tokens], &mut [&mut [f32]]) -> Result<Vec<Result<(), NonFinite>>, EncodeError>,
) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
    let keys: Vec<Vec<u32>> = batch.iter().map(|tokens| key(tokens)).collect();
    let (mut missed, mut texts, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for (row, (tokens, out)) in batch.iter().zip(out).enumerate() {
        if !caches.iter().any(|cache| cache.get(&keys[row], out)) {
            missed.push(row);
            texts.push(*tokens);
            rows.push(&mut **out);
        }
    }
    let mut results = vec![Ok(()); batch.len()];
    if missed.is_empty() {
        return Ok(results);
    }
    let computed = compute(&texts, &mut rows).map_err(|error| of_row(error, &missed))?;
    for ((&row, result), vector) in missed.iter().zip(computed).zip(&rows) {
        if result.is_ok() {
            caches.iter().for_each(|cache| cache.insert(&keys[row], vector));
        }
        results[row] = result;
    }
    Ok(results)
}

/// All of a text's tokens that its vector depends on: the ids, and behind them how many are left out of the pooling.
fn key(tokens: &Tokens) -> Vec<u32> {
    debug_assert!(tokens.types.is_empty() && tokens.padding == 0, "a dense text has neither");
    let prompt = u32::try_from(tokens.prompt).unwrap_or(u32::MAX);
    tokens.ids.iter().copied().chain([prompt]).collect()
}

/// An error about a row of those that were computed, as one about a row of the batch.
fn of_row(mut error: EncodeError, missed: &[usize]) -> EncodeError {
    if let EncodeError::EmptySequence { sequence }
    | EncodeError::TooLong { sequence, .. }
    | EncodeError::TokenOutOfRange { sequence, .. }
    | EncodeError::TokenTypeOutOfRange { sequence, .. } = &mut error
    {
        *sequence = missed.get(*sequence).copied().unwrap_or(*sequence);
    }
    error
}

#[cfg(test)]
mod tests;
