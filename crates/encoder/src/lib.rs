//! Encoders: from a model folder's `config.json` and weights to hidden states.
//!
//! ```text
//! config.json --families::parse_config--> Architecture { spec, names }
//! folder      --weights::Weights::open--> Weights (memory mapped, checked)
//! both        --simd::load-------------> Box<dyn Encoder>
//! token ids   --Encoder::forward-------> Hidden --pool--> one row a sequence
//! ```
//!
//! # Contract
//! - This crate knows token ids and tensors, never text, jobs or JavaScript.
//! - A configuration is either understood whole or refused by name: nothing that changes a result is ignored.
//! - The simd executor is deterministic: on one processor model a sequence's hidden states are the same bytes whatever its
//!   batch-mates, their order, and the number of threads.
//! - Batches are ragged: no padded position is stored or computed.

pub mod encoder;
pub mod error;
pub mod families;
pub mod hidden;
pub mod pooling;
pub mod scratch;
pub mod simd;
pub mod spec;
pub mod weights;

pub use encoder::{Context, Encoder, EncoderInput, Flow, InputLimits, Rows};
pub use error::{EncodeError, LoadError};
pub use families::{Architecture, ConfigError, parse_config};
pub use hidden::{Hidden, SequenceRows};
pub use pooling::Pooling;
pub use scratch::Scratch;
pub use simd::load_simd;
pub use weights::{Weights, WeightsError};
