//! Which executor runs a model: one for each device.

use std::path::Path;

use serde_json::Value;
use simile_kernels::Isa;

use crate::{Device, Encoder, LoadError, Precision, load_simd};

/// Loads the model in `dir` on `device`, in `precision`: the CPU by the simd executor (in f32, whatever is asked for),
/// other devices by candle. What may be asked for is the caller's table, not decided here.
///
/// # Errors
/// As [`load_simd`]; [`LoadError::DeviceNotBuilt`], [`LoadError::Device`], [`LoadError::NotEnoughMemory`].
pub fn load(
    device: Device,
    precision: Precision,
    isa: Isa,
    config: &Value,
    dir: &Path,
) -> Result<Box<dyn Encoder>, LoadError> {
    device_is_built(device)?;
    match device {
        Device::Cpu => load_simd(isa, config, dir),
        #[cfg(feature = "candle")]
        Device::Cuda(_) | Device::Metal => crate::load_candle(device, precision, isa, config, dir),
        #[cfg(not(feature = "candle"))]
        Device::Cuda(_) | Device::Metal => {
            let _ = precision;
            unreachable!("no build without candle has a device but the CPU")
        }
    }
}

/// Whether this build computes on `device`. Costs nothing, so that a model is not downloaded for an error.
///
/// # Errors
/// [`LoadError::DeviceNotBuilt`].
pub fn device_is_built(device: Device) -> Result<(), LoadError> {
    match device {
        Device::Cpu => Ok(()),
        Device::Cuda(_) if cfg!(feature = "cuda") => Ok(()),
        Device::Metal if cfg!(feature = "metal") => Ok(()),
        Device::Cuda(_) => {
            let advice = "CUDA is an addon of its own, built with the cargo feature `cuda`";
            Err(LoadError::DeviceNotBuilt { device, advice })
        }
        Device::Metal => {
            let advice = "Metal is in the addons for macOS (cargo feature `metal`); use 'cpu' elsewhere";
            Err(LoadError::DeviceNotBuilt { device, advice })
        }
    }
}
