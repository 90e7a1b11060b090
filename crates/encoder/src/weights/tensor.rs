//! One tensor of a mapped file, widened to f32 on request.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::Dtype;

use super::widen::{self, Stored};
use super::{EmbeddingTable, WeightsError};

/// A tensor of a mapped file. Its elements are in row-major order.
pub struct Tensor<'a> {
    name: String,
    path: &'a Path,
    map: &'a Arc<Mmap>,
    range: Range<usize>,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl<'a> Tensor<'a> {
    pub(super) fn new(
        name: String,
        path: &'a Path,
        map: &'a Arc<Mmap>,
        range: Range<usize>,
        dtype: Dtype,
        shape: Vec<usize>,
    ) -> Self {
        Tensor { name, path, map, range, dtype, shape }
    }

    /// Its name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its shape, outermost first; `[out, in]` for a linear layer.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The tensor itself, when it has `shape`.
    ///
    /// # Errors
    /// [`WeightsError::Shape`].
    pub fn shaped(self, shape: &[usize]) -> Result<Self, WeightsError> {
        if self.shape == shape {
            return Ok(self);
        }
        Err(WeightsError::Shape {
            path: self.path.to_path_buf(),
            tensor: self.name,
            actual: self.shape,
            expected: shape.to_vec(),
        })
    }

    /// Widens the elements from `start` on into `out`.
    ///
    /// # Errors
    /// [`WeightsError::Dtype`] when it is no float type that is read, [`WeightsError::NonFinite`] on NaN or infinity.
    ///
    /// # Panics
    /// When `start + out.len()` is over the number of elements.
    pub fn read(&self, start: usize, out: &mut [f32]) -> Result<(), WeightsError> {
        let stored = self.stored()?;
        let bytes = &self.map[self.range.clone()];
        let size = stored.bytes();
        widen::widen(stored, &bytes[start * size..(start + out.len()) * size], out);
        match widen::first_non_finite(out) {
            Some(at) => Err(self.non_finite(start + at, out[at])),
            None => Ok(()),
        }
    }

    /// All elements, widened.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn to_vec(&self) -> Result<Vec<f32>, WeightsError> {
        let mut values = vec![0.0; self.elements()];
        self.read(0, &mut values)?;
        Ok(values)
    }

    /// A table whose rows are read from the mapping when they are needed. Checks every element once.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`WeightsError::Shape`] unless the tensor is a matrix.
    pub fn into_table(self) -> Result<EmbeddingTable, WeightsError> {
        let &[rows, width] = self.shape.as_slice() else {
            let expected = vec![self.elements(), 1];
            return Err(WeightsError::Shape {
                path: self.path.to_path_buf(),
                tensor: self.name,
                actual: self.shape,
                expected,
            });
        };
        let table = EmbeddingTable::new(Arc::clone(self.map), self.range.clone(), self.stored()?, rows, width);
        if let Some((index, value)) = table.first_non_finite() {
            return Err(self.non_finite(index, value));
        }
        self.release();
        Ok(table)
    }

    /// Lets the tensor's pages go: they leave this process's memory and stay in the system's file cache. They come back
    /// when they are read again.
    pub fn release(&self) {
        #[cfg(unix)]
        {
            // SAFETY: the mapping is a shared, read-only view of a file, so dropped pages are read again from the file
            // with the same contents; nothing is ever written through it.
            let advised = unsafe {
                self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.range.start, self.range.len())
            };
            // A refusal costs memory, not correctness.
            drop(advised);
        }
    }

    fn stored(&self) -> Result<Stored, WeightsError> {
        match self.dtype {
            Dtype::F32 => Ok(Stored::F32),
            Dtype::F16 => Ok(Stored::F16),
            Dtype::BF16 => Ok(Stored::Bf16),
            other => Err(WeightsError::Dtype {
                path: self.path.to_path_buf(),
                tensor: self.name.clone(),
                actual: format!("{other:?}"),
            }),
        }
    }

    fn non_finite(&self, index: usize, value: f32) -> WeightsError {
        WeightsError::NonFinite { path: self.path.to_path_buf(), tensor: self.name.clone(), index, value }
    }
}
