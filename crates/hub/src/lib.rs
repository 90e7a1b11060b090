//! Where model files come from: a folder, an installed model package, the Hugging Face cache shared with Python, or a hub.
//!
//! [`resolve`] turns a [`ModelRequest`] into [`ModelFiles`]: one folder that is known to hold a configuration and
//! weights. It opens no connection and writes nothing. It looks in this order:
//!
//! 1. the id taken as a **folder**, when it looks like a path (`./m`, `/srv/m`, `a/b/c`, `C:\m`) or names an existing model folder;
//! 2. the **model packages** that the caller lists: folders whose `package.json` has a [`simile` field](package);
//! 3. the **cache**, in the layout of `huggingface_hub` ([`cache`]) and where `huggingface_hub` would look ([`cache_dir`]).
//!
//! [`obtain`] does the same and, when the cache has not all of the model, downloads the rest first:
//!
//! ```text
//! settings   endpoint, token, offline, proxies: what the environment and the caller say
//! listing    one request: the commit, its files with sizes and hashes, and which of them a model needs
//! transfer   one file: resumed, hashed, kept until it is whole      partial  the file it is in until then
//! http       one request and its redirects: token, proxy, TLS      retry  what can fail, and whether to try again
//! store      blobs, locks, links, references: nothing half-written is ever taken for a model
//! ```
//!
//! Contract: the crate knows file names, ids, revisions and hashes; it does not know what a model is. Whatever a file
//! or a hub says (a reference, a package's folder, a module's path, a name in a listing) is checked before it becomes part
//! of a path, so nothing outside the found folder is ever read or written through it. Every error says what was looked for,
//! where, and what to do next. It blocks, takes no setting from the environment but through [`HubSettings`] and
//! [`cache_dir`], prints nothing, and ends when it is [stopped](Stop).

pub mod cache;
pub mod cache_dir;
mod download;
mod error;
mod files;
pub mod formats;
mod hash;
mod http;
mod id;
mod listing;
pub mod package;
mod partial;
mod progress;
mod resolve;
mod retry;
mod settings;
mod stop;
mod store;
mod transfer;

pub use error::{HubError, Looked};
pub use files::{ModelFiles, Source};
pub use id::{check_model_id, check_relative_name, check_revision};
pub use progress::Progress;
pub use resolve::{ModelRequest, obtain, resolve};
pub use settings::{DEFAULT_ENDPOINT, HubOptions, HubSettings};
pub use stop::Stop;
