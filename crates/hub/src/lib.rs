//! Where model files come from: a folder, an installed model package, or the Hugging Face cache shared with Python.
//!
//! [`resolve`] turns a [`ModelRequest`] into [`ModelFiles`]: one folder that is known to hold a configuration and
//! weights. It opens no connection and writes nothing. It looks in this order:
//!
//! 1. the id taken as a **folder**, when it looks like a path (`./m`, `/srv/m`, `a/b/c`, `C:\m`) or names an existing model folder;
//! 2. the **model packages** that the caller lists: folders whose `package.json` has a [`simile` field](package);
//! 3. the **cache**, in the layout of `huggingface_hub` ([`cache`]) and where `huggingface_hub` would look ([`cache_dir`]).
//!
//! Contract: the crate knows file names, ids, revisions and hashes; it does not know what a model is. Whatever a file
//! says (a reference, a package's folder, a module's path) is checked before it becomes part of a path, so nothing
//! outside the found folder is ever read through it. Every error says what was looked for, where, and what to do next.

pub mod cache;
pub mod cache_dir;
mod error;
mod files;
mod hash;
mod id;
pub mod package;
mod resolve;

pub use error::{HubError, Looked};
pub use files::{ModelFiles, Source};
pub use id::{check_model_id, check_relative_name, check_revision};
pub use resolve::{ModelRequest, resolve};
