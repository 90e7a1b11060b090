//! Vectors and counts on their way out.

use std::cell::RefCell;
use std::fmt::Display;

use napi::bindgen_prelude::{Float32ArraySlice, Uint32ArraySlice};
use napi::{Env, Error, Result, Status};
use napi_derive::napi;
use simile_engine::{Chunk, EmbedOutput, TokenCounts};

/// The vectors of one call. They are kept outside of V8's heap until the last row is taken.
#[napi]
pub struct NativeResult {
    data: RefCell<Vec<f32>>,
    /// Indices of sparse values, parallel to `data`.
    indices: RefCell<Vec<u32>>,
    dimensions: usize,
    /// Where each row ends; empty when all have `dimensions` values.
    ends: Vec<usize>,
    tokens: TokenCounts,
    contract_id: String,
}

impl From<EmbedOutput> for NativeResult {
    fn from(output: EmbedOutput) -> Self {
        let EmbedOutput { data, dimensions, ends, indices, tokens, contract_id } = output;
        let (data, indices) = (RefCell::new(data), RefCell::new(indices));
        NativeResult { data, indices, dimensions, ends, tokens, contract_id }
    }
}

#[napi]
impl NativeResult {
    /// Length of a vector; 0 when rows have lengths of their own.
    #[napi(getter)]
    pub fn dimensions(&self) -> u32 {
        self.dimensions as u32
    }

    /// Tokens of each text before truncation.
    #[napi(getter, catch_unwind, ts_return_type = "Uint32Array")]
    pub fn tokens_total<'env>(&self, env: &'env Env) -> Result<Uint32ArraySlice<'env>> {
        Uint32ArraySlice::copy_from(env, &self.tokens.total)
    }

    /// Tokens of each text that the model saw.
    #[napi(getter, catch_unwind, ts_return_type = "Uint32Array")]
    pub fn tokens_embedded<'env>(&self, env: &'env Env) -> Result<Uint32ArraySlice<'env>> {
        Uint32ArraySlice::copy_from(env, &self.tokens.embedded)
    }

    /// What the vectors may be compared with.
    #[napi(getter)]
    pub fn contract_id(&self) -> &str {
        &self.contract_id
    }

    /// Rows `from` up to, not including, `to`, each in memory of its own. With the last row the memory of all is let go:
    /// rows are taken once, from the first to the last.
    #[napi(catch_unwind, ts_return_type = "Float32Array[]")]
    pub fn rows<'env>(&self, env: &'env Env, from: u32, to: u32) -> Result<Vec<Float32ArraySlice<'env>>> {
        self.take(from, to, |values| {
            let first = self.end(from);
            (from..to)
                .map(|row| Float32ArraySlice::copy_from(env, &values[self.end(row) - first..self.end(row + 1) - first]))
                .collect()
        })
    }

    /// Indices of the values of sparse rows `from` up to, not including, `to`, each in memory of its own. Taken before the
    /// rows, which let the memory go.
    #[napi(catch_unwind, ts_return_type = "Uint32Array[]")]
    pub fn indices<'env>(&self, env: &'env Env, from: u32, to: u32) -> Result<Vec<Uint32ArraySlice<'env>>> {
        let indices = self.indices.borrow();
        (from..to)
            .map(|row| {
                let range = self.end(row)..self.end(row + 1);
                let row = indices.get(range).ok_or_else(|| missing(from, to, indices.len()))?;
                Uint32ArraySlice::copy_from(env, row)
            })
            .collect()
    }

    /// Where each row ends, in values from the first row on; empty when all have `dimensions` values.
    #[napi(getter, catch_unwind, ts_return_type = "Uint32Array")]
    pub fn ends<'env>(&self, env: &'env Env) -> Result<Uint32ArraySlice<'env>> {
        let ends: std::result::Result<Vec<u32>, _> = self.ends.iter().map(|&end| u32::try_from(end)).collect();
        let ends = ends.map_err(|_| {
            let count = self.ends.last().copied().unwrap_or_default();
            Error::new(Status::GenericFailure, format!("the {count} values of one call are more than {}", u32::MAX))
        })?;
        Uint32ArraySlice::copy_from(env, ends)
    }

    /// Rows `from` up to, not including, `to`, one after the other in one piece of memory. With the last row the memory
    /// of all is let go, as by `rows`.
    #[napi(catch_unwind, ts_return_type = "Float32Array")]
    pub fn values<'env>(&self, env: &'env Env, from: u32, to: u32) -> Result<Float32ArraySlice<'env>> {
        self.take(from, to, |values| Float32ArraySlice::copy_from(env, values))
    }

    /// Lets go of all rows at once, for a caller that does not want them any more and cannot wait for the garbage
    /// collector. Taking rows afterwards is an error.
    #[napi(catch_unwind)]
    pub fn release(&self) {
        self.data.take();
        self.indices.take();
    }
}

