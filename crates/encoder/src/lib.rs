//! Encoders: from a model folder's `config.json` and weights to hidden states.
//!
//! ```text
//! config.json --families::parse_config--> Architecture { spec, names }
//! folder      --weights::Weights::open--> Weights (open, checked)
//! both        --simd::load-------------> Box<dyn Encoder>
//! token ids   --Encoder::forward-------> Hidden --pool--> one row a sequence
//! ```
//!
//! # Contract
//! - This crate knows token ids and tensors, never text, jobs or JavaScript.
//! - A configuration is either understood whole or refused by name: nothing that changes a result is ignored.
//! - The simd executor is deterministic: on one processor model a sequence's hidden states are the same bytes whatever
//!   its batch-mates, their order, and the number of threads.
//! - Batches are ragged: no padded position is stored or computed.
//!
//! # Example
//! ```no_run
//! use std::path::Path;
//!
//! use simile_encoder::{Context, EncoderInput, Flow, Pooling, Scratch, load_simd};
//! use simile_kernels::{Isa, ThreadPool};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = Path::new("all-MiniLM-L6-v2");
//! let config = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
//! let encoder = load_simd(Isa::best(), &config, folder)?;
//!
//! // Two texts: "hello world" and "hello".
//! let ids = [101, 7592, 2088, 102, 101, 7592, 102];
//! let batch = EncoderInput { input_ids: &ids, token_type_ids: &[], lengths: &[4, 3], attended: &[] };
//! let (pool, mut scratch) = (ThreadPool::new(2), Scratch::new());
//! let mut context = Context { pool: &pool, scratch: &mut scratch, checkpoint: &|| Flow::Continue };
//! let hidden = encoder.forward(&batch, Pooling::Mean.rows(), &mut context)?;
//! let mut vectors = vec![0.0; 2 * encoder.hidden_size()];
//! hidden.pool(Pooling::Mean, &mut vectors);
//! hidden.recycle(&mut scratch);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "candle")]
pub mod candle;
pub mod device;
pub mod encoder;
pub mod error;
pub mod families;
pub mod heads;
pub mod hidden;
mod load;
pub mod memory;
pub mod pooling;
pub mod positions;
pub mod scratch;
pub mod simd;
mod size;
pub mod spec;
pub mod static_embedding;
pub mod weights;

#[cfg(feature = "candle")]
pub use candle::load_candle;
pub use device::{Device, Precision, UnknownName};
pub use encoder::{Context, Encoder, EncoderInput, Flow, InputLimits, Rows};
pub use error::{DeviceError, EncodeError, LoadError};
pub use families::{Architecture, ConfigError, parse_config};
pub use heads::{Classifier, Lexical, MaskedLm, MlmPooling, MlmSettings, Projection, TokenLogits};
pub use hidden::{Hidden, SequenceRows};
pub use load::{device_is_built, load};
pub use pooling::Pooling;
pub use scratch::{Scratch, Teamwork};
pub use simd::load_simd;
pub use static_embedding::StaticEmbedding;
pub use weights::{Weights, WeightsError};
