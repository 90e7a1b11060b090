//! The simd executor: any [`EncoderSpec`](crate::spec::EncoderSpec) on the CPU, with the kernels crate's arithmetic.
//!
//! # What happens to a batch
//! [`plan`] shares it out (whole sequences to threads, or everything to the team); [`layer`] is one pass through all layers for a team
//! of any size, of which a team of one needs no barrier; rows of the last layer that nobody reads are not computed.
//!
//! # Invariants
//! - Every value of a row comes from one chain of operations that depends on that sequence alone, in an order that depends on the model
//!   and the instruction set alone. So neither batch-mates nor threads nor the way of sharing out change a byte.
//! - A head is padded with zero columns to whole panels: `x * 0` added at the end of a chain changes nothing, and a head's values are
//!   then panels of their own that the attention reads as they come out of the projection.
//!
//! # Cost
//! Linear layers take about 90 % of the time at a sequence length of 100 and run at the kernels' speed; activations of a group
//! (512 tokens) stay in the second-level cache, weights stream past once for each group.

pub(crate) mod buffers;
mod dims;
mod layer;
mod load;
mod plan;
mod sequences;
mod share;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use simile_kernels::{Activation, AlignedVec, Isa, PackedMatrix, Team};

use crate::weights::EmbeddingTable;
use crate::{
    Context, EncodeError, Encoder, EncoderInput, Flow, Hidden, InputLimits, LoadError, Rows, Weights, parse_config,
};
use dims::Dims;
use layer::Pass;
pub use load::load;
use plan::{Plan, plan};
use sequences::{Sequences, Starts};

/// Parses `config`, opens the weights in `dir` and packs them for `isa`.
///
/// # Errors
/// [`LoadError`]: an unsupported configuration, or weights that are absent, damaged or of another model.
pub fn load_simd(isa: Isa, config: &serde_json::Value, dir: &Path) -> Result<Box<dyn Encoder>, LoadError> {
    let architecture = parse_config(config)?;
    let weights = Weights::open(dir)?;
    Ok(Box::new(load(isa, &architecture, &weights)?))
}

/// An encoder whose weights are packed for one instruction set.
pub struct SimdEncoder {
    isa: Isa,
    dims: Dims,
    limits: InputLimits,
    position_offset: usize,
    word: EmbeddingTable,
    /// `[positions][hidden]`
    positions: AlignedVec,
    /// `[types][hidden]`, or empty.
    types: AlignedVec,
    embeddings_norm: NormWeights,
    layers: Vec<LayerWeights>,
    activation: Activation,
}

/// Weights of one layer.
struct LayerWeights {
    /// Scaled by log2(e) / sqrt(head width), so that scores are exponents of 2.
    query: PackedMatrix,
    key: PackedMatrix,
    value: PackedMatrix,
    attention_output: PackedMatrix,
    attention_norm: NormWeights,
    up: PackedMatrix,
    down: PackedMatrix,
    mlp_norm: NormWeights,
}

/// A layer norm.
struct NormWeights {
    gamma: AlignedVec,
    beta: AlignedVec,
    epsilon: f32,
}

impl Encoder for SimdEncoder {
    fn forward(&self, batch: &EncoderInput<'_>, rows: Rows, ctx: &mut Context<'_>) -> Result<Hidden, EncodeError> {
        batch.check(&self.limits)?;
        let starts = Starts::new(batch.lengths, rows);
        let stride = self.dims.hidden_stride;
        let outputs = starts.outputs[batch.sequences()];
        let mut output = ctx.scratch.take(outputs * stride);
        let finished = batch.sequences() == 0 || self.run(batch, rows, &starts, &mut output, ctx);
        ctx.scratch.trim();
        if !finished {
            ctx.scratch.give_back(output);
            return Err(EncodeError::Stopped);
        }
        Ok(Hidden::new(self.isa, output, stride, self.dims.hidden, starts.outputs, rows))
    }

    fn hidden_size(&self) -> usize {
        self.dims.hidden
    }

