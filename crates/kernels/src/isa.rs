//! Which instruction set to compute with: the one place that turns CPU features into types.
//!
//! The tokens [`Avx512`], [`Avx2`] and [`Portable`] cannot be made outside this module, and here only after the CPU was
//! asked. So code that holds one needs no check of its own, and no way leads to an illegal instruction.

use crate::simd::{Simd, SimdOp};

/// The environment variable that [`Isa::from_env`] reads.
pub const ISA_VARIABLE: &str = "SIMILE_ISA";

/// Proof of AVX-512 F, BW, DQ and VL with AVX2 and FMA: Intel servers since Skylake, AMD since Zen 4.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(());

/// Proof of AVX2 and FMA: Intel since Haswell, AMD since Zen.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

/// What every CPU of the compilation target has: SSE2 on x86-64, NEON on aarch64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portable(());

/// An instruction set that this CPU has.
///
/// Results differ in the last bits between instruction sets, never between thread counts or batch shapes on one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// 16 lanes, register tiles of 12 x 32.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// 8 lanes, register tiles of 6 x 16.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 4 lanes, register tiles of 6 x 8; on aarch64 8 lanes and 6 x 16.
    Portable(Portable),
}

/// An instruction set was asked for by name and cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IsaError {
    /// No instruction set has this name on any CPU.
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// simile knows the instruction set, but this CPU (or the architecture simile was built for) does not have it.
    Unavailable {
        /// What was asked for.
        name: String,
    },
}

const NAMES: [&str; 3] = ["avx512", "avx2", "portable"];

impl std::fmt::Display for IsaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IsaError::Unknown { name } => {
                write!(f, "unknown instruction set {name:?}: expected one of {}", NAMES.join(", "))
            }
            IsaError::Unavailable { name } => {
                write!(f, "this CPU cannot run the instruction set {name:?}: it has ")?;
                for (i, isa) in Isa::available().into_iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, isa.name())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for IsaError {}

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    /// The token, if this CPU (and the operating system's saved state) has the features.
    pub fn detect() -> Option<Avx512> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma"))
        .then_some(Avx512(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// The token, if this CPU (and the operating system's saved state) has the features.
    pub fn detect() -> Option<Avx2> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Avx2(()))
    }
}

impl Portable {
    /// The token; every CPU has it.
    pub fn detect() -> Portable {
        Portable(())
    }
}

impl Isa {
    /// The fastest instruction set of this CPU.
    pub fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(token) = Avx512::detect() {
                return Isa::Avx512(token);
            }
            if let Some(token) = Avx2::detect() {
                return Isa::Avx2(token);
            }
        }
        Isa::Portable(Portable::detect())
    }

    /// The instruction set called `name`: `"avx512"`, `"avx2"` or `"portable"`.
    ///
    /// # Errors
    /// If the name is unknown, or this CPU does not have the instruction set.
    pub fn from_name(name: &str) -> Result<Isa, IsaError> {
        if let Some(isa) = Isa::available().into_iter().find(|isa| isa.name() == name) {
            return Ok(isa);
        }
        let name = name.to_owned();
        Err(if NAMES.contains(&name.as_str()) { IsaError::Unavailable { name } } else { IsaError::Unknown { name } })
    }

    /// The instruction set that the environment variable [`ISA_VARIABLE`] names; the best one if it is absent or blank.
    ///
    /// # Errors
    /// As [`Isa::from_name`].
    pub fn from_env() -> Result<Isa, IsaError> {
        // What is not Unicode is no name either, and is refused with what can be shown of it.
        let value = std::env::var_os(ISA_VARIABLE);
        Isa::from_setting(value.as_deref().map(std::ffi::OsStr::to_string_lossy).as_deref())
    }

    pub(crate) fn from_setting(value: Option<&str>) -> Result<Isa, IsaError> {
        match value.map(str::trim) {
            None | Some("") => Ok(Isa::best()),
            Some(name) => Isa::from_name(name),
        }
    }

    /// Every instruction set of this CPU, the fastest first.
    pub fn available() -> Vec<Isa> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx512::detect().map(Isa::Avx512));
            all.extend(Avx2::detect().map(Isa::Avx2));
        }
        all.push(Isa::Portable(Portable::detect()));
        all
    }

    /// `"avx512"`, `"avx2"` or `"portable"`.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            Isa::Portable(_) => "portable",
        }
    }

    /// Columns of a panel of a [`PackedMatrix`](crate::PackedMatrix): 32, 16, or 8 (16 on aarch64).
    pub fn panel_width(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => Avx512::PANEL,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => Avx2::PANEL,
            Isa::Portable(_) => Portable::PANEL,
        }
    }

    /// Rows of the tallest register tile: 12 with AVX-512, otherwise 6. Work that is split by rows is fastest in
    /// multiples of it.
    pub fn tile_rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => Avx512::ROWS,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => Avx2::ROWS,
            Isa::Portable(_) => Portable::ROWS,
        }
    }

    /// Evaluates `op` with this instruction set.
    #[inline]
    pub fn run<Op: SimdOp>(self, op: Op) -> Op::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(token) => token.call(op),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(token) => token.call(op),
            Isa::Portable(token) => token.call(op),
        }
    }
}
