//! From a request to a folder: the order of places, and the check that what was found is a whole model.
//!
//! [`resolve`] looks on this machine; [`obtain`] also downloads what is not there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::CachedModel;
use crate::cache_dir::cache_dir;
use crate::download::{Rules, download};
use crate::progress::Progress;
use crate::settings::HubSettings;
use crate::stop::Stop;
use crate::{HubError, Looked, ModelFiles, Source, check_model_id, check_revision, formats, package};

/// Which model is wanted, and where to look for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelRequest {
    /// A model id (`owner/name`) or a folder.
    pub id_or_folder: String,
    /// A branch, tag or commit of the id. Default: `main`, or whatever a model package carries.
    pub revision: Option<String>,
    /// The cache to look in. Default: the environment's ([`crate::cache_dir::cache_dir`]).
    pub cache_dir: Option<PathBuf>,
    /// Folders of installed model packages, in the order in which they are searched. Default: none.
    pub packages: Vec<PathBuf>,
}

impl ModelRequest {
    /// A request for one id or folder, everything else at its default.
    pub fn new(id_or_folder: impl Into<String>) -> Self {
        ModelRequest { id_or_folder: id_or_folder.into(), ..Default::default() }
    }
}

const DOWNLOAD_AGAIN: &str = "Download the model again; a finished part is kept";
const NOT_A_MODEL: &str = "Give the folder that holds config.json and model.safetensors";

/// Finds a model on this machine. Opens no connection, writes nothing.
///
/// # Errors
/// Any [`HubError`] of reading: see its variants. A model that no place has is [`HubError::NotFound`] with every place
/// searched.
pub fn resolve(request: &ModelRequest) -> Result<ModelFiles, HubError> {
    find(request).map_err(|missing| match missing {
        Missing::Final(error) | Missing::FromCache { error, .. } => error,
    })
}

/// Finds a model on this machine, or downloads it into the cache. A model that is found opens no connection: a branch that
/// is cached is used as it is, whatever has become of it at the hub.
///
/// `report` is told how a download goes: first when it begins, last when everything is here, at most 20 times a second.
/// Nothing is reported when nothing is downloaded. `stop` ends a download from another thread. `check` is given the content
/// of `config.json` before anything else of the model is downloaded, and ends the download with its error.
///
/// # Errors
/// Any [`HubError`], and what `check` says. Those of reading come at once where a download would not help: a folder or a package that is
/// incomplete, an id that is none.
pub fn obtain<E: From<HubError>>(
    request: &ModelRequest,
    settings: &HubSettings,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
    check: &dyn Fn(&[u8]) -> Result<(), E>,
) -> Result<ModelFiles, E> {
    let (missing, cache) = match find(request) {
        Ok(files) if files.source != Source::Cache || settings.offline().is_some() || has_weights(&files.folder) => {
            return Ok(files);
        }
        // Filled by somebody who takes other formats: the hub may have ours, or says that it has not.
        Ok(files) => {
            let cache = files.folder.ancestors().nth(3).unwrap_or(&files.folder).to_path_buf();
            let problem = "it has no weights in a format that is loaded".to_owned();
            (HubError::Incomplete { folder: files.folder, problem, advice: DOWNLOAD_AGAIN }, cache)
        }
        Err(Missing::Final(error)) => return Err(error.into()),
        Err(Missing::FromCache { error, cache }) => (error, cache),
    };
    if let Some(why) = settings.offline() {
        return Err(HubError::Offline { missing: Box::new(missing), why }.into());
    }
    download(&cache, request, settings, &Rules::default(), stop, report, check)?;
    Ok(resolve(request)?)
}

/// Why a model was not found.
enum Missing {
    /// A download would not help.
    Final(HubError),
    /// This cache has not all of it.
    FromCache { error: HubError, cache: PathBuf },
}

impl From<HubError> for Missing {
    fn from(error: HubError) -> Self {
        Missing::Final(error)
    }
}

