//! The simd executor: any [`EncoderSpec`](crate::spec::EncoderSpec) on the CPU, with the kernels crate's arithmetic.
//!
//! # What happens to a batch
//! `plan.rs` shares it out (whole sequences to threads, or everything to the team); `pass.rs` is one pass through all
//! layers for a team of any size, of which a team of one needs no barrier; rows of the last layer that nobody reads are
//! not computed. `layer.rs` is one layer, `attention.rs` its attention, `step.rs` what both are made of; `model.rs` is
//! what `load.rs` makes of a spec and its weights.
//!
//! # Invariants
//! - Every value of a row comes from one chain of operations that depends on that sequence alone, in an order that
//!   depends on the model and the instruction set alone. So neither batch-mates nor threads nor the way of sharing out
//!   change a byte.
//! - A mask is a range of keys for each query: what no query of a tile sees is not computed, and no S x S matrix exists.
//! - A head is padded with zero columns to whole panels: `x * 0` added to a chain changes nothing, and a
//!   head's values are then panels of their own that the attention reads as they come out of the projection.
//!
//! # Cost
//! Linear layers take about 90 % of the time at a sequence length of 100 and run at the kernels' speed; activations of
//! a group (512 tokens) stay in the second-level cache, weights stream past once for each group. Memory of a pass grows
//! with its tokens: hidden states, queries, keys and values of one layer, and on each thread the transposed keys of a head
//! and the scores of a tile.

mod attention;
pub(crate) mod buffers;
mod dims;
mod layer;
mod load;
mod model;
mod pass;
mod plan;
mod position;
pub(crate) mod profile;
mod sequences;
mod share;
mod step;
pub(crate) mod team;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use simile_kernels::{AlignedVec, Isa, Team, ThreadPool};

use crate::spec::Positions;
use crate::weights::{EmbeddingTable, Resolver};
use crate::{
    Context, Device, EncodeError, Encoder, EncoderInput, Flow, Hidden, InputLimits, LoadError, Rows, Scratch, Weights,
    memory, parse_config,
};
use dims::Dims;
pub use load::load;
use model::{LayerWeights, NormWeights};
use pass::{OwnTables, Pass, shared_rows};
use plan::{Plan, groups, plan};
use position::{DistanceBias, Rotation};
use sequences::{Sequences, Starts};

/// Parses `config`, opens the weights in `dir` and packs them for `isa`.
///
/// # Errors
/// [`LoadError`]: an unsupported configuration, or weights that are absent, damaged or of another model.
pub fn load_simd(isa: Isa, config: &serde_json::Value, dir: &Path) -> Result<Box<dyn Encoder>, LoadError> {
    let opened = Weights::open(dir);
    // What the configuration says comes first: it is the same for every state of the download.
    let architecture = parse_config(config, &|name| opened.as_ref().is_ok_and(|weights| weights.get(name).is_some()))?;
    let weights = opened?;
    // Sizes that are wrong are no lack of memory.
    Resolver::new(&weights, &architecture.names)?.check_sizes(&architecture.spec)?;
    let needed = architecture.spec.parameters_without_words() * size_of::<f32>() as u64;
    memory::check(Device::Cpu, needed, memory::available())?;
    Ok(Box::new(load(isa, &architecture, &weights)?))
}

/// An encoder whose weights are packed for one instruction set.
pub struct SimdEncoder {
    isa: Isa,
    dims: Dims,
    limits: InputLimits,
    embeddings: Embeddings,
    layers: Vec<LayerWeights>,
    /// Tables that layers name by their index.
    rotations: Vec<Rotation>,
    /// As above.
    biases: Vec<DistanceBias>,
    final_norm: Option<NormWeights>,
}

/// What becomes of a token id.
struct Embeddings {
    word: EmbeddingTable,
    /// The word row is multiplied by it.
    scale: f32,
    /// Which row of `positions` a token reads.
    position_rule: Positions,
    /// `[rows][hidden]`, or empty.
    positions: AlignedVec,
    /// `[types][hidden]`, or empty.
    types: AlignedVec,
    norm: Option<NormWeights>,
}

/// What a pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Rows of the last layer's hidden states.
    Hidden,
    /// The last layer's attention of each first token: a value for each token.
    FirstTokenAttention,
}

