//! Failures as values.

use napi_derive::napi;
use simile_engine::Failure;

/// An error as a value: `code` is one of the twelve kinds, the other fields are there when they are known.
#[napi(object, object_from_js = false)]
pub struct NativeFailure {
    /// The kind.
    pub code: String,
    /// What was wrong and what is allowed.
    pub message: String,
    /// Position in the call of the text that it is about.
    pub index: Option<u32>,
    /// What is allowed, in `unit`.
    pub limit: Option<f64>,
    /// What was met, in `unit`.
    pub actual: Option<f64>,
    /// What `limit` and `actual` count.
    pub unit: Option<String>,
    /// The option or environment variable at fault.
    pub option: Option<String>,
    /// The model, as it was asked for.
    pub model: Option<String>,
}

impl From<Failure> for NativeFailure {
    fn from(failure: Failure) -> Self {
        NativeFailure {
            code: failure.kind.code().to_owned(),
            message: failure.message,
            index: failure.index.and_then(|index| u32::try_from(index).ok()),
            limit: failure.limit,
            actual: failure.actual,
            unit: failure.unit.map(str::to_owned),
            option: failure.option.map(str::to_owned),
            model: failure.model,
        }
    }
}
