//! How many threads compute.
//!
//! One pool serves all models of the process, because two pools would fight over the same cores. Its size is the
//! `threads` option of a load, else `SIMILE_THREADS`, else what this process may use: the CPUs of its affinity mask,
//! no more than its container's quota (which is what [`std::thread::available_parallelism`] answers on Linux).
//!
//! Two models that ask for different counts: the pool is the process's, so the load that succeeded last sets its size for
//! all of them, from the next micro-batch on. A load that fails, or names no count, changes nothing. Vectors do not depend on it
//! (promise 2 of the design), only speed does; the size in force is in `cpuFeatures()`.

use crate::environment;
use crate::failure::{ErrorKind, Failure};

/// The environment variable that sets the size of the pool. Blank is as good as absent.
pub const THREADS_VARIABLE: &str = "SIMILE_THREADS";

/// The largest pool that can be asked for. Past it a count is more likely a mistake than a machine.
pub const MAX_THREADS: usize = 512;

/// What this process may use: affinity and container quota, at least 1.
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// The count that the environment asks for; `None` when it asks for none.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] when the variable is neither blank nor a whole number from 1 to [`MAX_THREADS`].
pub(crate) fn from_environment() -> Result<Option<usize>, Failure> {
    environment::whole_number(THREADS_VARIABLE, MAX_THREADS, "the number of processors that this process may use")
}

/// Refuses a count out of range.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] naming the count and the range.
pub fn check(threads: usize) -> Result<usize, Failure> {
    if (1..=MAX_THREADS).contains(&threads) {
        return Ok(threads);
    }
    let message = format!("threads is {threads}; allowed is a whole number from 1 to {MAX_THREADS}");
    Err(Failure::new(ErrorKind::InvalidInput, message)
        .measured(MAX_THREADS as f64, threads as f64, "threads")
        .of_option("threads"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_out_of_range_are_refused() {
        assert_eq!(check(1), Ok(1));
        assert_eq!(check(MAX_THREADS), Ok(MAX_THREADS));
        for threads in [0, MAX_THREADS + 1] {
            let failure = check(threads).unwrap_err();
            assert_eq!((failure.kind, failure.actual), (ErrorKind::InvalidInput, Some(threads as f64)));
        }
        assert!((1..=MAX_THREADS).contains(&available()));
    }
}
