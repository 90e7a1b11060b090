//! Every way a call can fail, as one type with facts.
//!
//! Contract: a [`Failure`] crosses to JavaScript as it is (`code`, `message` and the facts), so a message must say
//! what was wrong and what is allowed without its facts, and a fact is only set where it is known exactly.
//! The conversions from the errors of the layers below are all in `convert.rs`.

use std::fmt;

/// The closed set of failure kinds. The first eleven are those of the service specification; `Overloaded` is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A model was needed that is not there: not loaded yet, or disposed.
    ModelNotLoaded,
    /// The loaded model is not the one that was asked for.
    WrongModelLoaded,
    /// Finding, reading or preparing the model failed.
    ModelInitialization,
    /// The model ran and gave no usable result (for example a vector that is not finite).
    InferenceFailed,
    /// The work was cancelled, or it panicked.
    TaskFailed,
    /// The request is wrong and would be wrong again.
    InvalidInput,
    /// One text is longer than what is allowed.
    TextTooLong,
    /// Vectors of different lengths met.
    DimensionMismatch,
    /// The model is of a kind that this build cannot run.
    UnsupportedModel,
    /// An invariant of ours failed: a bug.
    Internal,
    /// Vectors of different quantisation tiers met.
    TierMismatch,
    /// Too much waits: the lane is full, or the call was not begun in the time that it allows.
    Overloaded,
}

impl ErrorKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [ErrorKind; 12] = [
        ErrorKind::ModelNotLoaded,
        ErrorKind::WrongModelLoaded,
        ErrorKind::ModelInitialization,
        ErrorKind::InferenceFailed,
        ErrorKind::TaskFailed,
        ErrorKind::InvalidInput,
        ErrorKind::TextTooLong,
        ErrorKind::DimensionMismatch,
        ErrorKind::UnsupportedModel,
        ErrorKind::Internal,
        ErrorKind::TierMismatch,
        ErrorKind::Overloaded,
    ];

    /// The stable name that programs compare with.
    pub fn code(self) -> &'static str {
        match self {
            ErrorKind::ModelNotLoaded => "ModelNotLoaded",
            ErrorKind::WrongModelLoaded => "WrongModelLoaded",
            ErrorKind::ModelInitialization => "ModelInitialization",
            ErrorKind::InferenceFailed => "InferenceFailed",
            ErrorKind::TaskFailed => "TaskFailed",
            ErrorKind::InvalidInput => "InvalidInput",
            ErrorKind::TextTooLong => "TextTooLong",
            ErrorKind::DimensionMismatch => "DimensionMismatch",
            ErrorKind::UnsupportedModel => "UnsupportedModel",
            ErrorKind::Internal => "Internal",
            ErrorKind::TierMismatch => "TierMismatch",
            ErrorKind::Overloaded => "Overloaded",
        }
    }
}

/// One failed call: its kind, a sentence for people, and facts for programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// What was wrong and what is allowed.
    pub message: String,
    /// The position in the caller's array of the text that it is about.
    pub index: Option<usize>,
    /// The allowed value, in `unit`.
    pub limit: Option<f64>,
    /// The value that was met, in `unit`.
    pub actual: Option<f64>,
    /// What `limit` and `actual` count: `"tokens"`, `"bytes"`, `"dimensions"`, `"threads"`, `"ms"`.
    pub unit: Option<&'static str>,
    /// The option at fault, by its name in JavaScript, or the environment variable.
    pub option: Option<&'static str>,
    /// The model that it is about, as it was asked for.
    pub model: Option<String>,
}

impl Failure {
    /// A failure without facts.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
            index: None,
            limit: None,
            actual: None,
            unit: None,
            option: None,
            model: None,
        }
    }

    /// The failure of a call that its caller cancelled.
    pub fn cancelled() -> Failure {
        Failure::new(ErrorKind::TaskFailed, "the call was cancelled")
    }

    /// The failure of a call that met a disposed model.
    pub fn disposed() -> Failure {
        Failure::new(ErrorKind::ModelNotLoaded, "the model was disposed; load it again to use it")
    }

    /// The failure of a call that is refused because of what `waits`: with it `bytes` would be held.
    pub(crate) fn overloaded(waits: &str, bytes: usize, limit: usize) -> Failure {
        let message = format!(
            "{waits}: with this one they would hold {bytes} bytes, and {limit} are allowed; wait for results before sending \
             more, use embedStream, or send fewer at once (SIMILE_QUEUE_MB sets the limit)"
        );
        Failure::new(ErrorKind::Overloaded, message).measured(limit as f64, bytes as f64, "bytes")
    }

    /// Adds the position of the text that the failure is about, to the message too.
    pub fn at(mut self, index: usize) -> Failure {
        self.index = Some(index);
        self.message = match self.message.strip_prefix("the text ") {
            Some(rest) => format!("text {index} {rest}"),
            None => format!("text {index}: {}", self.message),
        };
        self
    }

    /// Adds what is allowed and what was met.
    pub fn measured(mut self, limit: f64, actual: f64, unit: &'static str) -> Failure {
        (self.limit, self.actual, self.unit) = (Some(limit), Some(actual), Some(unit));
        self
    }

    /// Adds the option or environment variable at fault.
    pub fn of_option(mut self, option: &'static str) -> Failure {
        self.option = Some(option);
        self
    }

    /// Adds a sentence that may help.
    pub(crate) fn hinting(mut self, hint: String) -> Failure {
        self.message = format!("{}. {hint}", self.message.trim_end_matches('.'));
        self
    }

    /// Adds the model, unless one is named already.
    pub fn of_model(mut self, model: &str) -> Failure {
        self.model.get_or_insert_with(|| model.to_owned());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.code(), self.message)
    }
}

impl std::error::Error for Failure {}
