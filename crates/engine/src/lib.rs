//! A model at work: loaded once, fed from one queue, computed by one pool of threads.
//!
//! ```text
//! LazyModel ---- one service's model: loaded at its first use, shared with services that ask for the same
//!    | embed / count
//! Engine ------- one for the process: a queue of calls in two lanes, and the thread that computes
//!    | queue      which work comes next (the policy, all of it in one file)
//!    | tokenise   texts to tokens, on the pool
//!    | batch      a micro-batch through its model, its rows to their calls
//! Model -------- what the engine needs of simile_pipeline::TextModel
//! ```
//!
//! # Promises
//! - Every call ends exactly once: with a result or with a [`Failure`], by a function that the caller gave.
//! - Nothing here blocks the caller: requests return at once, loads and computations run on threads of this library,
//!   which are named `simile-…`.
//! - A panic in a loader, tokenizer or kernel is the failure of its own call; batch-mates are tried once more.
//! - A cancelled call ends at once. Its texts leave the queue, and a micro-batch that nobody needs stops at its next
//!   layer.
//! - What waits is bounded: a call over the limit of its lane, or of what waits for loads, is refused at once. Queries go first, and leave bulk work a
//!   tenth of the computing.
//! - A vector does not depend on its batch-mates, on priority or on the number of threads.
//! - Nothing keeps the process from exiting, and nothing has to be shut down.
//!
//! Knows nothing of JavaScript.

mod batch;
pub mod cancel;
mod convert;
pub mod cpu;
mod dispatcher;
pub mod engine;
mod environment;
pub mod failure;
pub mod job;
pub mod lazy;
pub mod loaded;
pub mod model;
mod once;
mod panics;
mod queue;
pub mod service;
pub mod statistics;
pub mod threads;
mod tokenise;
mod waiting;

pub use cancel::CancelToken;
pub use cpu::{CpuFeatures, cpu_features};
pub use engine::Engine;
pub use failure::{ErrorKind, Failure};
pub use job::{ChunkJob, CountJob, EmbedJob, EmbedOutput, MaxWait, Priority, TokenCounts};
pub use loaded::{LazyModel, LoadRequest, LoadedModel};
pub use model::Model;
pub use service::Service;
pub use statistics::{Statistics, StatisticsSnapshot};

/// What the binding needs of the layers below, so that it depends on this crate only.
pub use simile_hub::{HubOptions, HubSettings, ModelFiles, ModelRequest, Progress, Source, cache_dir};
#[doc(no_inline)]
pub use simile_pipeline::{
    Chunk, ChunkRequest, DescriptorOverrides, Device, HeadDescriptor, HeadModel, Matryoshka, ModelDescriptor,
    ModelKind, Origin, Pooling, Precision, RegistryEntry, Role, TextModel, Truncate, registry,
};
