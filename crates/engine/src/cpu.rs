//! What this machine offers and what was chosen, for bug reports.

use simile_kernels::Isa;

use crate::engine::Engine;
use crate::environment::Settings;
use crate::failure::Failure;
use crate::threads;

/// Instruction sets and threads, as chosen and as available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuFeatures {
    /// The instruction set that models loaded now will use: the best, or the one that `SIMILE_ISA` names.
    pub isa: &'static str,
    /// The instruction sets that this processor has, best first.
    pub available: Vec<&'static str>,
    /// Threads that compute.
    pub threads: usize,
    /// Processors that this process may use: affinity and container quota.
    pub parallelism: usize,
    /// What the library was built for, for example `x86_64`.
    pub architecture: &'static str,
}

/// Asks the processor and the environment. On a thread that may read it: see `environment.rs`.
///
/// # Errors
/// `InvalidInput` when `SIMILE_ISA`, `SIMILE_THREADS` or `SIMILE_QUEUE_MB` holds something that is not allowed.
pub fn cpu_features() -> Result<CpuFeatures, Failure> {
    let settings = Settings::read()?;
    Ok(CpuFeatures {
        isa: settings.isa.name(),
        available: Isa::available().into_iter().map(Isa::name).collect(),
        threads: Engine::of_process(&settings).threads(),
        parallelism: threads::available(),
        architecture: std::env::consts::ARCH,
    })
}