    fn max_position_embeddings(&self) -> usize {
        self.limits.positions
    }

    fn vocab_size(&self) -> usize {
        self.limits.vocab_size
    }

    fn flops(&self, length: usize) -> u64 {
        let Dims { hidden, heads, head_dim, intermediate, .. } = self.dims;
        let attention = heads * head_dim;
        let linear = 2 * (4 * hidden * attention + 2 * hidden * intermediate) as u64;
        let scores = 4 * (length * attention) as u64;
        self.layers.len() as u64 * length as u64 * (linear + scores)
    }

    fn memory_bytes(&self) -> usize {
        let norm = |norm: &NormWeights| norm.gamma.bytes() + norm.beta.bytes();
        let layers: usize = self
            .layers
            .iter()
            .map(|layer| {
                let LayerWeights { query, key, value, attention_output, attention_norm, up, down, mlp_norm } = layer;
                let matrices = [query, key, value, attention_output, up, down];
                matrices.iter().map(|matrix| matrix.bytes()).sum::<usize>() + norm(attention_norm) + norm(mlp_norm)
            })
            .sum();
        layers + norm(&self.embeddings_norm) + self.positions.bytes() + self.types.bytes()
    }
}

impl SimdEncoder {
    /// Computes the batch into `output`, as [`Starts`] lays it out. False when a checkpoint said stop.
    fn run(
        &self,
        batch: &EncoderInput<'_>,
        rows: Rows,
        starts: &Starts,
        output: &mut AlignedVec,
        ctx: &mut Context<'_>,
    ) -> bool {
        let threads = ctx.pool.threads();
        ctx.scratch.reserve(threads);
        let stopped = AtomicBool::new(false);
        let checkpoint = || {
            if !stopped.load(Ordering::Relaxed) && (ctx.checkpoint)() == Flow::Stop {
                stopped.store(true, Ordering::Relaxed);
            }
        };
        let scratch = &*ctx.scratch;
        let output = Output(output.as_mut_ptr());
        match plan(batch.lengths, |length| self.flops(length), threads) {
            Plan::Groups(groups) => {
                let next = AtomicUsize::new(0);
                ctx.pool.run(&|team| {
                    let mut buffers = lock(&scratch.batches[team.rank()]);
                    let mut thread = lock(&scratch.threads[team.rank()]);
                    thread.clock.start();
                    while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let sequences = Sequences::new(batch, rows, starts, group.iter().copied());
                        let view = buffers.view(&self.dims, &sequences, 0);
                        let output = output.pointer();
                        let pass = Pass { encoder: self, team: Team::solo(), sequences: &sequences, view, output };
                        // SAFETY: the view has room for the group, and the group's rows of the output are nobody else's.
                        if !unsafe { pass.run(&mut thread, &checkpoint, &stopped) } {
                            break;
                        }
                    }
                });
            }
            Plan::Team => {
                let sequences = Sequences::new(batch, rows, starts, 0..batch.sequences());
                let shared = layer::shared_rows(&sequences, threads);
                let view = lock(&scratch.batches[0]).view(&self.dims, &sequences, shared);
                ctx.pool.run(&|team| {
                    let mut thread = lock(&scratch.threads[team.rank()]);
                    thread.clock.start();
                    let pass = Pass { encoder: self, team, sequences: &sequences, view, output: output.pointer() };
                    // SAFETY: the view has room for the batch; every rank runs the same pass.
                    unsafe { pass.run(&mut thread, &checkpoint, &stopped) };
                });
            }
        }
        !stopped.load(Ordering::Relaxed)
    }
}

/// The rows of a batch's result, which ranks write in disjoint parts.
#[derive(Clone, Copy)]
struct Output(*mut f32);

// SAFETY: only an address; who writes what through it is decided in layer.rs.
unsafe impl Sync for Output {}

impl Output {
    /// A method, so that closures capture the whole and not the pointer.
    fn pointer(&self) -> *mut f32 {
        self.0
    }
}

/// Buffers hold plain numbers that every pass writes before it reads them, so those of a pass that panicked are as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
