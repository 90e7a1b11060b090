//! What was chosen for this processor.

use napi::bindgen_prelude::Either;
use napi_derive::napi;

use crate::failure::NativeFailure;

/// Instruction sets and threads.
#[napi(object, object_from_js = false)]
pub struct NativeCpuFeatures {
    /// The instruction set that models loaded now will use.
    pub isa: String,
    /// Those that the processor has, best first.
    pub available: Vec<String>,
    /// Threads that compute.
    pub threads: u32,
    /// Processors that this process may use.
    pub parallelism: u32,
    /// What the addon was built for.
    pub architecture: String,
}

/// Asks the processor and the environment; loads no model.
#[napi(catch_unwind)]
pub fn cpu_features() -> Either<NativeFailure, NativeCpuFeatures> {
    match simile_engine::cpu_features() {
        Err(failure) => Either::A(failure.into()),
        Ok(features) => Either::B(NativeCpuFeatures {
            isa: features.isa.to_owned(),
            available: features.available.into_iter().map(str::to_owned).collect(),
            threads: features.threads as u32,
            parallelism: features.parallelism as u32,
            architecture: features.architecture.to_owned(),
        }),
    }
}
