//! The cache that `huggingface_hub` and we share: its layout and what is in it.
//!
//! ```text
//! <cache>/models--owner--name/
//!   refs/main                     one line: the commit that the branch was at
//!   snapshots/<commit>/<file>     a symlink to ../../blobs/<name>, or a plain file where links are not to be had
//!   blobs/<name>                  the content; the name is its SHA-256 for git-lfs files, its git blob id for others
//! ```
//! Folder names and the place of a snapshot come from the `hf-hub` crate (its `Cache` and `Repo`, without any of its
//! network features). Reading references is ours: its `get` neither trims nor checks what a reference file says.

use std::fs;
use std::path::{Path, PathBuf};

use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use crate::{HubError, check_model_id, check_revision};

/// The branch that is meant when no revision is given.
pub const DEFAULT_REVISION: &str = "main";

/// One model's part of a cache. Nothing need exist yet.
pub struct CachedModel {
    id: String,
    /// `<cache>/models--owner--name`.
    root: PathBuf,
    repository: CacheRepo,
}

impl CachedModel {
    /// The part of the cache at `cache_dir` that belongs to the model `id`.
    ///
    /// # Errors
    /// [`HubError::InvalidId`].
    pub fn new(cache_dir: &Path, id: &str) -> Result<Self, HubError> {
        check_model_id(id)?;
        let repo = Repo::new(id.to_owned(), RepoType::Model);
        let root = cache_dir.join(repo.folder_name());
        Ok(CachedModel { id: id.to_owned(), root, repository: Cache::new(cache_dir.to_path_buf()).repo(repo) })
    }

    /// `<cache>/models--owner--name`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of a commit's files, there or not.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.repository.pointer_path(commit)
    }

    /// The folder of contents, there or not.
    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    /// The commit that a branch, tag or commit stands for here.
    ///
    /// # Errors
    /// [`HubError::InvalidRevision`], also for a reference file that does not hold a commit;
    /// [`HubError::RevisionNotCached`] with what is there instead; [`HubError::Io`].
    pub fn commit(&self, revision: Option<&str>) -> Result<String, HubError> {
        let revision = revision.unwrap_or(DEFAULT_REVISION);
        check_revision(revision)?;
        if is_commit(revision) && self.snapshot(revision).is_dir() {
            return Ok(revision.to_owned());
        }
        let file = self.root.join("refs").join(revision);
        if !file.is_file() {
            return Err(HubError::RevisionNotCached {
                id: self.id.clone(),
                revision: revision.to_owned(),
                folder: self.root.clone(),
                found: self.available(),
            });
        }
        let commit = fs::read_to_string(&file).map_err(|source| HubError::io(&file, source))?.trim().to_owned();
        if is_commit(&commit) {
            Ok(commit)
        } else {
            Err(HubError::InvalidRevision {
                revision: commit,
                reason: "the reference file in the cache does not hold a commit",
            })
        }
    }

    /// References and commits that are here, sorted, references first.
    fn available(&self) -> Vec<String> {
        let refs = self.root.join("refs");
        let mut references = Vec::new();
        walk(&refs, &refs, &mut references);
        references.sort();
        let mut commits: Vec<String> = fs::read_dir(self.root.join("snapshots"))
            .map(|entries| entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
            .unwrap_or_default();
        commits.sort();
        references.extend(commits);
        references
    }

    /// Whether a download into this model was begun and not finished.
    pub fn has_partial_download(&self) -> bool {
        fs::read_dir(self.blobs()).is_ok_and(|entries| {
            entries.flatten().any(|entry| {
                Path::new(&entry.file_name()).extension().is_some_and(|ext| ext == "incomplete" || ext == "part")
            })
        })
    }
}

/// Names of all files below `folder`, relative to `base`, with `/`.
fn walk(base: &Path, folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(base, &path, names);
        } else if let Some(name) = path.strip_prefix(base).ok().and_then(Path::to_str) {
            names.push(name.replace('\\', "/"));
        }
    }
}

/// A git commit: 40 hexadecimal digits in lower case.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
