//! The one error type of this crate. Each variant carries the value at fault; each message ends with what to do next.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// One place that was searched, and why it did not have the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The folder that was searched.
    pub place: PathBuf,
    /// What was wrong with it, as half a sentence ("has no folder models--a--b").
    pub why: String,
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place.display(), self.why)
    }
}

/// Why a model's files could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The id is neither a folder nor a valid repository id.
    #[error("'{id}' is not a model id: {reason}. Give 'owner/name', or a folder as './folder' or an absolute path")]
    InvalidId {
        /// The id as it was given.
        id: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// The revision could not be the name of a branch, tag or commit.
    #[error("'{revision}' is not a revision: {reason}. Give a branch, a tag or a commit of 40 hexadecimal digits")]
    InvalidRevision {
        /// The revision as it was given or as a file names it.
        revision: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A file name, as a request or a model's own file gives it, leads out of the model's folder.
    #[error("'{name}' is not a file name inside a model folder: {reason}")]
    InvalidName {
        /// The name at fault.
        name: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A revision was asked of a folder, which has only one.
    #[error("a revision ('{revision}') was given, but '{}' is a folder and has no revisions. Leave the revision out, or give a model id", folder.display())]
    RevisionOfFolder {
        /// The folder.
        folder: PathBuf,
        /// The revision.
        revision: String,
    },
    /// The given folder is not there.
    #[error("there is no folder '{}'. Check the path; a relative one is taken from the current directory of the process", folder.display())]
    FolderMissing {
        /// The folder as it was given.
        folder: PathBuf,
    },
    /// No place has the model.
    #[error(
        "the model '{id}' was not found on this machine. Looked at: {}. Download it (`hf download {id}`), point \
         HF_HUB_CACHE or cacheDir at the cache that has it, or give the path of its folder",
        list(looked)
    )]
    NotFound {
        /// The model's id.
        id: String,
        /// Every place that was searched.
        looked: Vec<Looked>,
    },
    /// The cache has the model, but not this revision of it.
    #[error(
        "revision '{revision}' of '{id}' is not in {}. There are: {}. Ask for one of these, or download it \
         (`hf download {id} --revision {revision}`)", folder.display(), available(found)
    )]
    RevisionNotCached {
        /// The model's id.
        id: String,
        /// The revision that was asked for (`main` if none was).
        revision: String,
        /// The model's folder in the cache.
        folder: PathBuf,
        /// References and commits that are there.
        found: Vec<String>,
    },
    /// A model folder lacks files that every model has.
    #[error("'{}' is not a complete model: {problem}. {advice}", folder.display())]
    Incomplete {
        /// The folder.
        folder: PathBuf,
        /// What is missing, as half a sentence.
        problem: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// A file of the model is a link whose target is gone: a cache that was cleaned or downloaded by half.
    #[error("'{}' is a link to a file that is not there. Download the model again", path.display())]
    DanglingLink {
        /// The link.
        path: PathBuf,
    },
    /// A file holds a git-lfs pointer where its content should be.
    #[error(
        "'{}' is a git-lfs pointer, not the file itself: the repository was cloned without git-lfs. Run `git lfs pull` \
         in it, or download the model another way", path.display()
    )]
    LfsPointer {
        /// The file.
        path: PathBuf,
    },
    /// A file that should hold JSON does not.
    #[error("'{}' is not valid JSON: {message}. The file is damaged; download it again", path.display())]
    InvalidJson {
        /// The file.
        path: PathBuf,
        /// The parser's words, with line and column.
        message: String,
    },
    /// The operating system refused to read something.
    #[error("could not read '{}': {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No environment variable names a cache and the user has no home directory.
    #[error("no cache folder is known: the user has no home directory. Set HF_HUB_CACHE, or give cacheDir")]
    NoCacheDir,
}

impl HubError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        HubError::Io { path: path.to_path_buf(), source }
    }
}

fn list(looked: &[Looked]) -> String {
    looked.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn available(found: &[String]) -> String {
    if found.is_empty() { "none".to_owned() } else { found.join(", ") }
}
