//! How fast the simd executor runs a model: tokens a second, GFLOP/s and where the time goes, on batches of random
//! token ids.
//!
//! ```text
//! cargo run --release -p simile-encoder --example forward_speed -- FOLDER [THREADS] [ROUNDS] [CASE]
//! ```
//! `SIMILE_ISA` chooses the instruction set. Compare two builds only side by side, in turns.

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::path::Path;
use std::time::{Duration, Instant};

use simile_encoder::{Context, Encoder, EncoderInput, Flow, Rows, Scratch, load_simd};
use simile_kernels::{Isa, ThreadPool};

/// A ragged batch.
struct Batch {
    ids: Vec<u32>,
    lengths: Vec<usize>,
}

fn batch(lengths: Vec<usize>, vocab: usize) -> Batch {
    let mut state = 1u64;
    let ids = (0..lengths.iter().sum())
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32 % vocab as u32
        })
        .collect();
    Batch { ids, lengths }
}

/// Lengths like those of mixed text: 8 to 256 tokens, about 100 on average.
fn mixed(count: usize) -> Vec<usize> {
    (0..count)
        .map(|i| {
            let x = (i * 89 % count) as f64 / count as f64;
            8 + (248.0 * x.powf(1.53)) as usize
        })
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: forward_speed FOLDER [THREADS] [ROUNDS] [CASE]")?;
    let threads = match arguments.next() {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism()?.get(),
    };
    let rounds: usize = arguments.next().map_or(Ok(40), |rounds| rounds.parse())?;
    let only = arguments.next();
    let isa = Isa::from_env()?;

    let folder = Path::new(&folder);
    let config = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
    let start = Instant::now();
    let encoder = load_simd(isa, &config, folder)?;
    println!(
        "{} on {}, {threads} threads; loaded in {:.0} ms, {:.1} MB of packed weights",
        folder.display(),
        isa.name(),
        start.elapsed().as_secs_f64() * 1e3,
        encoder.memory_bytes() as f64 / 1e6
    );

    let pool = ThreadPool::new(threads);
    let mut scratch = Scratch::new();
    let vocab = encoder.vocab_size();
    let cases = [
        ("32 x 12", vec![12; 32]),
        ("64 x 12", vec![12; 64]),
        ("16 mixed", mixed(16)),
        ("64 mixed", mixed(64)),
        ("4 x 256", vec![256; 4]),
        ("1 x 12", vec![12]),
        ("1 x 64", vec![64]),
        ("1 x 256", vec![256]),
    ];
    for (name, lengths) in cases {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        measure(name, &*encoder, &batch(lengths, vocab), rounds, &pool, &mut scratch);
    }
    Ok(())
}

fn forward(encoder: &dyn Encoder, batch: &Batch, pool: &ThreadPool, scratch: &mut Scratch) {
    let input = EncoderInput { input_ids: &batch.ids, token_type_ids: &[], lengths: &batch.lengths, attended: &[] };
    let mut context = Context { pool, scratch, checkpoint: &|| Flow::Continue };
    match encoder.forward(&input, Rows::All, &mut context) {
        Ok(hidden) => hidden.recycle(scratch),
        Err(error) => panic!("{error}"),
    }
}

/// Rounds of one micro-batch: the median is what an application sees, the best what the code can do when nothing else
/// runs.
fn measure(name: &str, encoder: &dyn Encoder, batch: &Batch, rounds: usize, pool: &ThreadPool, scratch: &mut Scratch) {
    let tokens: usize = batch.ids.len();
    let flops: u64 = batch.lengths.iter().map(|&length| encoder.flops(length)).sum();
    let mut round = || {
        let start = Instant::now();
        forward(encoder, batch, pool, scratch);
        start.elapsed()
    };
    round();
    let times = sorted((0..rounds).map(|_| round()).collect());
    let show = |what: &str, time: Duration| {
        let seconds = time.as_secs_f64();
        let (rate, speed) = (tokens as f64 / seconds, flops as f64 / seconds / 1e9);
        format!("{what} {:.3} ms, {rate:.0} tokens/s, {speed:.0} GFLOP/s", seconds * 1e3)
    };
    println!("{name:9} {} | {}", show("best", times[0]), show("median", times[rounds / 2]));
    scratch.set_profiling(true);
    scratch.take_profile();
    (0..rounds.div_ceil(4)).for_each(|_| forward(encoder, batch, pool, scratch));
    report(&scratch.take_profile());
    scratch.set_profiling(false);
}

fn report(profile: &[(&str, Duration)]) {
    let total: Duration = profile.iter().map(|(_, time)| *time).sum();
    let parts: Vec<String> = profile
        .iter()
        .map(|(stage, time)| format!("{stage} {:.1} %", 100.0 * time.as_secs_f64() / total.as_secs_f64()))
        .collect();
    println!("    {}", parts.join(", "));
}

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort_unstable();
    times
}
