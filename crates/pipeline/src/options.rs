//! What a caller can choose when a model is loaded.

use std::fmt;
use std::str::FromStr;

pub use simile_encoder::{Device, Precision, UnknownName};
use simile_kernels::Isa;

use crate::DescriptorOverrides;

/// What happens to a text that has more tokens than the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Truncate {
    /// Its end is cut, and with it the template's, as the tokenizers library does it.
    #[default]
    End,
    /// The beginning of the text is cut; template and special tokens stay.
    Start,
    /// It is refused.
    Error,
}

impl Truncate {
    /// All policies.
    pub const ALL: [Truncate; 3] = [Truncate::End, Truncate::Start, Truncate::Error];

    /// `"end"`, `"start"` or `"error"`.
    pub fn name(self) -> &'static str {
        match self {
            Truncate::End => "end",
            Truncate::Start => "start",
            Truncate::Error => "error",
        }
    }
}

macro_rules! named {
    ($type:ty, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
        impl FromStr for $type {
            type Err = UnknownName;
            fn from_str(value: &str) -> Result<Self, UnknownName> {
                Self::ALL.into_iter().find(|one| one.name() == value).ok_or_else(|| UnknownName {
                    what: $what,
                    value: value.to_owned(),
                    allowed: Self::ALL.into_iter().map(Self::name).collect(),
                })
            }
        }
    };
}
named!(Truncate, "truncation policy");

/// How to load a model. `None` everywhere means: as the model's files say, else as the registry says.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Limit in tokens, special tokens and template included; capped at the model's positions.
    pub max_length: Option<usize>,
    /// Whether vectors get unit length.
    pub normalize: Option<bool>,
    /// What happens to longer texts. Default: `truncation_side` of `tokenizer_config.json`, else [`Truncate::End`].
    pub truncate: Option<Truncate>,
    /// Facts that the caller knows better than files and registry.
    pub descriptor: Option<DescriptorOverrides>,
    /// Instruction set to compute with.
    pub isa: Isa,
    /// What computes. Default: [`Device::Cpu`].
    pub device: Device,
    /// Number format. Default: [`Precision::F32`].
    pub precision: Precision,
}

impl LoadOptions {
    /// The model's own settings, computed with `isa`.
    pub fn new(isa: Isa) -> Self {
        LoadOptions {
            max_length: None,
            normalize: None,
            truncate: None,
            descriptor: None,
            isa,
            device: Device::default(),
            precision: Precision::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_others_are_refused_with_the_valid_set() {
        for policy in Truncate::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        let error = "END".parse::<Truncate>().unwrap_err();
        assert_eq!(error.to_string(), "truncation policy 'END' is not supported. Supported: end, start, error");
    }
}
