//! Embedding tables that stay in the file: a row is read when a token needs it.
//!
//! Why: a vocabulary of 250,000 words would cost 400 MB, and a batch reads a few hundred rows. A row of 384 values takes
//! 0.8 µs where it would take 0.13 µs in memory: half a percent of all-MiniLM-L6-v2's time.

use std::sync::Arc;

use super::WeightsError;
use super::source::SourceFile;
use super::widen::{self, Stored};
use crate::EncodeError;

/// A matrix of `rows` x `width` in a file, stored in any float type that is read.
pub struct EmbeddingTable {
    source: Arc<SourceFile>,
    start: u64,
    stored: Stored,
    rows: usize,
    width: usize,
}

/// Where rows are read to; one for each thread, so that nothing is allocated for a token.
#[derive(Default)]
pub struct RowBuffer {
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl RowBuffer {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes.capacity() + self.values.capacity() * size_of::<f32>()
    }
}

impl EmbeddingTable {
    pub(super) fn new(source: Arc<SourceFile>, start: u64, stored: Stored, rows: usize, width: usize) -> Self {
        EmbeddingTable { source, start, stored, rows, width }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `index`, widened. It is what was loaded only if [`check`](Self::check) says so afterwards.
    ///
    /// # Errors
    /// [`EncodeError::WeightsChanged`] when the file has become too short, [`EncodeError::WeightsUnreadable`].
    ///
    /// # Panics
    /// When `index` is not below [`rows`](Self::rows).
    pub fn row<'a>(&self, index: usize, buffer: &'a mut RowBuffer) -> Result<&'a [f32], EncodeError> {
        assert!(index < self.rows, "row {index} of a table of {}", self.rows);
        let size = self.width * self.stored.bytes();
        buffer.bytes.resize(size, 0);
        buffer.values.resize(self.width, 0.0);
        self.source.read(self.start + index as u64 * size as u64, &mut buffer.bytes).map_err(unreadable)?;
        widen::widen(self.stored, &buffer.bytes, &mut buffer.values);
        Ok(&buffer.values)
    }

    /// Whether the file is still the one that was loaded, so that the rows that were read are the model's.
    ///
    /// # Errors
    /// [`EncodeError::WeightsChanged`], [`EncodeError::WeightsUnreadable`].
    pub fn check(&self) -> Result<(), EncodeError> {
        self.source.check().map_err(unreadable)
    }
}

fn unreadable(error: WeightsError) -> EncodeError {
    match error {
        WeightsError::Changed { path } => EncodeError::WeightsChanged { path },
        other => EncodeError::WeightsUnreadable { reason: other.to_string() },
    }
}
