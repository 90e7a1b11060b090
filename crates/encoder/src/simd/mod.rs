//! The simd executor: any [`EncoderSpec`](crate::spec::EncoderSpec) on the CPU, with the kernels crate's arithmetic.
//!
//! # What happens to a batch
//! `plan.rs` shares it out (whole sequences to threads, or everything to the team); `layer.rs` is one pass through all
//! layers for a team of any size, of which a team of one needs no barrier; rows of the last layer that nobody reads are
//! not computed.
//!
//! # Invariants
//! - Every value of a row comes from one chain of operations that depends on that sequence alone, in an order that
//!   depends on the model and the instruction set alone. So neither batch-mates nor threads nor the way of sharing out
//!   change a byte.
//! - A head is padded with zero columns to whole panels: `x * 0` added to a chain changes nothing, and a
//!   head's values are then panels of their own that the attention reads as they come out of the projection.
//!
//! # Cost
//! Linear layers take about 90 % of the time at a sequence length of 100 and run at the kernels' speed; activations of
//! a group (512 tokens) stay in the second-level cache, weights stream past once for each group.

pub(crate) mod buffers;
mod dims;
mod layer;
mod load;
mod plan;
pub(crate) mod profile;
mod sequences;
mod share;
pub(crate) mod team;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use simile_kernels::{Activation, AlignedVec, Isa, PackedMatrix, Team, ThreadPool};

use crate::weights::EmbeddingTable;
use crate::{
    Context, EncodeError, Encoder, EncoderInput, Flow, Hidden, InputLimits, LoadError, Rows, Scratch, Weights,
    parse_config,
};
use dims::Dims;
use layer::Pass;
pub use load::load;
use plan::{Plan, groups, plan};
use sequences::{Sequences, Starts};

/// Parses `config`, opens the weights in `dir` and packs them for `isa`.
///
/// # Errors
/// [`LoadError`]: an unsupported configuration, or weights that are absent, damaged or of another model.
pub fn load_simd(isa: Isa, config: &serde_json::Value, dir: &Path) -> Result<Box<dyn Encoder>, LoadError> {
    let opened = Weights::open(dir);
    // What the configuration says comes first: it is the same for every state of the download.
    let architecture = parse_config(config, &|name| opened.as_ref().is_ok_and(|weights| weights.get(name).is_some()))?;
    Ok(Box::new(load(isa, &architecture, &opened?)?))
}

/// An encoder whose weights are packed for one instruction set.
pub struct SimdEncoder {
    isa: Isa,
    dims: Dims,
    limits: InputLimits,
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
        let ran = if batch.sequences() == 0 { Ok(()) } else { self.run(batch, rows, &starts, &mut output, ctx) };
        ctx.scratch.trim();
        if let Err(error) = ran {
            ctx.scratch.give_back(output);
            return Err(error);
        }
        Ok(Hidden::new(self.isa, output, stride, self.dims.hidden, starts.outputs, rows))
    }

    fn first_token_attention(&self, _: &EncoderInput<'_>, _: &mut Context<'_>) -> Result<Vec<f32>, EncodeError> {
        unimplemented!("the attention kernel keeps no weights yet")
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
    /// Computes the batch into `output`, as [`Starts`] lays it out.
    fn run(
        &self,
        batch: &EncoderInput<'_>,
        rows: Rows,
        starts: &Starts,
        output: &mut AlignedVec,
        ctx: &mut Context<'_>,
    ) -> Result<(), EncodeError> {
        let threads = ctx.pool.threads();
        ctx.scratch.reserve(threads);
        let work = Work {
            encoder: self,
            batch,
            rows,
            starts,
            output: output.as_mut_ptr(),
            checkpoint: ctx.checkpoint,
            stopped: AtomicBool::new(false),
            failure: OnceLock::new(),
        };
        let cost = |length| self.flops(length);
        match plan(batch.lengths, cost, threads) {
            Plan::Team if ctx.scratch.team_allowed() => {
                let start = Instant::now();
                let waited = work.run_team(ctx.pool, ctx.scratch);
                ctx.scratch.team.note(start.elapsed(), waited, threads);
            }
            Plan::Team => work.run_groups(&groups(batch.lengths, cost, threads), ctx.pool, ctx.scratch),
            Plan::Groups(groups) => work.run_groups(&groups, ctx.pool, ctx.scratch),
        }
        match work.failure.into_inner() {
            Some(error) => Err(error),
            None if work.stopped.into_inner() => Err(EncodeError::Stopped),
            // After the rows were read, so that none of them can be of another file.
            None => self.word.check(),
        }
    }
}

/// A batch being computed, as all threads see it.
struct Work<'a> {
    encoder: &'a SimdEncoder,
    batch: &'a EncoderInput<'a>,
    rows: Rows,
    starts: &'a Starts,
    /// `[rows of all sequences][hidden_stride]`; ranks write disjoint rows.
    output: *mut f32,
    checkpoint: &'a (dyn Fn() -> Flow + Sync),
    stopped: AtomicBool,
    /// Why it was stopped, when no checkpoint did.
    failure: OnceLock<EncodeError>,
}

// SAFETY: the pointer is only an address, and layer.rs decides who writes what through it; everything else is Sync by
// itself.
unsafe impl Sync for Work<'_> {}

impl Work<'_> {
    /// Each thread takes groups and brings them through all layers, without a barrier. One group needs no other thread.
    fn run_groups(&self, groups: &[Vec<usize>], pool: &ThreadPool, scratch: &Scratch) {
        let next = AtomicUsize::new(0);
        let take = |team: Team<'_>| {
            let mut buffers = lock(&scratch.batches[team.rank()]);
            let mut thread = lock(&scratch.threads[team.rank()]);
            thread.clock.start();
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                let sequences = Sequences::new(self.batch, self.rows, self.starts, group.iter().copied());
                let view = buffers.view(&self.encoder.dims, &sequences, 0);
                let pass = Pass { work: self, team: Team::solo(), sequences: &sequences, view };
                // SAFETY: the view has room for the group, and the group's rows of the output are nobody else's.
                if !unsafe { pass.run(&mut thread) } {
                    break;
                }
            }
        };
        if groups.len() == 1 { take(Team::solo()) } else { pool.run(&take) }
    }

    /// All threads work on the whole batch together. Returns how long the calling one waited for others.
    fn run_team(&self, pool: &ThreadPool, scratch: &Scratch) -> Duration {
        let sequences = Sequences::new(self.batch, self.rows, self.starts, 0..self.batch.sequences());
        let shared = layer::shared_rows(&sequences, pool.threads());
        let view = lock(&scratch.batches[0]).view(&self.encoder.dims, &sequences, shared);
        pool.run(&|team| {
            let mut thread = lock(&scratch.threads[team.rank()]);
            thread.clock.start();
            thread.waited = Duration::ZERO;
            let pass = Pass { work: self, team, sequences: &sequences, view };
            // SAFETY: the view has room for the batch; every rank runs the same pass.
            unsafe { pass.run(&mut thread) };
        });
        lock(&scratch.threads[0]).waited
    }

    /// Stops the batch because a row could not be read. The first such error counts.
    fn fail(&self, error: EncodeError) {
        self.failure.get_or_init(|| error);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Asks whether to go on. After one stop nobody asks again.
    fn ask(&self) {
        if !self.stopped.load(Ordering::Relaxed) && (self.checkpoint)() == Flow::Stop {
            self.stopped.store(true, Ordering::Relaxed);
        }
    }
}

/// Buffers hold plain numbers that every pass writes before it reads them, so those of a pass that panicked are as good
/// as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
