//! One tensor of a file, widened to f32 while it is read.

use std::sync::Arc;

use safetensors::Dtype;

use super::source::SourceFile;
use super::widen::{self, Stored};
use super::{EmbeddingTable, WeightsError};

/// A tensor of a file. Its elements are in row-major order.
pub struct Tensor<'a> {
    name: String,
    source: &'a Arc<SourceFile>,
    /// Position of the first element in the file.
    start: u64,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl<'a> Tensor<'a> {
    pub(super) fn new(name: String, source: &'a Arc<SourceFile>, start: u64, dtype: Dtype, shape: Vec<usize>) -> Self {
        Tensor { name, source, start, dtype, shape }
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
            path: self.source.path().to_path_buf(),
            tensor: self.name,
            actual: self.shape,
            expected: shape.to_vec(),
        })
    }

    /// The tensor itself, when it is a list: of `length` elements, or of any number.
    ///
    /// # Errors
    /// [`WeightsError::NotOfForm`].
    pub fn list(self, length: Option<usize>) -> Result<Self, WeightsError> {
        match (&self.shape[..], length) {
            (&[actual], Some(length)) if actual == length => Ok(self),
            ([_], None) => Ok(self),
            (_, Some(length)) => Err(self.not_of_form(format!("a list of {length} values, [{length}]"))),
            (_, None) => Err(self.not_of_form("a list of values, [length]".to_owned())),
        }
    }

    /// Rows and width, when it is a matrix that has both.
    ///
    /// # Errors
    /// [`WeightsError::NotOfForm`].
    pub fn matrix(self) -> Result<(Self, usize, usize), WeightsError> {
        match self.shape[..] {
            [rows, width] if rows > 0 && width > 0 => Ok((self, rows, width)),
            _ => Err(self.not_of_form("a matrix [rows, width] of at least one row and one column".to_owned())),
        }
    }

    fn not_of_form(self, expected: String) -> WeightsError {
        let path = self.source.path().to_path_buf();
        WeightsError::NotOfForm { path, tensor: self.name, actual: self.shape, expected }
    }

    /// Rows `first..first + count` of it, along the outermost dimension.
    ///
    /// # Errors
    /// [`WeightsError::Dtype`] when it is no float type that is read.
    ///
    /// # Panics
    /// When it has fewer rows.
    pub fn rows(self, first: usize, count: usize) -> Result<Self, WeightsError> {
        let rows = self.shape[0];
        assert!(first + count <= rows, "rows {first}..{} of {rows}", first + count);
        let row_bytes = self.elements() / rows * self.stored()?.bytes();
        let start = self.start + (first * row_bytes) as u64;
        let mut shape = self.shape;
        shape[0] = count;
        Ok(Tensor { start, shape, ..self })
    }

    /// Its elements from the first on, read ahead.
    ///
    /// # Errors
    /// [`WeightsError::Dtype`] when it is no float type that is read.
    pub fn reader(&self) -> Result<TensorReader<'_>, WeightsError> {
        Ok(TensorReader { tensor: self, stored: self.stored()?, next: 0, buffer: Vec::new(), used: 0 })
    }

    /// Widens the first `out.len()` elements into `out`.
    ///
    /// # Errors
    /// As [`reader`](Self::reader) and [`TensorReader::read`].
    ///
    /// # Panics
    /// When `out` is longer than the tensor.
    pub fn read(&self, out: &mut [f32]) -> Result<(), WeightsError> {
        self.reader()?.read(out)
    }

    /// All elements, widened.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn to_vec(&self) -> Result<Vec<f32>, WeightsError> {
        let mut values = vec![0.0; self.elements()];
        self.read(&mut values)?;
        Ok(values)
    }

    /// All elements, those of a quantised table (I8) too.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn to_vec_or_int8(&self) -> Result<Vec<f32>, WeightsError> {
        match self.dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => self.to_vec(),
            Dtype::I8 => {
                let mut values = Vec::with_capacity(self.elements());
                self.bytes(|bytes| values.extend(bytes.iter().map(|byte| f32::from(byte.cast_signed()))))?;
                Ok(values)
            }
            _ => Err(self.dtype_error("F32, F16, BF16, I8")),
        }
    }

    /// All elements of an I64 or I32 tensor, each the number of one of `rows` rows.
    ///
    /// # Errors
    /// [`WeightsError::Dtype`], [`WeightsError::RowOutOfRange`], [`WeightsError::Changed`], [`WeightsError::Io`].
    pub fn row_numbers(&self, rows: usize) -> Result<Vec<u32>, WeightsError> {
        let mut values: Vec<i64> = Vec::with_capacity(self.elements());
        match self.dtype {
            Dtype::I64 => self.bytes(|bytes| {
                values.extend(bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)));
            })?,
            Dtype::I32 => self.bytes(|bytes| {
                values.extend(bytes.as_chunks::<4>().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))));
            })?,
            _ => return Err(self.dtype_error("I64, I32")),
        }
        let number = |(index, value): (usize, i64)| match u32::try_from(value) {
            Ok(number) if (number as usize) < rows => Ok(number),
            _ => {
                let path = self.source.path().to_path_buf();
                Err(WeightsError::RowOutOfRange { path, tensor: self.name.clone(), index, value, rows })
            }
        };
        values.into_iter().enumerate().map(number).collect()
    }

    /// Hands the stored bytes over in pieces that hold whole elements.
    fn bytes(&self, mut take: impl FnMut(&[u8])) -> Result<(), WeightsError> {
        let total = self.elements() * self.dtype.bitsize() / 8;
        let mut buffer = vec![0; total.min(BUFFER_BYTES)];
        for start in (0..total).step_by(BUFFER_BYTES) {
            let piece = &mut buffer[..(total - start).min(BUFFER_BYTES)];
            self.source.read(self.start + start as u64, piece)?;
            take(piece);
        }
        Ok(())
    }

    fn dtype_error(&self, supported: &'static str) -> WeightsError {
        let actual = format!("{:?}", self.dtype);
        WeightsError::Dtype { path: self.source.path().to_path_buf(), tensor: self.name.clone(), actual, supported }
    }

    /// A table whose rows are read from the file when they are needed. Reads and checks every element once.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`WeightsError::Shape`] unless the tensor is a matrix.
    pub fn into_table(self) -> Result<EmbeddingTable, WeightsError> {
        let &[rows, width] = self.shape.as_slice() else {
            let expected = vec![self.elements(), 1];
            return Err(WeightsError::Shape {
                path: self.source.path().to_path_buf(),
                tensor: self.name,
                actual: self.shape,
                expected,
            });
        };
        let mut reader = self.reader()?;
        let mut values = vec![0.0; self.elements().min(BUFFER_BYTES / size_of::<f32>())];
        let mut left = self.elements();
        while left > 0 {
            let count = left.min(values.len());
            reader.read(&mut values[..count])?;
            left -= count;
        }
        Ok(EmbeddingTable::new(Arc::clone(self.source), self.start, self.stored()?, rows, width))
    }

    fn stored(&self) -> Result<Stored, WeightsError> {
        match self.dtype {
            Dtype::F32 => Ok(Stored::F32),
            Dtype::F16 => Ok(Stored::F16),
            Dtype::BF16 => Ok(Stored::Bf16),
            _ => Err(self.dtype_error("F32, F16, BF16")),
        }
    }

    fn non_finite(&self, index: usize, value: f32) -> WeightsError {
        WeightsError::NonFinite { path: self.source.path().to_path_buf(), tensor: self.name.clone(), index, value }
    }
}

