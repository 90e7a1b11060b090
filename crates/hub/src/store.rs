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
//! a file system ignores locks, two writers put the same bytes at the same places of the partial file, and what is wrong
//! afterwards fails its hash.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::HubError;
use crate::cache::CachedModel;
use crate::listing::RemoteFile;
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

    pub(crate) fn partial(&self, file: &RemoteFile) -> PathBuf {
        self.cached.blobs().join(format!("{}.incomplete", file.etag.name()))
    }

    /// Whether the blob is there. One of another size than it must have was damaged, and goes.
    pub(crate) fn has(&self, file: &RemoteFile) -> Result<bool, HubError> {
        let blob = self.blob(file);
        match fs::metadata(&blob) {
            Ok(data) if data.is_file() && data.len() == file.size => Ok(true),
            Ok(_) => fs::remove_file(&blob).map(|()| false).map_err(|source| write(&blob, source)),
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
        let lock = lock.map_err(|source| write(&path, source))?;
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

    /// Makes the partial file the blob. Its content was checked.
    pub(crate) fn finish(&self, file: &RemoteFile) -> Result<(), HubError> {
        let blob = self.blob(file);
        match fs::rename(self.partial(file), &blob) {
            // Without locks somebody else may have been first.
            Err(_) if self.has(file)? => Ok(()),
            outcome => outcome.map_err(|source| write(&blob, source)),
        }
    }

    /// Puts the blob at the file's place in the commit's snapshot: as a link, else as a second name of the blob, else as a
    /// copy. What is there already stays.
    pub(crate) fn link(&self, commit: &str, file: &RemoteFile) -> Result<(), HubError> {
        let (blob, place) = (self.blob(file), self.cached.snapshot(commit).join(&file.name));
        if place.exists() {
            return Ok(());
        }
        create_dir(place.parent().unwrap_or(&place))?;
        // A link whose blob was deleted.
        if place.is_symlink() {
            fs::remove_file(&place).map_err(|source| write(&place, source))?;
        }
        let up = "../".repeat(2 + file.name.matches('/').count());
        let made = if self.links {
            symlink(Path::new(&format!("{up}blobs/{}", file.etag.name())), &place)
        } else {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        };
        if made.is_ok() || place.exists() || fs::hard_link(&blob, &place).is_ok() || place.exists() {
            return Ok(());
        }
        // Under another name first: a copy that is not finished must not be in its place.
        let copy = self.temporary(file.etag.name());
        let copied = fs::copy(&blob, &copy).and_then(|_| fs::rename(&copy, &place));
        copied.map_err(|source| write(&place, source))
    }

    /// Notes the commit that a branch or tag is at.
    pub(crate) fn reference(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if revision == commit {
            return Ok(());
        }
        let place = self.cached.root().join("refs").join(revision);
        create_dir(place.parent().unwrap_or(&place))?;
        let new = self.temporary(commit);
        let written = File::create(&new).and_then(|mut file| file.write_all(commit.as_bytes()));
        written.and_then(|()| fs::rename(&new, &place)).map_err(|source| write(&place, source))
    }

    /// A name of this process only, among the blobs because all of a model is on one file system.
    fn temporary(&self, name: &str) -> PathBuf {
        self.cached.blobs().join(format!("{name}.{}.incomplete", std::process::id()))
    }
}

pub(crate) fn write(path: &Path, source: io::Error) -> HubError {
    HubError::Write { path: path.to_path_buf(), source }
}

fn create_dir(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(|source| write(path, source))
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
