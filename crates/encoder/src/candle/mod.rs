//! The candle executor: any [`EncoderSpec`](crate::spec::EncoderSpec) on candle's tensors, for CUDA and Metal, and on the
//! CPU as the reference in tests.
//!
//! # What happens to a batch
//! `batch.rs` shares it out to groups; a group goes through all layers (`layer.rs`), ragged but for the attention
//! (`attention.rs`, the only file that looks at the backend); the rows that were asked for are picked on the device and
//! copied to the host once.
//!
//! # Invariants
//! - Weights come through [`Resolver`], with the checks and errors of the simd executor.
//! - Within a tolerance, not to the byte: backends choose their kernels by the shape of a batch.
//! - Memory beside the weights grows with a group's slots and the attention's block, both limited, never with the square
//!   of a length.
//! - The calling thread drives the device. On the CPU candle computes on its own threads and not on the pool of the
//!   [`Context`].

mod attention;
mod batch;
mod layer;
mod load;

use std::path::Path;

use candle_core::{DType, Device as CandleDevice, Result as CandleResult, Tensor};
use simile_kernels::{AlignedVec, Isa};

use crate::error::DeviceError;
use crate::spec::EncoderSpec;
use crate::weights::Resolver;
use crate::{
    Architecture, Context, Device, EncodeError, Encoder, EncoderInput, Flow, Hidden, InputLimits, LoadError, Precision,
    Rows, Weights, memory, parse_config,
};
use batch::Group;
use layer::{Layer, NormLayer, Rotations, normed};

/// Parses `config`, opens the weights in `dir` and brings them to `device` in `precision`. Pooling, on the host, uses `isa`.
///
/// [`Device::Cpu`] is candle's own CPU backend.
///
/// # Errors
/// [`LoadError`]: an unsupported configuration, weights that are absent, damaged or of another model, a device that is not
/// there or has too little memory.
pub fn load_candle(
    device: Device,
    precision: Precision,
    isa: Isa,
    config: &serde_json::Value,
    dir: &Path,
) -> Result<Box<dyn Encoder>, LoadError> {
    let opened = Weights::open(dir);
    let architecture = parse_config(config, &|name| opened.as_ref().is_ok_and(|weights| weights.get(name).is_some()))?;
    load(device, precision, isa, &architecture, &opened?)
}

/// Brings the weights of `architecture` to `device`.
///
/// # Errors
/// As [`load_candle`].
///
/// # Panics
/// If the spec has a part that the table of names does not name.
pub fn load(
    device: Device,
    precision: Precision,
    isa: Isa,
    architecture: &Architecture,
    weights: &Weights,
) -> Result<Box<dyn Encoder>, LoadError> {
    let backend = open(device).map_err(|error| LoadError::Device(device_error(device, &error)))?;
    // Sizes that are wrong are no lack of memory.
    Resolver::new(weights, &architecture.names)?.check_sizes(&architecture.spec)?;
    let needed = architecture.spec.parameters() * precision.bytes() as u64;
    memory::check(device, needed, available(device, &backend))?;
    let dtype = match precision {
        Precision::F32 => DType::F32,
        Precision::F16 => DType::F16,
        Precision::Bf16 => DType::BF16,
    };
    Ok(Box::new(load::load(device, &backend, dtype, isa, architecture, weights)?))
}

fn open(device: Device) -> CandleResult<CandleDevice> {
    match device {
        Device::Cpu => Ok(CandleDevice::Cpu),
        Device::Cuda(number) => CandleDevice::new_cuda(number),
        Device::Metal => CandleDevice::new_metal(0),
    }
}

/// Bytes that the device has free, where it says so.
fn available(device: Device, _backend: &CandleDevice) -> Option<u64> {
    match device {
        Device::Cpu => memory::available(),
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => {
            // The driver answers for the context of the calling thread.
            _backend.as_cuda_device().ok()?.cuda_stream().context().bind_to_thread().ok()?;
            let (free, _) = candle_core::cuda_backend::cudarc::driver::result::mem_get_info().ok()?;
            Some(free as u64)
        }
        #[cfg(not(feature = "cuda"))]
        Device::Cuda(_) => None,
        // Shared with the processor; the system pages rather than fails.
        Device::Metal => None,
    }
}

/// An encoder whose weights are on a device.
struct CandleEncoder {
    device: Device,
    backend: CandleDevice,
    isa: Isa,
    spec: EncoderSpec,
    limits: InputLimits,
    tables: Tables,
    layers: Vec<Layer>,
    final_norm: Option<NormLayer>,
    memory_bytes: usize,
}

/// What is read by index, and the norm behind it.
struct Tables {
    word: Tensor,
    positions: Option<Tensor>,
    types: Option<Tensor>,
    norm: Option<NormLayer>,
    /// `[buckets, heads]`, f32.
    relative_bias: Option<Tensor>,
}

/// Why a pass ended early.
enum Interrupt {
    Stopped,
    Device(candle_core::Error),
}

impl From<candle_core::Error> for Interrupt {
    fn from(error: candle_core::Error) -> Self {
        Interrupt::Device(error)
    }
}

