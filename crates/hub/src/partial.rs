//! What was received of a blob, while one writer has it.
//!
//! Contract: a writer has one open file from its first byte to its last, and what becomes the blob is that file and no
//! other that is at its path by then. The file is `<etag>.incomplete`, locked itself, so that the lock ends with the
//! process and the next one goes on from there. Where somebody else has it, this writer's is a file of its own name; where
//! the file system has no locks, `<etag>.incomplete` is taken by renaming it to that name, and given back unless it became
//! the blob (a process that is killed there leaves it under that name). An empty file is not left behind.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::store::temporary;

/// How often a file may be renamed or deleted between opening and locking it.
const TRIES: u32 = 3;

/// A partial file.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) file: File,
    path: PathBuf,
    /// `<etag>.incomplete`.
    home: PathBuf,
    /// It became the blob, or must not be used again.
    gone: bool,
}

impl Partial {
    /// Takes what is at `home`, or begins a new file. Its folder must be there.
    pub(crate) fn open(home: &Path) -> io::Result<Partial> {
        for _ in 0..TRIES {
            let file = open(home)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, home) => {
                    return Ok(Partial { file, path: home.to_owned(), home: home.to_owned(), gone: false });
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(_)) => return Partial::own(home, true),
            }
        }
        Partial::own(home, false)
    }

    /// One at a name that nobody else knows, and so nobody else has: a new one, or, to `claim` it, what is at `home`.
    fn own(home: &Path, claim: bool) -> io::Result<Partial> {
        let (mut file, path) = temporary(home)?.keep().map_err(|error| error.error)?;
        if claim && fs::rename(home, &path).is_ok() {
            file = open(&path)?;
        }
        Ok(Partial { file, path, home: home.to_owned(), gone: false })
    }

    /// Makes it the blob, cut to `size`, which is what was checked. A blob keeps its name for ever, so the content is on
    /// the disk before. `false` if the file is not at its path any more: whatever is there was not checked.
    pub(crate) fn finish(mut self, size: u64, blob: &Path) -> io::Result<bool> {
        self.file.set_len(size)?;
        self.file.sync_all()?;
        if !is_at(&self.file, &self.path) {
            return Ok(false);
        }
        fs::rename(&self.path, blob)?;
        self.gone = true;
        Ok(true)
    }

    /// Deletes it, since its content is wrong.
    pub(crate) fn discard(&mut self) -> io::Result<()> {
        self.gone = true;
        if is_at(&self.file, &self.path) { fs::remove_file(&self.path) } else { Ok(()) }
    }

    pub(crate) fn is_discarded(&self) -> bool {
        self.gone
    }
}

impl Drop for Partial {
    /// Leaves what was received where the next try looks for it.
    fn drop(&mut self) {
        if self.gone || !is_at(&self.file, &self.path) {
            return;
        }
        let empty = self.file.metadata().is_ok_and(|data| data.len() == 0);
        // Nothing depends on these: what stays is found or is in nobody's way.
        let _ = if empty || (self.path != self.home && self.home.exists()) {
            fs::remove_file(&self.path)
        } else {
            fs::rename(&self.path, &self.home)
        };
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Whether the open file is what the path leads to.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(open), Ok(there)) if same(&open, &there))
}

/// Whether the open file is what the path leads to, as far as the size tells.
#[cfg(not(unix))]
fn is_at(file: &File, path: &Path) -> bool {
    matches!((file.metadata(), fs::metadata(path)), (Ok(open), Ok(there)) if open.len() == there.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn two_writers_have_two_files_and_one_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (home, blob) = (dir.path().join("e.incomplete"), dir.path().join("e"));
        fs::write(&home, "begun").unwrap();
        let mut first = Partial::open(&home).unwrap();
        let mut second = Partial::open(&home).unwrap();
        assert_eq!(first.file.metadata().unwrap().len(), 5, "the first goes on from what was there");
        assert_eq!(second.file.metadata().unwrap().len(), 0, "the second begins its own");
        second.file.write_all(b"other").unwrap();
        assert_eq!(fs::read_to_string(&home).unwrap(), "begun");
        drop(second);
        assert_eq!(names(dir.path()), ["e.incomplete"]);

        let second = Partial::open(&home).unwrap();
        first.file.write_all(b"right").unwrap();
        assert!(first.finish(5, &blob).unwrap());
        assert_eq!(fs::read_to_string(&blob).unwrap(), "right");
        (&second.file).write_all(b"more").unwrap();
        drop(second);
        assert_eq!(names(dir.path()), ["e", "e.incomplete"], "what the second has is kept");
        assert_eq!(fs::read_to_string(&home).unwrap(), "more");
    }

    #[test]
    #[cfg(unix)]
    fn what_is_not_at_its_path_any_more_becomes_no_blob() {
        type Act = fn(&Path);
        let cases: [(&str, Act); 2] = [
            ("deleted", |home| fs::remove_file(home).unwrap()),
            ("replaced", |home| {
                fs::remove_file(home).unwrap();
                fs::write(home, "something else").unwrap();
            }),
        ];
        for (what, act) in cases {
            let dir = tempfile::tempdir().unwrap();
            let (home, blob) = (dir.path().join("e.incomplete"), dir.path().join("e"));
            let mut partial = Partial::open(&home).unwrap();
            partial.file.write_all(b"right").unwrap();
            act(&home);
            assert!(!partial.finish(5, &blob).unwrap(), "{what}");
            assert!(!blob.exists(), "{what}");
        }
    }

    #[test]
    fn without_locks_one_is_claimed_by_its_name_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let (home, blob) = (dir.path().join("e.incomplete"), dir.path().join("e"));
        fs::write(&home, "begun").unwrap();
        let first = Partial::own(&home, true).unwrap();
        let second = Partial::own(&home, true).unwrap();
        let lengths = [&first, &second].map(|partial| partial.file.metadata().unwrap().len());
        assert_eq!(lengths, [5, 0]);
        drop((first, second));
        assert_eq!(names(dir.path()), ["e.incomplete"]);
        assert_eq!(fs::read_to_string(&home).unwrap(), "begun");
        assert!(Partial::own(&home, true).unwrap().finish(5, &blob).unwrap());
        assert_eq!(names(dir.path()), ["e"]);
    }

    #[test]
    fn an_empty_one_is_not_left() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("e.incomplete");
        drop((Partial::open(&home).unwrap(), Partial::open(&home).unwrap()));
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }
}
