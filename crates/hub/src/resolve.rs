//! From a request to a folder: the order of places, and the check that what was found is a whole model.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::CachedModel;
use crate::cache_dir::cache_dir;
use crate::{HubError, Looked, ModelFiles, Source, check_model_id, check_revision, package};

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

/// Weights of any format, files and folders; which of them can be loaded is for the loader to say. Holds every name that
/// the loader refuses by format (a test of the pipeline, which sees both crates, keeps it so).
const WEIGHTS: [&str; 10] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "tf_model.h5",
    "flax_model.msgpack",
    "model.ckpt.index",
    "model.onnx",
    "onnx",
    "openvino",
];

const DOWNLOAD_AGAIN: &str = "Download the model again; a finished part is kept";
const NOT_A_MODEL: &str = "Give the folder that holds config.json and model.safetensors";

/// Finds a model on this machine. Opens no connection, writes nothing.
///
/// # Errors
/// Any [`HubError`]: see its variants. A model that no place has is [`HubError::NotFound`] with every place searched.
pub fn resolve(request: &ModelRequest) -> Result<ModelFiles, HubError> {
    let id = request.id_or_folder.as_str();
    let mut looked = Vec::new();
    if let Some(revision) = &request.revision {
        check_revision(revision)?;
    }

    let as_path = expand_home(id);
    if looks_like_path(id) {
        if !as_path.is_dir() {
            return Err(HubError::FolderMissing { folder: as_path });
        }
        return folder(request, as_path);
    }
    if as_path.is_dir() {
        if has_config(&as_path) {
            return folder(request, as_path);
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
    if !cached.root().is_dir() {
        let name = cached.root().file_name().unwrap_or_default().to_string_lossy().into_owned();
        looked.push(Looked { place: cache, why: format!("(the cache) has no folder {name}") });
        return Err(HubError::NotFound { id: id.to_owned(), looked });
    }
    let commit = cached.commit(request.revision.as_deref())?;
    let snapshot = cached.snapshot(&commit);
    check_whole(&snapshot, DOWNLOAD_AGAIN).map_err(|error| match error {
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
/// (`0_Transformer`, as old sentence-transformers wrote it).
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
    if !places.iter().any(|place| place.join("config.json").is_file()) {
        return Err(missing("config.json", &["config.json"]));
    }
    if !places.iter().any(|place| WEIGHTS.iter().any(|name| place.join(name).exists())) {
        return Err(missing("weights (model.safetensors)", &WEIGHTS));
    }
    Ok(())
}