impl Encoder for SimdEncoder {
    fn forward(&self, batch: &EncoderInput<'_>, rows: Rows, ctx: &mut Context<'_>) -> Result<Hidden, EncodeError> {
        batch.check(&self.limits)?;
        let starts = Starts::new(batch.lengths, rows);
        let stride = self.dims.hidden_stride;
        let outputs = starts.outputs[batch.sequences()];
        let mut output = ctx.scratch.take(outputs * stride);
        let ran = self.run(batch, rows, &starts, Wanted::Hidden, &mut output, ctx);
        if let Err(error) = ran {
            ctx.scratch.give_back(output);
            return Err(error);
        }
        Ok(Hidden::new(self.isa, output, stride, self.dims.hidden, starts.outputs, rows))
    }

    fn first_token_attention(&self, batch: &EncoderInput<'_>, ctx: &mut Context<'_>) -> Result<Vec<f32>, EncodeError> {
        batch.check(&self.limits)?;
        let starts = Starts::new(batch.lengths, Rows::First);
        let mut weights = vec![0.0; batch.tokens()];
        self.run(batch, Rows::First, &starts, Wanted::FirstTokenAttention, &mut weights, ctx)?;
        Ok(weights)
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
        self.layers.iter().map(|layer| layer.flops(length, self.dims.hidden)).sum()
    }

    fn memory_bytes(&self) -> usize {
        let Embeddings { positions, types, norm, .. } = &self.embeddings;
        let norms = [norm, &self.final_norm].into_iter().flatten().map(NormWeights::bytes).sum::<usize>();
        let rotations = self.rotations.iter().map(Rotation::bytes).sum::<usize>();
        let biases = self.biases.iter().map(DistanceBias::bytes).sum::<usize>();
        let layers = self.layers.iter().map(LayerWeights::bytes).sum::<usize>();
        layers + norms + rotations + biases + positions.bytes() + types.bytes()
    }
}

impl SimdEncoder {
    /// Computes what is wanted of the batch into `output`: rows as [`Starts`] lays them out, or a value for each token.
    fn run(
        &self,
        batch: &EncoderInput<'_>,
        rows: Rows,
        starts: &Starts,
        wanted: Wanted,
        output: &mut [f32],
        ctx: &mut Context<'_>,
    ) -> Result<(), EncodeError> {
        if batch.sequences() == 0 {
            return Ok(());
        }
        let threads = ctx.pool.threads();
        ctx.scratch.reserve(threads);
        let work = Work {
            encoder: self,
            batch,
            rows,
            starts,
            wanted,
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
        ctx.scratch.trim(size_of_val(output));
        match work.failure.into_inner() {
            Some(error) => Err(error),
            None if work.stopped.into_inner() => Err(EncodeError::Stopped),
            // After the rows were read, so that none of them can be of another file.
            None => self.embeddings.word.check(),
        }
    }
}

/// A batch being computed, as all threads see it.
struct Work<'a> {
    encoder: &'a SimdEncoder,
    batch: &'a EncoderInput<'a>,
    rows: Rows,
    starts: &'a Starts,
    wanted: Wanted,
    /// `[rows of all sequences][hidden_stride]`, or `[tokens]`; ranks write disjoint parts.
    output: *mut f32,
    checkpoint: &'a (dyn Fn() -> Flow + Sync),
    stopped: AtomicBool,
    /// Why it was stopped, when no checkpoint did.
    failure: OnceLock<EncodeError>,
}

// SAFETY: the pointer is only an address, and pass.rs decides who writes what through it; everything else is Sync by
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
                let own = OwnTables::new(self.encoder, &sequences);
                let pass = Pass { work: self, team: Team::solo(), sequences: &sequences, own: &own, view };
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
        let own = OwnTables::new(self.encoder, &sequences);
        let shared = shared_rows(&sequences, pool.threads());
        let view = lock(&scratch.batches[0]).view(&self.encoder.dims, &sequences, shared);
        pool.run(&|team| {
            let mut thread = lock(&scratch.threads[team.rank()]);
            thread.clock.start();
            thread.waited = Duration::ZERO;
            let pass = Pass { work: self, team, sequences: &sequences, own: &own, view };
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