/// Goes through a tensor's elements in order.
///
/// The stored bytes pass through a buffer of [`BUFFER_BYTES`], so that a tensor of any size is widened in memory that
/// stays in the processor's cache, and rows of a few hundred values do not cost a system call each.
pub struct TensorReader<'a> {
    tensor: &'a Tensor<'a>,
    stored: Stored,
    /// Index of the next element to be handed out.
    next: usize,
    /// Stored bytes that were read ahead.
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were handed out.
    used: usize,
}

/// A multiple of every stored size. Smaller ones cost system calls, larger ones the second-level cache.
const BUFFER_BYTES: usize = 64 << 10;

impl TensorReader<'_> {
    /// The next `out.len()` elements, widened.
    ///
    /// # Errors
    /// [`WeightsError::NonFinite`] on NaN or infinity, [`WeightsError::Changed`], [`WeightsError::Io`].
    ///
    /// # Panics
    /// When fewer are left.
    pub fn read(&mut self, out: &mut [f32]) -> Result<(), WeightsError> {
        let size = self.stored.bytes();
        let mut rest = out;
        while !rest.is_empty() {
            if self.used == self.buffer.len() {
                self.fill(rest.len())?;
            }
            let count = rest.len().min((self.buffer.len() - self.used) / size);
            let (now, later) = rest.split_at_mut(count);
            widen::widen(self.stored, &self.buffer[self.used..][..count * size], now);
            if let Some(at) = widen::first_non_finite(now) {
                return Err(self.tensor.non_finite(self.next + at, now[at]));
            }
            (self.used, self.next, rest) = (self.used + count * size, self.next + count, later);
        }
        Ok(())
    }

    /// Reads ahead. At least one element is asked for.
    fn fill(&mut self, asked: usize) -> Result<(), WeightsError> {
        let left = self.tensor.elements() - self.next;
        assert!(asked <= left, "{asked} elements of {left}");
        let size = self.stored.bytes();
        self.buffer.resize(left.saturating_mul(size).min(BUFFER_BYTES), 0);
        self.used = 0;
        let position = self.tensor.start + self.next as u64 * size as u64;
        self.tensor.source.read(position, &mut self.buffer)
    }
}
