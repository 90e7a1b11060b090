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
    #[error(
        "'{}' is not a model id: {reason}. Give 'owner/name', or a folder as './folder' or an absolute path",
        shorten(id)
    )]
    InvalidId {
        /// The id as it was given.
        id: String,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// The revision could not be the name of a branch, tag or commit.
    #[error(
        "'{}' is not a revision: {reason}. Give a branch, a tag or a commit of 40 hexadecimal digits",
        shorten(revision)
    )]
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
    #[error(
        "there is no folder '{}'. Check the path; a relative one is taken from the current directory of the process",
        shorten(&folder.to_string_lossy())
    )]
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
    /// An option or variable that says how to reach the hub has a value that cannot be used.
    #[error("{name} {problem}")]
    InvalidSetting {
        /// The option or the environment variable.
        name: &'static str,
        /// What is wrong with it, as a predicate. Never holds a secret.
        problem: String,
    },
    /// The model is not on this machine, and the hub may not be asked.
    #[error("{missing}. It was not downloaded because {why} says to stay offline")]
    Offline {
        /// Why it is not here.
        missing: Box<HubError>,
        /// The option or variable that says so.
        why: &'static str,
    },
    /// The hub has no such repository, or does not show it to whoever asks.
    #[error(
        "the model '{id}' is not on this machine, and at {endpoint} it does not exist or is private (HTTP {status}). Check the \
         id; for a private model {}",
        if *token { "use a token of an account that may read it" } else { "set HF_TOKEN, or give the option token" }
    )]
    NotOnHub {
        /// The model's id.
        id: String,
        /// Base URL of the hub.
        endpoint: String,
        /// What it answered.
        status: u16,
        /// Whether a token was sent.
        token: bool,
    },
    /// The repository has no such branch, tag or commit.
    #[error(
        "'{id}' at {endpoint} has no revision '{revision}' (HTTP {status}). Check the name of the branch, tag or commit"
    )]
    RevisionNotOnHub {
        /// The model's id.
        id: String,
        /// The revision that was asked for.
        revision: String,
        /// Base URL of the hub.
        endpoint: String,
        /// What it answered.
        status: u16,
    },
    /// A file that the hub itself listed could not be had.
    #[error(
        "the hub lists a file and does not have it: {url} answered HTTP {status}. Try again later, or ask for another revision"
    )]
    FileNotOnHub {
        /// Where it was asked for.
        url: String,
        /// What the hub answered.
        status: u16,
    },
    /// The hub does not know the token.
    #[error(
        "{url} refused the token of {from} (HTTP 401). Make a new one at the hub, or remove it: public models need none"
    )]
    TokenRefused {
        /// What was asked for.
        url: String,
        /// The option, variable or file that the token is from.
        from: String,
    },
    /// The owner of the model asks users to accept terms first.
    #[error(
        "access to '{id}' is restricted (HTTP {status}). Accept its terms at {page}, then {}",
        if *token { "load it again with a token of that account" } else { "set HF_TOKEN to a token of that account" }
    )]
    Gated {
        /// The model's id.
        id: String,
        /// The model's page, where terms are accepted.
        page: String,
        /// What the hub answered.
        status: u16,
        /// Whether a token was sent.
        token: bool,
    },
    /// The hub answered with a status that no other variant stands for.
    #[error("{url} answered HTTP {status}{}", said.as_ref().map(|said| format!(": {said}")).unwrap_or_default())]
    Refused {
        /// What was asked for.
        url: String,
        /// What the hub answered.
        status: u16,
        /// Its words, if it sent any.
        said: Option<String>,
    },
    /// The hub asks to be left alone for longer than a load waits.
    #[error("{url} answered HTTP 429, too many requests: try again in {wait}. A token (HF_TOKEN) has a higher limit")]
    RateLimited {
        /// What was asked for.
        url: String,
        /// How long it says to wait.
        wait: String,
    },
    /// An answer leads somewhere that is not followed.
    #[error("{url} redirects {problem}. Check HF_ENDPOINT and the proxy")]
    Redirect {
        /// The last place.
        url: String,
        /// What is wrong with where it leads.
        problem: String,
    },
    /// Something else than a hub answered: a captive portal, a proxy's own page, a wrong endpoint.
    #[error(
        "{url} did not answer as a hub does: {problem}. If this is a log-in page of the network, log in; otherwise check \
         HF_ENDPOINT and the proxy"
    )]
    NotAHub {
        /// What was asked for.
        url: String,
        /// How its answer begins, or what is wrong with it.
        problem: String,
    },
    /// A file did not arrive as the hub lists it. Nothing of it was kept.
    #[error(
        "{url} gave another content than the hub lists: {problem}. It was thrown away; load again to fetch it anew"
    )]
    WrongContent {
        /// Where it is from.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The hub was reached and then was not, several times in a row.
    #[error("{url} failed {tries} times, at last because {problem}. Load again to go on from where it stopped")]
    Interrupted {
        /// What was asked for.
        url: String,
        /// How often it was tried.
        tries: u32,
        /// What happened the last time.
        problem: String,
    },
    /// The hub could not be reached at all.
    #[error(
        "the model '{id}' is not on this machine, and {host} could not be reached: {problem}. Check the network and the \
         proxy (HTTPS_PROXY, NO_PROXY); HF_ENDPOINT names another hub, and HF_HUB_OFFLINE=1 says not to ask any"
    )]
    Unreachable {
        /// The model's id.
        id: String,
        /// The host that was asked for.
        host: String,
        /// What the system says.
        problem: String,
    },
    /// The repository has weights, none of them in a format that is loaded.
    #[error("'{id}' has no safetensors or PyTorch weights, only {}. Nothing was downloaded; choose a revision or model that has them", found.join(", "))]
    OnlyOtherFormats {
        /// The model's id.
        id: String,
        /// What it has.
        found: Vec<String>,
    },
    /// The repository is no model that can be loaded.
    #[error("'{id}' has no {missing} at commit {commit}. Nothing was downloaded; choose another model")]
    NotAModel {
        /// The model's id.
        id: String,
        /// The commit that was looked at.
        commit: String,
        /// What every model has and it has not.
        missing: &'static str,
    },
    /// The operating system refused to write into the cache.
    #[error("could not write '{}': {source}. {}", path.display(), write_advice(source))]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The download was ended by its caller.
    #[error("the download was stopped")]
    Stopped,
}

impl HubError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        HubError::Io { path: path.to_path_buf(), source }
    }
}

fn write_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Make room, then load again: what was received is kept. cacheDir or HF_HUB_CACHE may name a cache on another disk"
        }
        _ => "A download needs a cache that can be written: give cacheDir, or set HF_HUB_CACHE",
    }
}

/// The beginning of a text that may be of any length, in one line.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN: usize = 100;
    let line = |text: &str| text.replace(|c: char| c.is_control(), " ");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… ({} bytes)", line(&text[..end]), text.len()),
        None => line(text),
    }
}

fn list(looked: &[Looked]) -> String {
    looked.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn available(found: &[String]) -> String {
    if found.is_empty() { "none".to_owned() } else { found.join(", ") }
}
