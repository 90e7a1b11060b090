//! What environment variables set.
//!
//! They are read where JavaScript's thread makes a model or asks for the processor, because no other thread may read the
//! system's environment while that one may change it.

use simile_kernels::Isa;

use crate::convert;
use crate::failure::{ErrorKind, Failure};
use crate::threads;

/// The values that they have now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Size of the pool: see [`crate::threads`].
    pub(crate) threads: Option<usize>,
    /// The most bytes that wait in a lane of the queue.
    pub(crate) queue_limit: usize,
    /// What models compute with.
    pub(crate) isa: Isa,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for the first whose value is not allowed.
    pub(crate) fn read() -> Result<Settings, Failure> {
        let (threads, queue_limit) = (threads::from_environment()?, queue_limit()?);
        Ok(Settings { threads, queue_limit, isa: Isa::from_env().map_err(convert::isa)? })
    }
}

/// The environment variable that sets how much a lane of the queue holds, in MiB. Blank is as good as absent.
const QUEUE_VARIABLE: &str = "SIMILE_QUEUE_MB";

/// What a lane holds by default, in MiB: some 400,000 short texts.
const DEFAULT_QUEUE_MB: usize = 256;

/// The most that can be asked for, 1 TiB. Past it a number is more likely a mistake than a machine.
const MAX_QUEUE_MB: usize = 1 << 20;

/// The most bytes that wait in a lane of the queue.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] when the variable is neither blank nor a whole number of MiB.
fn queue_limit() -> Result<usize, Failure> {
    let otherwise = format!("{DEFAULT_QUEUE_MB} MiB for each lane of the queue");
    let megabytes = whole_number(QUEUE_VARIABLE, MAX_QUEUE_MB, &otherwise)?.unwrap_or(DEFAULT_QUEUE_MB);
    Ok(megabytes.saturating_mul(1 << 20))
}

/// The value of `variable`, from 1 to `most`; `None` when it is absent or blank, which means `otherwise`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for any other value.
pub(crate) fn whole_number(variable: &'static str, most: usize, otherwise: &str) -> Result<Option<usize>, Failure> {
    match std::env::var_os(variable) {
        None => Ok(None),
        Some(value) => parse(variable, &value.to_string_lossy(), most, otherwise),
    }
}

fn parse(variable: &'static str, value: &str, most: usize, otherwise: &str) -> Result<Option<usize>, Failure> {
    let value = value.trim();
    if value.is_empty() {
        return Ok(None);
    }
    match value.parse::<usize>() {
        Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
        _ => {
            let message = format!(
                "{variable} is {value:?}; allowed is a whole number from 1 to {most}, or nothing for {otherwise}"
            );
            Err(Failure::new(ErrorKind::InvalidInput, message).of_option(variable))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_variable() {
        let cases = [
            ("", Some(None)),
            ("  ", Some(None)),
            ("1", Some(Some(1))),
            (" 7 ", Some(Some(7))),
            ("+7", Some(Some(7))),
            ("512", Some(Some(512))),
        ];
        for (value, expected) in cases {
            assert_eq!(parse("VARIABLE", value, 512, "all").ok(), expected, "{value:?}");
        }
        for value in ["0", "-1", "two", "1.5", "513", "1e2", "0x10", "64MB", "99999999999999999999"] {
            let failure = parse("VARIABLE", value, 512, "all").expect_err(value);
            assert_eq!((failure.kind, failure.option), (ErrorKind::InvalidInput, Some("VARIABLE")));
            for part in ["VARIABLE", value, "from 1 to 512", "all"] {
                assert!(failure.message.contains(part), "{}", failure.message);
            }
        }
    }
}
