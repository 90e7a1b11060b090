//! What a user of the crate would notice: a checkpoint folder goes in, hidden states come out.

mod architectures;
#[cfg(feature = "candle")]
mod candle;
mod changed;
mod config;
mod determinism;
mod family_config;
mod files;
mod golden;
mod input;
mod masked_lm;
mod models;
mod numbers;
mod odd;
mod pooling;
mod positions;
mod reference;
mod run;
mod torch;
mod variants;