fn find(request: &ModelRequest) -> Result<ModelFiles, Missing> {
    let id = request.id_or_folder.as_str();
    let mut looked = Vec::new();
    if let Some(revision) = &request.revision {
        check_revision(revision)?;
    }

    let as_path = expand_home(id);
    if looks_like_path(id) {
        if !as_path.is_dir() {
            return Err(HubError::FolderMissing { folder: as_path }.into());
        }
        return Ok(folder(request, as_path)?);
    }
    if as_path.is_dir() {
        if has_config(&as_path) {
            return Ok(folder(request, as_path)?);
        }
        looked.push(Looked { place: as_path, why: "is a folder without config.json".to_owned() });
    }

    check_model_id(id)?;
    for place in &request.packages {
        match package::read(place) {
            Err(why) => looked.push(Looked { place: place.clone(), why }),
            Ok(found) if found.model != id => {
                looked.push(Looked { place: place.clone(), why: format!("is the package of '{}'", found.model) });
            }
            Ok(found) if request.revision.is_some() && found.revision != request.revision => {
                let has = found.revision.as_deref().unwrap_or("none that it names");
                looked.push(Looked { place: place.clone(), why: format!("has another revision ({has})") });
            }
            Ok(found) => {
                check_whole(&found.folder, "Install the package again")?;
                return Ok(ModelFiles {
                    id: id.to_owned(),
                    revision: found.revision,
                    folder: found.folder,
                    source: Source::Package,
                });
            }
        }
    }

    let cache = match &request.cache_dir {
        Some(given) => given.clone(),
        None => cache_dir()?,
    };
    let cached = CachedModel::new(&cache, id)?;
    in_cache(&cached, id, request.revision.as_deref(), &cache, looked)
        .map_err(|error| Missing::FromCache { error, cache })
}

fn in_cache(
    cached: &CachedModel,
    id: &str,
    revision: Option<&str>,
    cache: &Path,
    mut looked: Vec<Looked>,
) -> Result<ModelFiles, HubError> {
    if !cached.root().is_dir() {
        let name = cached.root().file_name().unwrap_or_default().to_string_lossy().into_owned();
        looked.push(Looked { place: cache.to_path_buf(), why: format!("(the cache) has no folder {name}") });
        return Err(HubError::NotFound { id: id.to_owned(), looked });
    }
    let commit = cached.commit(revision)?;
    let snapshot = cached.snapshot(&commit);
    check_whole(&snapshot, DOWNLOAD_AGAIN).and_then(|()| check_cached(&snapshot)).map_err(|error| match error {
        HubError::Incomplete { folder, problem, advice } if cached.has_partial_download() => HubError::Incomplete {
            folder,
            problem: format!("{problem} (a download of it was begun and not finished)"),
            advice,
        },
        other => other,
    })?;
    Ok(ModelFiles { id: id.to_owned(), revision: Some(commit), folder: snapshot, source: Source::Cache })
}

fn folder(request: &ModelRequest, folder: PathBuf) -> Result<ModelFiles, HubError> {
    if let Some(revision) = &request.revision {
        return Err(HubError::RevisionOfFolder { folder, revision: revision.clone() });
    }
    check_whole(&folder, NOT_A_MODEL)?;
    Ok(ModelFiles { id: request.id_or_folder.clone(), revision: None, folder, source: Source::Folder })
}

/// What cannot be a model id, or is written the way only paths are.
fn looks_like_path(text: &str) -> bool {
    let windows = cfg!(windows) && (text.contains('\\') || text.as_bytes().get(1) == Some(&b':'));
    text.starts_with(['/', '.', '~']) || text.ends_with('/') || text.matches('/').count() > 1 || windows
}

/// `~/x` below the home directory; everything else as it is.
fn expand_home(text: &str) -> PathBuf {
    match (text.strip_prefix("~/"), std::env::home_dir()) {
        (Some(below), Some(home)) => home.join(below),
        _ => PathBuf::from(text),
    }
}

fn has_config(folder: &Path) -> bool {
    folder.join("config.json").is_file() || folder.join("modules.json").is_file()
}