impl NativeResult {
    /// What `copy` makes of the values of rows `from` up to `to`.
    fn take<T>(&self, from: u32, to: u32, copy: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
        let mut data = self.data.borrow_mut();
        let last = if self.ends.is_empty() { self.end(to) == data.len() } else { to as usize == self.ends.len() };
        let (from, to) = (self.end(from), self.end(to));
        let values = data.get(from..to).ok_or_else(|| missing(from, to, data.len()))?;
        let taken = copy(values);
        if last {
            *data = Vec::new();
            self.indices.take();
        }
        taken
    }

    /// Where the row before `row` ends. Rows that are not there end behind all values.
    fn end(&self, row: u32) -> usize {
        let row = row as usize;
        match row {
            0 => 0,
            _ if self.ends.is_empty() => row * self.dimensions,
            _ => self.ends.get(row - 1).copied().unwrap_or(usize::MAX),
        }
    }
}

fn missing(from: impl Display, to: impl Display, count: usize) -> Error {
    Error::new(Status::InvalidArg, format!("values {from} to {to} of {count} are not there"))
}

/// Token counts of one call.
#[napi(object, object_from_js = false)]
pub struct NativeTokenCounts {
    /// Before truncation.
    #[napi(ts_type = "Uint32Array")]
    pub total: Uint32Column,
    /// After truncation.
    #[napi(ts_type = "Uint32Array")]
    pub embedded: Uint32Column,
}

impl From<TokenCounts> for NativeTokenCounts {
    fn from(counts: TokenCounts) -> Self {
        NativeTokenCounts { total: Uint32Column(counts.total), embedded: Uint32Column(counts.embedded) }
    }
}

/// The chunks of a text, a column for each of their fields.
#[napi(object, object_from_js = false)]
pub struct NativeChunks {
    /// UTF-16 units before each.
    #[napi(ts_type = "Uint32Array")]
    pub start: Uint32Column,
    /// UTF-16 units before the end of each.
    #[napi(ts_type = "Uint32Array")]
    pub end: Uint32Column,
    /// Tokens of each, template and special tokens counted.
    #[napi(ts_type = "Uint32Array")]
    pub tokens: Uint32Column,
}

impl From<Vec<Chunk>> for NativeChunks {
    fn from(chunks: Vec<Chunk>) -> Self {
        // A string of JavaScript has less than 2^30 units.
        let column = |of: fn(&Chunk) -> usize| Uint32Column(chunks.iter().map(|chunk| of(chunk) as u32).collect());
        NativeChunks {
            start: column(|chunk| chunk.start),
            end: column(|chunk| chunk.end),
            tokens: column(|chunk| chunk.tokens),
        }
    }
}

/// Numbers that become a `Uint32Array` in memory of V8's own when they cross.
pub struct Uint32Column(Vec<u32>);

impl napi::bindgen_prelude::ToNapiValue for Uint32Column {
    unsafe fn to_napi_value(env: napi::sys::napi_env, column: Self) -> Result<napi::sys::napi_value> {
        let array = Uint32ArraySlice::copy_from(&Env::from_raw(env), column.0)?;
        // SAFETY: `env` is the environment that napi calls this with, on its thread.
        unsafe { napi::bindgen_prelude::ToNapiValue::to_napi_value(env, array) }
    }
}
