//! What a micro-batch became: a row for each text, of one width or each of its own.
//!
//! A dense vector and a score are rows of one width; a sparse vector is a row of values with their indices; a text's token
//! vectors stand one after the other in its row. The memory is kept from batch to batch.

/// Rows of a micro-batch, in its order.
#[derive(Debug, Default)]
pub struct Outputs {
    values: Vec<f32>,
    /// Parallel to `values`, or empty when no row has indices.
    indices: Vec<u32>,
    /// Where each row ends in `values`.
    ends: Vec<usize>,
}

impl Outputs {
    /// Takes all rows out.
    pub fn clear(&mut self) {
        self.values.clear();
        self.indices.clear();
        self.ends.clear();
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Makes it `count` rows of `width` values, to be written to.
    pub fn fixed(&mut self, count: usize, width: usize) -> Vec<&mut [f32]> {
        self.indices.clear();
        self.ends.clear();
        self.ends.extend((1..=count).map(|row| row * width));
        self.values.resize(count * width, 0.0);
        // Rows of no values are no chunks.
        self.values.chunks_exact_mut(width.max(1)).take(count).collect()
    }

    /// Appends a row without indices.
    pub fn push(&mut self, values: &[f32]) {
        self.values.extend_from_slice(values);
        self.ends.push(self.values.len());
    }

    /// Appends a row of values at indices.
    pub fn push_sparse(&mut self, entries: impl IntoIterator<Item = (u32, f32)>) {
        for (index, value) in entries {
            self.indices.push(index);
            self.values.push(value);
        }
        self.ends.push(self.values.len());
    }

    /// Values and indices of row `row`.
    pub fn row(&self, row: usize) -> (&[f32], &[u32]) {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        let range = start..self.ends[row];
        (&self.values[range.clone()], self.indices.get(range).unwrap_or_default())
    }

    /// The row's first value that is not a finite number.
    pub fn non_finite(&self, row: usize) -> Option<usize> {
        self.row(row).0.iter().position(|value| !value.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_went_in() {
        let mut outputs = Outputs::default();
        for row in outputs.fixed(2, 3) {
            row.fill(7.0);
        }
        assert_eq!((outputs.len(), outputs.row(1)), (2, (&[7.0; 3][..], &[][..])));
        outputs.clear();
        outputs.push_sparse([(3, 1.0), (9, 2.0)]);
        outputs.push_sparse([]);
        outputs.push_sparse([(4, f32::NAN)]);
        assert_eq!(outputs.row(0), (&[1.0, 2.0][..], &[3, 9][..]));
        assert_eq!(outputs.row(1), (&[][..], &[][..]));
        assert_eq!((outputs.row(2).1, outputs.non_finite(2), outputs.non_finite(0)), (&[4][..], Some(0), None));
        assert!(outputs.fixed(0, 3).is_empty() && outputs.is_empty());
    }
}
