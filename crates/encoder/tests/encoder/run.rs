//! Runs a checkpoint as an application would.

use std::path::Path;

use simile_encoder::{Context, EncodeError, Encoder, EncoderInput, Flow, Hidden, Rows, Scratch, load_simd};
use simile_kernels::{Isa, ThreadPool};

use crate::models::{Rng, read_json};

pub fn load(isa: Isa, dir: &Path) -> Box<dyn Encoder> {
    load_simd(isa, &read_json(&dir.join("config.json")), dir).unwrap_or_else(|error| panic!("{error}"))
}

/// A batch that owns its parts.
#[derive(Clone, Default)]
pub struct Batch {
    pub ids: Vec<u32>,
    pub types: Vec<u32>,
    pub lengths: Vec<usize>,
    pub attended: Vec<usize>,
}

impl Batch {
    pub fn of(sequences: &[Vec<u32>]) -> Batch {
        let lengths = sequences.iter().map(Vec::len).collect();
        Batch { ids: sequences.concat(), lengths, ..Batch::default() }
    }

    pub fn input(&self) -> EncoderInput<'_> {
        let Batch { ids, types, lengths, attended } = self;
        EncoderInput { input_ids: ids, token_type_ids: types, lengths, attended }
    }
}

/// Random sequences of the given lengths.
pub fn sequences(lengths: &[usize], vocab: usize) -> Vec<Vec<u32>> {
    let mut random = Rng(7);
    lengths.iter().map(|&length| (0..length).map(|_| random.below(vocab) as u32).collect()).collect()
}

/// A pool with the memory that goes with it.
pub struct Machine {
    pub pool: ThreadPool,
    pub scratch: Scratch,
}

impl Machine {
    pub fn new(threads: usize) -> Machine {
        Machine { pool: ThreadPool::new(threads), scratch: Scratch::new() }
    }

    pub fn try_run(
        &mut self,
        encoder: &dyn Encoder,
        batch: &Batch,
        rows: Rows,
        checkpoint: &(dyn Fn() -> Flow + Sync),
    ) -> Result<Hidden, EncodeError> {
        let mut ctx = Context { pool: &self.pool, scratch: &mut self.scratch, checkpoint };
        encoder.forward(&batch.input(), rows, &mut ctx)
    }

    /// Hidden states by sequence and row.
    pub fn run(&mut self, encoder: &dyn Encoder, batch: &Batch, rows: Rows) -> Vec<Vec<Vec<f32>>> {
        let hidden = self.try_run(encoder, batch, rows, &|| Flow::Continue).unwrap_or_else(|error| panic!("{error}"));
        let states = states(&hidden);
        hidden.recycle(&mut self.scratch);
        states
    }
}

pub fn states(hidden: &Hidden) -> Vec<Vec<Vec<f32>>> {
    (0..hidden.sequences()).map(|i| hidden.rows(i).iter().map(<[f32]>::to_vec).collect()).collect()
}
