//! A model's files: one folder, read through names that cannot leave it.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::hash::is_lfs_pointer;
use crate::{HubError, check_relative_name, hash};

/// Which kind of place a model's files were found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder given by path.
    Folder,
    /// An installed model package.
    Package,
    /// The Hugging Face cache.
    Cache,
}

/// A model's files on this machine. File names are relative to the folder, with `/` between parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    /// The model's id; for a folder, the folder as it was given.
    pub id: String,
    /// The commit, where one is known.
    pub revision: Option<String>,
    /// The folder that holds the files.
    pub folder: PathBuf,
    /// Where they were found.
    pub source: Source,
}

impl ModelFiles {
    /// The path of a file, there or not.
    ///
    /// # Errors
    /// [`HubError::InvalidName`] for a name that would lead out of the folder.
    pub fn path(&self, name: &str) -> Result<PathBuf, HubError> {
        check_relative_name(name)?;
        Ok(self.folder.join(name))
    }

    /// Whether a file or folder of this name is there; a link whose target is missing is not.
    pub fn exists(&self, name: &str) -> bool {
        self.path(name).is_ok_and(|path| path.exists())
    }

    /// A file's content, `None` when there is no such file.
    ///
    /// # Errors
    /// [`HubError::InvalidName`], [`HubError::Io`], [`HubError::LfsPointer`], [`HubError::DanglingLink`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, HubError> {
        let path = self.path(name)?;
        match fs::read(&path) {
            Ok(content) if is_lfs_pointer(&content) => Err(HubError::LfsPointer { path }),
            Ok(content) => Ok(Some(content)),
            // A link is there although its target is not: the model has this file, so it must not be taken for one without.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
                Err(HubError::DanglingLink { path })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(HubError::Io { path, source }),
        }
    }

    /// A JSON file's value, `None` when there is no such file.
    ///
    /// # Errors
    /// As [`ModelFiles::read`], and [`HubError::InvalidJson`] with line and column.
    pub fn read_json(&self, name: &str) -> Result<Option<serde_json::Value>, HubError> {
        let Some(content) = self.read(name)? else {
            return Ok(None);
        };
        match serde_json::from_slice(&content) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(HubError::InvalidJson { path: self.path(name)?, message: error.to_string() }),
        }
    }

    /// SHA-256 of a file's content, as 64 lower-case hexadecimal digits.
    ///
    /// A cache blob that is named by its hash is not read; any other file is, once per process for each size and
    /// modification time.
    ///
    /// # Errors
    /// [`HubError::InvalidName`], [`HubError::Io`] (also when there is no such file), [`HubError::LfsPointer`].
    pub fn sha256(&self, name: &str) -> Result<String, HubError> {
        hash::sha256(&self.path(name)?)
    }
}
