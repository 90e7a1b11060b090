//! GFLOP/s of the matrix product for the shapes of small encoders, beside what the FMA units could do, measured in the
//! same run. Shapes are `rows x n x k`.
//!
//! `cargo run --release -p simile-kernels --example gemm_speed [isa ...]`
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use simile_kernels::simd::{Simd, SimdOp};
use simile_kernels::{Activation, AlignedVec, Epilogue, Isa, PackedMatrix, PanelOutput, Team, ThreadPool, gemm};
use std::time::{Duration, Instant};

const SHAPES: [(usize, usize, usize); 14] = [
    (1, 1536, 384),
    (4, 1536, 384),
    (12, 1152, 384),
    (16, 1152, 384),
    (16, 384, 1536),
    (128, 384, 384),
    (128, 1152, 384),
    (128, 1536, 384),
    (128, 384, 1536),
    (512, 1536, 384),
    (1024, 1152, 384),
    (1024, 1536, 384),
    (1024, 384, 1536),
    (512, 3072, 768),
];

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let isas: Vec<Isa> = if names.is_empty() {
        Isa::available()
    } else {
        names.iter().map(|name| Isa::from_name(name).unwrap_or_else(|error| panic!("{error}"))).collect()
    };
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    for isa in isas {
        for threads in [1, cpus] {
            let pool = ThreadPool::new(threads);
            let peak = best_of(10, &|| measure_peak(isa, &pool));
            println!("{} with {threads} thread(s): {peak:.0} GFLOP/s in registers", isa.name());
            for shape in SHAPES {
                let hot = measure_gemm(isa, &pool, shape, Epilogue::Bias, 1);
                let gelu = measure_gemm(isa, &pool, shape, Epilogue::BiasActivation(Activation::Gelu), 1);
                // 24 matrices of this size take turns, as the layers of a model do: the weights come from far away.
                let cold = measure_gemm(isa, &pool, shape, Epilogue::Bias, 24);
                let (rows, n, k) = shape;
                let of_peak = |speed: f64| format!("{speed:6.1} ({:3.0} %)", 100.0 * speed / peak);
                println!(
                    "{:>16}  bias {}  gelu {}  cold weights {}",
                    format!("{rows}x{n}x{k}"),
                    of_peak(hot),
                    of_peak(gelu),
                    of_peak(cold)
                );
            }
            if threads == cpus && cpus == 1 {
                break;
            }
        }
    }
}

/// GFLOP/s of a layer, its panels shared among the threads.
fn measure_gemm(
    isa: Isa,
    pool: &ThreadPool,
    (rows, n, k): (usize, usize, usize),
    epilogue: Epilogue,
    matrices: usize,
) -> f64 {
    let mut a = AlignedVec::zeroed(rows * (k + 16));
    a.iter_mut().enumerate().for_each(|(i, value)| *value = (i % 17) as f32 / 17.0 - 0.5);
    let weights: Vec<PackedMatrix> = (0..matrices)
        .map(|m| PackedMatrix::pack(isa, n, k, |j, row| row.fill((j + m) as f32 / n as f32 - 0.5), None))
        .collect();
    let ld = weights[0].panels() * isa.panel_width() + 16;
    let mut out = AlignedVec::zeroed(rows * ld);
    let (from, to) = (Address(a.as_mut_ptr()), Address(out.as_mut_ptr()));
    let run = |team: Team<'_>, weights: &PackedMatrix| {
        let (from, to) = (&from, &to);
        let out = PanelOutput { ptr: to.0, panel_stride: isa.panel_width(), row_stride: ld };
        let panels = team.split(weights.panels());
        // SAFETY: `a` and `out` are as large as this product; the ranks write different panels.
        unsafe { gemm(isa, from.0, k + 16, rows, weights, panels, out, epilogue) };
        team.barrier();
    };
    let flops = 2.0 * (rows * n * k * matrices) as f64;
    let repeats = ((2e8 / flops) as usize).max(1);
    best_of(25, &|| {
        let start = Instant::now();
        pool.run(&|team| {
            for _ in 0..repeats {
                for weights in &weights {
                    run(team, weights);
                }
            }
        });
        gflops(flops * repeats as f64, start.elapsed())
    })
}

/// A pointer that the ranks of a team share.
struct Address(*mut f32);
// SAFETY: the ranks read the same memory or write different parts of it.
unsafe impl Sync for Address {}

fn best_of(times: usize, measure: &dyn Fn() -> f64) -> f64 {
    (0..times).map(|_| measure()).fold(0.0, f64::max)
}

fn gflops(flops: f64, time: Duration) -> f64 {
    flops / time.as_secs_f64() / 1e9
}

/// GFLOP/s of multiply-adds on registers alone, all threads together.
fn measure_peak(isa: Isa, pool: &ThreadPool) -> f64 {
    const STEPS: usize = 200_000;
    let lanes = isa.panel_width() / 2;
    let start = Instant::now();
    pool.run(&|_| {
        let mut chains = std::hint::black_box([0.5; CHAINS * MAX_LANES]);
        isa.run(Peak { steps: STEPS, chains: &mut chains });
        std::hint::black_box(chains);
    });
    gflops((2 * CHAINS * lanes * STEPS * pool.threads()) as f64, start.elapsed())
}

/// Independent chains: enough to hide the latency of a multiply-add, and to leave registers for the operands.
const CHAINS: usize = 12;

/// Values of the longest vector.
const MAX_LANES: usize = 16;

struct Peak<'a> {
    steps: usize,
    chains: &'a mut [f32; CHAINS * MAX_LANES],
}

impl SimdOp for Peak<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<S: Simd>(self, simd: S) {
        let factor = simd.read(self.chains);
        let mut chains = [factor; CHAINS];
        for _ in 0..self.steps {
            for chain in &mut chains {
                *chain = simd.mul_add(*chain, factor, factor);
            }
        }
        for (i, chain) in chains.into_iter().enumerate() {
            simd.write(&mut self.chains[i * S::LANES..], chain);
        }
    }
}
