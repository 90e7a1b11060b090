//! Writing into the shared cache, so that nothing half-written is ever taken for a model.
//!
//! ```text
//! <cache>/.locks/models--owner--name/<etag>.lock    locked while the blob is written, as huggingface_hub locks it
//! <cache>/models--owner--name/
//!   blobs/<etag>.incomplete                         what was received, from the first byte on
//!   blobs/<etag>                                    by a rename, once size and hash are right
//!   snapshots/<commit>/<file>                       a relative link to the blob, all of them after the last blob
//!   refs/<revision>                                 by a rename, last of all
//! ```
//! A lock is the system's and ends with its process, however that ends. It saves a second transfer and nothing else: where
//! it is not to be had, each writer has a partial file of its own ([`Partial`]), and who is second replaces a blob by the
//! same content. Whatever else is written has a name of its own until it is whole ([`temporary`]), and replaces what is in
//! its place by a rename, so it does not matter who else writes there: another process, host, or service of this process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::{Builder, NamedTempFile};

use crate::HubError;
use crate::cache::CachedModel;
use crate::listing::RemoteFile;
use crate::partial::Partial;
use crate::stop::Stop;

/// How often a lock that somebody else has is asked for: the system has no wait that can be interrupted.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// One model's part of a cache that is being written.
pub(crate) struct Store<'a> {
    cached: &'a CachedModel,
    locks: PathBuf,
    /// Whether to make links; tests say no, to be like a file system that has none.
    links: bool,
}

impl<'a> Store<'a> {
    pub(crate) fn new(cache: &Path, cached: &'a CachedModel, links: bool) -> Self {
        let locks = cache.join(".locks").join(cached.root().file_name().unwrap_or_default());
        Store { cached, locks, links }
    }

    pub(crate) fn blob(&self, file: &RemoteFile) -> PathBuf {
        self.cached.blobs().join(file.etag.name())
    }

    fn partial(&self, file: &RemoteFile) -> PathBuf {
        self.cached.blobs().join(format!("{}.incomplete", file.etag.name()))
    }

    /// Whether the blob is there. One of another size than it must have was damaged, and goes.
    pub(crate) fn has(&self, file: &RemoteFile) -> Result<bool, HubError> {
        let blob = self.blob(file);
        match fs::metadata(&blob) {
            Ok(data) if data.is_file() && data.len() == file.size => Ok(true),
            Ok(_) => match fs::remove_file(&blob) {
                // Somebody else saw it too.
                Err(source) if source.kind() != io::ErrorKind::NotFound => Err(not_written(&blob, source)),
                _ => Ok(false),
            },
            Err(_) => Ok(false),
        }
    }

    /// Locks a blob for writing, waiting for whoever writes it. `waiting` is called at each look, with the bytes that the
    /// other one has. `None` where the file system has no locks.
    ///
    /// # Errors
    /// [`HubError::Write`], [`HubError::Stopped`].
    pub(crate) fn lock(
        &self,
        file: &RemoteFile,
        stop: &Stop,
        mut waiting: impl FnMut(u64),
    ) -> Result<Option<File>, HubError> {
        create_dir(&self.cached.blobs())?;
        create_dir(&self.locks)?;
        let path = self.locks.join(format!("{}.lock", file.etag.name()));
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let lock = lock.map_err(|source| not_written(&path, source))?;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Some(lock)),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(_)) => return Ok(None),
            }
            waiting(fs::metadata(self.partial(file)).map_or(0, |data| data.len()));
            if stop.wait(LOCK_POLL) {
                return Err(HubError::Stopped);
            }
        }
    }

    /// What was received of a file so far, for writing. Needs the folders that [`Store::lock`] makes.
    ///
    /// # Errors
    /// [`HubError::Write`].
    pub(crate) fn open_partial(&self, file: &RemoteFile) -> Result<Partial, HubError> {
        let path = self.partial(file);
        Partial::open(&path).map_err(|source| not_written(&path, source))
    }

    /// Makes the partial file the blob. Its content was checked. `false` if somebody took it away and there is no blob.
    ///
    /// # Errors
    /// [`HubError::Write`].
    pub(crate) fn finish(&self, file: &RemoteFile, partial: Partial) -> Result<bool, HubError> {
        let blob = self.blob(file);
        match partial.finish(file.size, &blob) {
            Ok(true) => Ok(true),
            Ok(false) => self.has(file),
            // Somebody else may have been first, and the blob be in use.
            Err(_) if self.has(file)? => Ok(true),
            Err(source) => Err(not_written(&blob, source)),
        }
    }

    /// Puts the blob at the file's place in the commit's snapshot: as a link, else as a second name of the blob, else as a
    /// copy. What is there already stays, unless it is a link whose blob was deleted.
    ///
    /// # Errors
    /// [`HubError::Write`].
    pub(crate) fn link(&self, commit: &str, file: &RemoteFile) -> Result<(), HubError> {
        let (blob, place) = (self.blob(file), self.cached.snapshot(commit).join(&file.name));
        if place.exists() {
            return Ok(());
        }
        create_dir(place.parent().unwrap_or(&place))?;
        let up = "../".repeat(2 + file.name.matches('/').count());
        let target = format!("{up}blobs/{}", file.etag.name());
        let link =
            || put(builder(&blob).make_in(self.cached.blobs(), |path| symlink(Path::new(&target), path))?, &place);
        let name = || put(builder(&blob).make_in(self.cached.blobs(), |path| fs::hard_link(&blob, path))?, &place);
        let copy = || {
            let mut copy = temporary(&blob)?;
            io::copy(&mut File::open(&blob)?, copy.as_file_mut())?;
            put(copy, &place)
        };
        if self.links && link().is_ok() {
            return Ok(());
        }
        match name().or_else(|_| copy()) {
            // Somebody else was first, and it is in use.
            Err(_) if place.exists() => Ok(()),
            outcome => outcome.map_err(|source| not_written(&place, source)),
        }
    }

    /// Notes the commit that a branch or tag is at.
    pub(crate) fn reference(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if revision == commit {
            return Ok(());
        }
        let place = self.cached.root().join("refs").join(revision);
        create_dir(place.parent().unwrap_or(&place))?;
        let written = || {
            let mut new = temporary(&self.cached.blobs().join(commit))?;
            new.write_all(commit.as_bytes())?;
            put(new, &place)
        };
        written().map_err(|source| not_written(&place, source))
    }
}

/// A new file beside `path` with a name that nobody else has; it is deleted unless it is kept or put somewhere.
pub(crate) fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    builder(path).tempfile_in(path.parent().unwrap_or(path))
}

/// Names of `path`'s own name, something random, and the ending of what is not finished.
fn builder(path: &Path) -> Builder<'_, 'static> {
    let mut builder = Builder::new();
    builder.prefix(path.file_stem().unwrap_or_default()).suffix(".incomplete");
    // As any new file: by default only this user could read it, and a cache may be shared.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// Puts what is whole into its place.
fn put<F>(temporary: NamedTempFile<F>, place: &Path) -> io::Result<()> {
    temporary.persist(place).map(drop).map_err(|error| error.error)
}

pub(crate) fn not_written(path: &Path, source: io::Error) -> HubError {
    HubError::Write { path: path.to_path_buf(), source }
}

fn create_dir(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|source| not_written(path, source))
}

#[cfg(unix)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, place)
}

#[cfg(windows)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    // A target with slashes is taken literally there and leads nowhere.
    let target = PathBuf::from(target.to_string_lossy().replace('/', "\\"));
    std::os::windows::fs::symlink_file(target, place)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
