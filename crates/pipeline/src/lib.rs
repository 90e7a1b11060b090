//! Text to vectors: everything between a string and the encoder, and between the encoder and the vector.
//!
//! [`TextModel`] is one loaded model. It is made from the files that [`simile_hub`] found, from what they, the
//! [`registry()`] and the caller's [`LoadOptions`] say (options beat files, files beat the registry), and from an encoder
//! of [`simile_encoder`]. [`TextModel::tokenize`] takes texts in, [`plan()`] forms micro-batches, [`TextModel::encode`]
//! computes them. The crate knows texts and models; it does not know jobs, queues or threads.
//!
//! Promises: token ids equal the reference's; vectors are within 1e-5 of it; a vector depends on its text and the model's
//! contract ([`TextModel::contract`]) alone; nothing that changes a vector is ignored, it is applied or refused by name.

mod backbone;
mod bm25;
mod bm42;
mod chunk;
mod contract;
mod cross_encoder;
mod dense;
mod descriptor;
mod error;
mod head_model;
mod json;
mod kind;
mod layer_norm;
mod model;
mod modules;
mod multi_vector;
mod normalizer;
mod options;
mod outputs;
mod parts;
mod plan;
mod preflight;
mod registry;
mod saved_cache;
mod sentence_transformers;
mod slices;
mod sparse;
mod static_files;
pub mod support;
mod template;
mod tokenizer;
mod vector_modules;
mod words;

pub use bm25::{computed, is_computed};
pub use chunk::{Chunk, ChunkRequest};
pub use descriptor::{DescriptorOverrides, Matryoshka, ModelDescriptor, Origin, Origins};
pub use error::{LoadError, NonFinite, PipelineError};
pub use head_model::{HeadDescriptor, HeadModel, load_head};
pub use kind::ModelKind;
pub use model::TextModel;
pub use options::{Device, LoadOptions, Precision, Truncate, UnknownName};
pub use outputs::Outputs;
pub use plan::{DEFAULT_BATCH_SIZE, plan};
pub use preflight::check_config;
pub use registry::{
    Evidence, ModelFamily, RegistryEntry, Sizes, check_registered, hint, registered, registered_as, registry,
};
pub use saved_cache::{Identity, MAX_BYTES, SavedCache, SavedCacheError};
pub use simile_encoder::{Pooling, device_is_built};
pub use sparse::check_id;
pub use support::{Support, support};
pub use template::{Rendered, Role, Template, Templates};
pub use tokenizer::{Input, Tokens};
