//! Trying again: how long things may take, what can fail, and whether another try is worth it.

use std::time::Duration;

use crate::HubError;
use crate::error::shorten;
use crate::stop::Stop;

/// How long things may take, and how often they are tried.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// For a name to be resolved, and for a connection to be made, TLS included.
    pub(crate) connect: Duration,
    /// Without a byte, before and within an answer.
    pub(crate) idle: Duration,
    /// Before the second try; doubled before each other one.
    pub(crate) pause: Duration,
    /// The longest that a hub's wish to be left alone is waited for.
    pub(crate) longest_wait: Duration,
    /// Tries in a row without progress.
    pub(crate) tries: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            pause: Duration::from_millis(300),
            longest_wait: Duration::from_secs(10),
            tries: 3,
        }
    }
}

/// Why a try failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Trying again would end the same way.
    Final(HubError),
    /// So would it here; what it means depends on what was asked for.
    Refused(Refusal),
    /// It may be different next time.
    Passing { url: String, problem: String },
    /// It will be different after a wait, if one was named.
    Busy { url: String, wait: Option<String> },
    /// No answer ever came, which is said so after the last try.
    Unreachable(HubError),
}

impl From<HubError> for Fault {
    fn from(error: HubError) -> Self {
        Fault::Final(error)
    }
}

/// An answer of refusal. A hub says in `X-Error-Code` what its status does not.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: Option<String>,
    /// Its words, shortened.
    pub(crate) said: Option<String>,
    pub(crate) url: String,
    /// Whether it is of the hub itself, and not of where that led.
    pub(crate) of_hub: bool,
    /// Whether it was sent the token.
    pub(crate) token: bool,
}

/// Counts the tries of one request.
pub(crate) struct Retries<'a> {
    patience: &'a Patience,
    stop: &'a Stop,
    failed: u32,
}

impl<'a> Retries<'a> {
    pub(crate) fn new(patience: &'a Patience, stop: &'a Stop) -> Self {
        Retries { patience, stop, failed: 0 }
    }

    /// The tries so far came to something: they do not count any more.
    pub(crate) fn progress(&mut self) {
        self.failed = 0;
    }

    /// Waits until it is time for the next try.
    ///
    /// # Errors
    /// What to tell the caller, when there is to be none.
    pub(crate) fn pause(&mut self, fault: Fault) -> Result<(), HubError> {
        if self.stop.is_stopped() {
            return Err(HubError::Stopped);
        }
        self.failed += 1;
        let last = self.failed >= self.patience.tries;
        let usual = self.patience.pause * 2u32.pow(self.failed - 1);
        let wait = match fault {
            Fault::Final(error) => return Err(error),
            Fault::Refused(Refusal { status, code, said, url, .. }) => {
                return Err(HubError::Refused { url, status, said: said.or(code) });
            }
            Fault::Passing { url, problem } if last => {
                return Err(HubError::Interrupted { url, tries: self.failed, problem });
            }
            Fault::Unreachable(error) if last => return Err(error),
            Fault::Passing { .. } | Fault::Unreachable(_) => usual,
            Fault::Busy { url, wait } => {
                let seconds = match &wait {
                    Some(text) => text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
                    None => Some(usual),
                };
                match seconds.filter(|seconds| *seconds <= self.patience.longest_wait && !last) {
                    Some(seconds) => seconds,
                    None => return Err(HubError::RateLimited { url, wait: spoken(wait) }),
                }
            }
        };
        if self.stop.wait(wait) { Err(HubError::Stopped) } else { Ok(()) }
    }
}

/// A `Retry-After` in words: it is a number of seconds or a date.
fn spoken(wait: Option<String>) -> String {
    match wait {
        None => "a few minutes".to_owned(),
        Some(text) if text.parse::<f64>().is_ok() => format!("{text} s"),
        Some(date) => format!("some time ({})", shorten(&date)),
    }
}