impl Encoder for CandleEncoder {
    fn forward(&self, batch: &EncoderInput<'_>, rows: Rows, ctx: &mut Context<'_>) -> Result<Hidden, EncodeError> {
        batch.check(&self.limits)?;
        let hidden = self.spec.hidden_size;
        let starts = starts(batch.lengths.iter().map(|&length| rows.count(length)));
        let outputs = starts[batch.sequences()];
        let mut output = ctx.scratch.take(outputs * hidden);
        match self.run(batch, rows, &starts, &mut output, ctx.checkpoint) {
            Ok(()) => Ok(Hidden::new(self.isa, output, hidden, hidden, starts, rows)),
            Err(interrupt) => {
                ctx.scratch.give_back(output);
                Err(self.error(interrupt))
            }
        }
    }

    fn first_token_attention(&self, batch: &EncoderInput<'_>, ctx: &mut Context<'_>) -> Result<Vec<f32>, EncodeError> {
        batch.check(&self.limits)?;
        let mut weights = vec![0.0; batch.tokens()];
        self.attention_of_first(batch, &mut weights, ctx.checkpoint).map_err(|interrupt| self.error(interrupt))?;
        Ok(weights)
    }

    fn hidden_size(&self) -> usize {
        self.spec.hidden_size
    }

    fn max_position_embeddings(&self) -> usize {
        self.limits.positions
    }

    fn vocab_size(&self) -> usize {
        self.limits.vocab_size
    }

    fn flops(&self, length: usize) -> u64 {
        self.spec.flops(length)
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

impl CandleEncoder {
    /// Computes the batch into `output`: rows of the hidden size, sequence i from row `outputs[i]` on.
    fn run(
        &self,
        batch: &EncoderInput<'_>,
        rows: Rows,
        outputs: &[usize],
        output: &mut AlignedVec,
        checkpoint: &(dyn Fn() -> Flow + Sync),
    ) -> Result<(), Interrupt> {
        let width = self.spec.hidden_size;
        let starts = starts(batch.lengths.iter().copied());
        for members in batch::groups(batch.lengths) {
            let group = self.group(batch, &starts, &members, rows)?;
            let mut rotations = Rotations::default();
            let mut x = self.embed(&group)?;
            for (number, layer) in self.layers.iter().enumerate() {
                let last = number + 1 == self.layers.len();
                x = layer.forward(&x, &group, &mut rotations, self.tables.relative_bias.as_ref(), last)?;
                if !last && checkpoint() == Flow::Stop {
                    return Err(Interrupt::Stopped);
                }
            }
            let x = normed(self.final_norm.as_ref(), &x)?.to_dtype(DType::F32)?;
            let mut rest = &x.flatten_all()?.to_vec1::<f32>()?[..];
            for &sequence in &members {
                let (first, end) = (outputs[sequence] * width, outputs[sequence + 1] * width);
                let (now, later) = rest.split_at(end - first);
                output[first..end].copy_from_slice(now);
                rest = later;
            }
        }
        Ok(())
    }

    fn attention_of_first(
        &self,
        batch: &EncoderInput<'_>,
        weights: &mut [f32],
        checkpoint: &(dyn Fn() -> Flow + Sync),
    ) -> Result<(), Interrupt> {
        let starts = starts(batch.lengths.iter().copied());
        let bias = self.tables.relative_bias.as_ref();
        let (last, others) = self.layers.split_last().expect("a spec has layers");
        for members in batch::groups(batch.lengths) {
            let group = self.group(batch, &starts, &members, Rows::All)?;
            let mut rotations = Rotations::default();
            let mut x = self.embed(&group)?;
            for layer in others {
                x = layer.forward(&x, &group, &mut rotations, bias, false)?;
                if checkpoint() == Flow::Stop {
                    return Err(Interrupt::Stopped);
                }
            }
            let attention = last.first_token_attention(&x, &group, &mut rotations, bias)?.to_vec2::<f32>()?;
            for (&sequence, row) in members.iter().zip(attention) {
                let length = batch.lengths[sequence];
                weights[starts[sequence]..][..length].copy_from_slice(&row[..length]);
            }
        }
        Ok(())
    }

    fn group(&self, batch: &EncoderInput<'_>, starts: &[usize], members: &[usize], rows: Rows) -> CandleResult<Group> {
        Group::new(batch, starts, members, self.spec.embeddings.positions, rows, &self.backend)
    }

    /// Hidden state 0.
    fn embed(&self, group: &Group) -> CandleResult<Tensor> {
        let Tables { word, positions, types, norm, .. } = &self.tables;
        let mut x = (word.index_select(&group.ids, 0)? * f64::from(self.spec.embeddings.scale))?;
        if let Some(table) = types {
            let types = match &group.types {
                Some(types) => types.clone(),
                None => group.ids.zeros_like()?,
            };
            x = (x + table.index_select(&types, 0)?)?;
        }
        if let (Some(table), Some(rows)) = (positions, &group.positions) {
            x = (x + table.index_select(rows, 0)?)?;
        }
        normed(norm.as_ref(), &x)
    }

    fn error(&self, interrupt: Interrupt) -> EncodeError {
        match interrupt {
            Interrupt::Stopped => EncodeError::Stopped,
            Interrupt::Device(error) => EncodeError::Device(device_error(self.device, &error)),
        }
    }
}

/// Where each of some parts begins when they lie one after the other, and where the last one ends.
fn starts(counts: impl Iterator<Item = usize>) -> Vec<usize> {
    let ends = counts.scan(0, |end, count| {
        *end += count;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// What candle says in one line: under RUST_BACKTRACE its messages carry a stack trace.
fn device_error(device: Device, error: &candle_core::Error) -> DeviceError {
    let message = error.to_string();
    DeviceError { device, reason: message.lines().next().unwrap_or_default().trim().to_owned() }
}
