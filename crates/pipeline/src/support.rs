//! Which models run on which device in which precision: one table, first row that fits.
//!
//! # Contract
//! - A cell speaks of the executor, the code that computes a device's layers, and not of one model: what a model of the
//!   registry rests on is its [`Evidence`](crate::registry::Evidence).
//! - A refused cell is refused before anything is downloaded where the model's kind is known by then (a registered model),
//!   and before its weights are opened in any case. The reason says what to take instead.
//! - *Verified* means that tests compare it with a reference implementation. What has not run on its hardware is
//!   *untested*, however sound it looks: docs/cuda.md tells what did.

use std::fmt;

use crate::error::LoadError;
use crate::options::{Device, Precision};

/// How far the executor of a device can be trusted in a precision. A model adds its own risk, which is not in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Tests compare what the executor computes with a reference, a checkpoint of every architecture.
    Verified,
    /// Compiles and loads; nobody has compared its results.
    Untested,
    /// Not computed, for this reason.
    Refused(&'static str),
}

impl Support {
    /// `"verified"`, `"untested"` or `"refused"`.
    pub fn name(self) -> &'static str {
        match self {
            Support::Verified => "verified",
            Support::Untested => "untested",
            Support::Refused(_) => "refused",
        }
    }

    /// Why it is refused.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Support::Refused(reason) => Some(reason),
            Support::Verified | Support::Untested => None,
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Models of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Models {
    Any,
    /// By `model_type` of `config.json`.
    Type(&'static str),
    /// Sparse vectors (SPLADE).
    Sparse,
}

/// Devices of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Devices {
    Any,
    Cpu,
}

struct Row {
    models: Models,
    devices: Devices,
    precisions: &'static [Precision],
    support: Support,
}

const fn row(models: Models, devices: Devices, precisions: &'static [Precision], support: Support) -> Row {
    Row { models, devices, precisions, support }
}

use Precision::{Bf16, F16, F32};
use Support::{Refused, Untested, Verified};

/// Ends with rows that fit everything.
const TABLE: [Row; 5] = [
    row(
        Models::Any,
        Devices::Cpu,
        &[F16, Bf16],
        Refused("the CPU computes in f32, also where the files are in 16 bits; use 'f32'"),
    ),
    row(
        Models::Type("gemma3_text"),
        Devices::Any,
        &[F16],
        Refused(
            "activations of Gemma 3 pass the largest f16 value, 65,504, and turn into infinity; use 'f32' or 'bf16'",
        ),
    ),
    row(
        Models::Sparse,
        Devices::Any,
        &[F16, Bf16],
        Refused("a sparse vector keeps every logit above 0, and 16 bits change which those are; use 'f32'"),
    ),
    row(Models::Any, Devices::Cpu, &[F32], Verified),
    row(Models::Any, Devices::Any, &[F32, F16, Bf16], Untested),
];

/// What is known of models of `model_type` on `device` in `precision`; `None` while the type is not known, which a row of a
/// type does not fit. `sparse`: whether its vectors are sparse.
pub fn support(model_type: Option<&str>, sparse: bool, device: Device, precision: Precision) -> Support {
    fitting(model_type, sparse, device, precision).support
}

fn fitting(model_type: Option<&str>, sparse: bool, device: Device, precision: Precision) -> &'static Row {
    let fits = |row: &&Row| {
        let models = match row.models {
            Models::Any => true,
            Models::Type(name) => model_type == Some(name),
            Models::Sparse => sparse,
        };
        let devices = row.devices == Devices::Any || device == Device::Cpu;
        models && devices && row.precisions.contains(&precision)
    };
    TABLE.iter().find(fits).expect("the last rows fit every device and precision")
}

/// As [`support`], refusing what is refused.
///
/// # Errors
/// [`LoadError::Refused`].
pub fn check(
    model_type: Option<&str>,
    sparse: bool,
    device: Device,
    precision: Precision,
) -> Result<Support, LoadError> {
    let row = fitting(model_type, sparse, device, precision);
    let model = match row.models {
        Models::Any => None,
        Models::Type(name) => Some(name.to_owned()),
        Models::Sparse => Some("sparse vectors".to_owned()),
    };
    match row.support {
        Support::Refused(reason) => Err(LoadError::Refused { model, device, precision, reason }),
        support => Ok(support),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_what_the_table_says() {
        let cases = [
            (Some("bert"), false, Device::Cpu, F32, "verified"),
            (Some("gemma3_text"), false, Device::Cpu, F32, "verified"),
            (Some("bert"), true, Device::Cpu, F32, "verified"),
            (None, false, Device::Cpu, F16, "refused"),
            (Some("bert"), false, Device::Cpu, Bf16, "refused"),
            (Some("bert"), false, Device::Cuda(0), F32, "untested"),
            (Some("bert"), false, Device::Metal, Bf16, "untested"),
            (Some("gemma3_text"), false, Device::Cuda(1), F16, "refused"),
            (Some("gemma3_text"), false, Device::Metal, F16, "refused"),
            (Some("gemma3_text"), false, Device::Cuda(0), Bf16, "untested"),
            (None, false, Device::Cuda(0), F16, "untested"),
            (Some("bert"), true, Device::Cuda(0), F16, "refused"),
            (None, true, Device::Metal, Bf16, "refused"),
            (Some("bert"), true, Device::Cuda(0), F32, "untested"),
        ];
        for (model, sparse, device, precision, expected) in cases {
            let what = format!("{model:?}, sparse {sparse}, {device}, {precision}");
            assert_eq!(support(model, sparse, device, precision).name(), expected, "{what}");
            assert_eq!(check(model, sparse, device, precision).is_err(), expected == "refused", "{what}");
        }
    }

    #[test]
    fn a_refusal_names_the_model_only_where_it_is_the_reason() {
        let message = |model, device| check(Some(model), false, device, F16).unwrap_err().to_string();
        assert!(message("bert", Device::Cpu).starts_with("precision 'f16' on device 'cpu' is refused: the CPU"));
        let gemma = message("gemma3_text", Device::Cuda(0));
        assert!(gemma.starts_with("precision 'f16' on device 'cuda' is refused for gemma3_text: "), "{gemma}");
    }
}
