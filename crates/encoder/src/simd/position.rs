//! What position does in the attention, as tables: angles of rotation, and biases by distance.
//!
//! Layers that agree share a table. Memory: a rotation takes `4 * head_dim` bytes for each position (2 MiB for 8,192
//! positions of 64), a bias 8 for each position and head (768 KiB for 8,192 positions of 12 heads).

use simile_kernels::AlignedVec;

use crate::positions::{alibi_slopes, relative_bucket};
use crate::spec::{Rope, RopeScaling};

/// Cosines and sines of a [`Rope`] for heads of one width.
pub(super) struct Rotation {
    rope: Rope,
    head_dim: usize,
    /// `[positions][2][head_dim / 2]`: cosines, then sines.
    angles: AlignedVec,
}

impl Rotation {
    /// The table for texts that take the frequencies of the training, of at most `positions` tokens.
    pub(super) fn new(rope: Rope, head_dim: usize, positions: usize) -> Self {
        let positions = match rope.scaling {
            RopeScaling::None | RopeScaling::Ntk { .. } => positions,
            RopeScaling::DynamicNtk { trained, .. } => positions.min(trained),
        };
        Self::of_length(rope, head_dim, positions)
    }

    /// The table for texts of exactly `length` tokens, when their frequencies are their own.
    pub(super) fn for_length(&self, length: usize) -> Option<Self> {
        match self.rope.scaling {
            RopeScaling::None | RopeScaling::Ntk { .. } => None,
            RopeScaling::DynamicNtk { trained, .. } if length <= trained => None,
            RopeScaling::DynamicNtk { .. } => Some(Self::of_length(self.rope, self.head_dim, length)),
        }
    }

    fn of_length(rope: Rope, head_dim: usize, length: usize) -> Self {
        let frequencies = rope.frequencies(head_dim, length);
        let half = frequencies.len();
        let mut angles = AlignedVec::zeroed(length * 2 * half);
        if half > 0 {
            for (position, row) in angles.chunks_exact_mut(2 * half).enumerate() {
                let (cos, sin) = row.split_at_mut(half);
                for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&frequencies) {
                    // The angle as the reference has it; its functions to the last bit.
                    let angle = f64::from(position as f32 * frequency);
                    (*cos, *sin) = (angle.cos() as f32, angle.sin() as f32);
                }
            }
        }
        Rotation { rope, head_dim, angles }
    }

    /// Whether it is the table of `rope` for heads of `head_dim`.
    pub(super) fn is(&self, rope: Rope, head_dim: usize) -> bool {
        (self.rope, self.head_dim) == (rope, head_dim)
    }

    /// Pairs that are turned.
    pub(super) fn half(&self) -> usize {
        self.head_dim / 2
    }

    /// Angles from `position` on, a row of `2 * half` for each.
    pub(super) fn from(&self, position: usize) -> &[f32] {
        &self.angles[position * 2 * self.half()..]
    }

    pub(super) fn bytes(&self) -> usize {
        self.angles.bytes()
    }
}

/// What is added to the scores by distance: ALiBi, or a learned table. Times log2(e), as the scores are.
pub(super) struct DistanceBias {
    positions: usize,
    /// `[heads][2 * positions - 1]`, from the key furthest in front to the one furthest behind.
    values: Vec<f32>,
}

impl DistanceBias {
    /// `-slope * |distance|`
    pub(super) fn alibi(heads: usize, positions: usize) -> Self {
        let slopes = alibi_slopes(heads);
        Self::new(heads, positions, |head, distance| -f64::from(slopes[head]) * distance.unsigned_abs() as f64)
    }

    /// Rows of a learned table `[buckets][heads]`.
    pub(super) fn learned(table: &[f32], heads: usize, max_distance: usize, positions: usize) -> Self {
        let buckets = table.len() / heads;
        Self::new(heads, positions, |head, distance| {
            f64::from(table[relative_bucket(distance, buckets, max_distance) * heads + head])
        })
    }

    fn new(heads: usize, positions: usize, bias: impl Fn(usize, isize) -> f64) -> Self {
        let reach = positions as isize - 1;
        let values = (0..heads)
            .flat_map(|head| (-reach..=reach).map(move |distance| (head, distance)))
            .map(|(head, distance)| (bias(head, distance) * std::f64::consts::LOG2_E) as f32)
            .collect();
        DistanceBias { positions, values }
    }

    /// The bias of distance 0: those of other distances up to the model's longest text lie around it.
    pub(super) fn of_head(&self, head: usize) -> *const f32 {
        self.values[head * (2 * self.positions - 1) + self.positions - 1..].as_ptr()
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<f32>()
    }
}
