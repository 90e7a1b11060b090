//! What computes, and in which number format.

use std::fmt;
use std::str::FromStr;

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor, with the kernels of this project.
    #[default]
    Cpu,
    /// The NVIDIA GPU of this number, counted from 0 as the driver counts those that it shows.
    Cuda(usize),
    /// The GPU of an Apple machine.
    Metal,
}

impl Device {
    const NAMES: [&'static str; 4] = ["cpu", "cuda", "cuda:N", "metal"];
}

impl fmt::Display for Device {
    /// `cpu`, `cuda`, `cuda:1`, `metal`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(0) => f.write_str("cuda"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
            Device::Metal => f.write_str("metal"),
        }
    }
}

impl FromStr for Device {
    type Err = UnknownName;

    fn from_str(value: &str) -> Result<Self, UnknownName> {
        let numbered = value.strip_prefix("cuda:").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        match value {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            "metal" => Ok(Device::Metal),
            _ => numbered.and_then(|digits| digits.parse().ok()).map(Device::Cuda).ok_or_else(|| UnknownName {
                what: "device",
                value: value.to_owned(),
                allowed: Device::NAMES.to_vec(),
            }),
        }
    }
}

/// Number format of weights and arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// IEEE half precision: 5 bits of exponent, 10 of mantissa.
    F16,
    /// The upper half of a 32-bit float: 8 bits of exponent, 7 of mantissa.
    Bf16,
}

impl Precision {
    /// All formats.
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::F16, Precision::Bf16];

    /// `"f32"`, `"f16"` or `"bf16"`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F16 => "f16",
            Precision::Bf16 => "bf16",
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::F16 | Precision::Bf16 => 2,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = UnknownName;

    fn from_str(value: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|one| one.name() == value).ok_or_else(|| UnknownName {
            what: "precision",
            value: value.to_owned(),
            allowed: Self::ALL.into_iter().map(Self::name).collect(),
        })
    }
}

/// A word that names none of a closed set of values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} '{value}' is not supported. Supported: {}", allowed.join(", "))]
pub struct UnknownName {
    /// What the word should name.
    pub what: &'static str,
    /// The word.
    pub value: String,
    /// The valid words.
    pub allowed: Vec<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names_and_other_words_are_refused_with_the_valid_set() {
        for name in ["cpu", "cuda", "cuda:1", "cuda:12", "metal"] {
            assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
        }
        assert_eq!("cuda:0".parse(), Ok(Device::Cuda(0)));
        for wrong in ["gpu", "CUDA", "cuda:", "cuda:-1", "cuda:+1", "cuda:99999999999999999999", "metal:1", ""] {
            let error = wrong.parse::<Device>().unwrap_err().to_string();
            assert_eq!(error, format!("device '{wrong}' is not supported. Supported: cpu, cuda, cuda:N, metal"));
        }
    }

    #[test]
    fn precisions_have_names_and_other_words_are_refused_with_the_valid_set() {
        for precision in Precision::ALL {
            assert_eq!(precision.name().parse(), Ok(precision));
        }
        let error = "int8".parse::<Precision>().unwrap_err();
        assert_eq!(error.to_string(), "precision 'int8' is not supported. Supported: f32, f16, bf16");
    }
}
