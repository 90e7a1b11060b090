//! Model packages: npm packages that carry a model's files.
//!
//! A package is recognised by a field of its `package.json`:
//! ```json
//! { "simile": { "model": "owner/name", "revision": "<commit>", "folder": "model" } }
//! ```
//! `model` is the id that the files stand for, `revision` (optional) their commit, `folder` (optional, default: the
//! package itself) where they are, relative to the package. TypeScript finds the packages; we only read them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{check_model_id, check_relative_name, check_revision};

/// What a package says about its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPackage {
    /// The model's id.
    pub model: String,
    /// The commit of the files, if the package names one.
    pub revision: Option<String>,
    /// The folder that holds them.
    pub folder: PathBuf,
}

#[derive(Deserialize)]
struct PackageJson {
    simile: Option<Field>,
}

#[derive(Deserialize)]
struct Field {
    model: String,
    revision: Option<String>,
    folder: Option<String>,
}

/// Reads the package in `folder`.
///
/// # Errors
/// Half a sentence that says why this is not a model package. It is not a [`crate::HubError`], because one bad package
/// must not hide a model that is somewhere else: the caller lists it among the places that were searched.
pub fn read(folder: &Path) -> Result<ModelPackage, String> {
    let text = fs::read_to_string(folder.join("package.json"))
        .map_err(|error| format!("has no readable package.json ({error})"))?;
    let package: PackageJson =
        serde_json::from_str(&text).map_err(|error| format!("has a package.json that cannot be used ({error})"))?;
    let field = package.simile.ok_or("has no 'simile' field in its package.json")?;
    check_model_id(&field.model).map_err(|error| format!("names a bad model ({error})"))?;
    if let Some(revision) = &field.revision {
        check_revision(revision).map_err(|error| format!("names a bad revision ({error})"))?;
    }
    let files = match field.folder.as_deref() {
        None | Some("" | ".") => folder.to_path_buf(),
        Some(name) => {
            let name = name.strip_prefix("./").unwrap_or(name).trim_end_matches('/');
            check_relative_name(name).map_err(|error| format!("names a bad folder ({error})"))?;
            folder.join(name)
        }
    };
    Ok(ModelPackage { model: field.model, revision: field.revision, folder: files })
}