/// Checks that a folder holds a configuration and weights, in itself or in the subfolder of its first module
/// (`0_Transformer`, as old sentence-transformers wrote it). A static model's configuration may be `modules.json` alone.
fn check_whole(folder: &Path, advice: &'static str) -> Result<(), HubError> {
    let incomplete = |problem: String| HubError::Incomplete { folder: folder.to_path_buf(), problem, advice };
    if !folder.is_dir() {
        return Err(incomplete("the folder is not there".to_owned()));
    }
    let mut places = vec![folder.to_path_buf()];
    for entry in fs::read_dir(folder).map_err(|source| HubError::io(folder, source))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("0_") && entry.path().is_dir() {
            places.push(entry.path());
        }
    }
    let dangling = |name: &str| places.iter().any(|place| place.join(name).is_symlink() && !place.join(name).exists());
    let missing = |what: &str, names: &[&str]| match names.iter().find(|name| dangling(name)) {
        Some(name) => incomplete(format!("{name} is a link to a file that is not there")),
        None => incomplete(format!("it has no {what}")),
    };
    // Its class is named there, whatever the version of sentence-transformers; the loader reads it properly.
    let is_static =
        || fs::read_to_string(folder.join("modules.json")).is_ok_and(|list| list.contains(".StaticEmbedding\""));
    if !places.iter().any(|place| place.join("config.json").is_file()) && !is_static() {
        return Err(missing("config.json", &["config.json"]));
    }
    let weights: Vec<&str> = formats::READ.as_flattened().iter().chain(&formats::OTHERS).copied().collect();
    if !places.iter().any(|place| weights.iter().any(|name| place.join(name).exists())) {
        return Err(missing("weights (model.safetensors)", &weights));
    }
    Ok(())
}

/// Whether there are weights that are loaded, in the folder or in that of a module.
fn has_weights(snapshot: &Path) -> bool {
    let mut names = Vec::new();
    list(snapshot, snapshot, 2, &mut names);
    formats::loaded(|wanted| names.iter().any(|name| name.rsplit('/').next() == Some(wanted))).is_some()
}

/// Checks what a cache can lack that has a configuration and weights, because it was filled by somebody who needed only
/// some of the files, or cleaned: a tokenizer, a shard of the weights, the target of any link.
fn check_cached(snapshot: &Path) -> Result<(), HubError> {
    let incomplete =
        |problem: String| HubError::Incomplete { folder: snapshot.to_path_buf(), problem, advice: DOWNLOAD_AGAIN };
    let mut names = Vec::new();
    list(snapshot, snapshot, 2, &mut names);
    if let Some(name) = names.iter().find(|name| !snapshot.join(name).exists()) {
        return Err(incomplete(format!("{name} is a link to a file that is not there")));
    }
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    for name in &names {
        let (place, file) = name.split_at(name.rfind('/').map_or(0, |slash| slash + 1));
        let is_index = formats::READ.iter().any(|[_, index]| *index == file);
        if !is_index || formats::loaded(|wanted| has(&format!("{place}{wanted}"))) != Some(file) {
            continue;
        }
        // An index that cannot be read is for the loader to refuse.
        let Ok(index) = fs::read(snapshot.join(name)) else { continue };
        let index: serde_json::Value = serde_json::from_slice(&index).unwrap_or_default();
        let shards = index["weight_map"].as_object().into_iter().flat_map(|map| map.values());
        if let Some(shard) = shards.filter_map(|shard| shard.as_str()).find(|shard| !has(&format!("{place}{shard}"))) {
            return Err(incomplete(format!("it has no {shard}")));
        }
    }
    let tokenizer =
        |name: &String| name == "tokenizer.json" || (name.starts_with("0_") && name.ends_with("/tokenizer.json"));
    if names.iter().any(tokenizer) { Ok(()) } else { Err(incomplete("it has no tokenizer.json".to_owned())) }
}

/// Names of the files and links below `folder`, relative to `base`, with `/`, so many levels deep.
fn list(base: &Path, folder: &Path, levels: usize, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if levels > 1 {
                list(base, &path, levels - 1, names);
            }
        } else if let Some(name) = path.strip_prefix(base).ok().and_then(Path::to_str) {
            names.push(name.replace('\\', "/"));
        }
    }
}
