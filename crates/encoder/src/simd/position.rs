//! What position does in the attention, as tables: angles of rotation, and biases by distance.
//!
//! Layers that agree share a table. It is made when the model is loaded, for as many positions as the model has but no more
//! than [`KEPT_POSITIONS`]; a longer text takes a table of its own, which lives as long as its pass and has the same values.
//! So a configuration cannot ask for memory by a number alone. Memory: a rotation takes `4 * head_dim` bytes for each position (2 MiB for 8,192
//! positions of 64), a bias 8 for each position and head (768 KiB for 8,192 positions of 12 heads).

use simile_kernels::AlignedVec;

use crate::positions::{alibi_slopes, relative_bucket};
use crate::spec::{Rope, RopeScaling};

/// Positions of a table that is kept. A longer one is made for a pass: a sine and a cosine for each pair and position, few
/// beside the layers' work on a text of that length.
const KEPT_POSITIONS: usize = 8192;

/// Cosines and sines of a [`Rope`] for heads of one width.
pub(super) struct Rotation {
    rope: Rope,
    head_dim: usize,
    positions: usize,
    /// `[positions][2][head_dim / 2]`: cosines, then sines.
    angles: AlignedVec,
}

impl Rotation {
    /// The table for texts that take the frequencies of the training, of a model of `positions` positions.
    pub(super) fn new(rope: Rope, head_dim: usize, positions: usize) -> Self {
        let positions = match rope.scaling {
            RopeScaling::None | RopeScaling::Ntk { .. } => positions,
            RopeScaling::DynamicNtk { trained, .. } => positions.min(trained),
        };
        Self::of_length(rope, head_dim, positions.min(KEPT_POSITIONS))
    }

    /// The table for texts of exactly `length` tokens, when this one is too short or their frequencies are their own.
    pub(super) fn for_length(&self, length: usize) -> Option<Self> {
        (length > self.positions).then(|| Self::of_length(self.rope, self.head_dim, length))
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
        Rotation { rope, head_dim, positions: length, angles }
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
    rule: BiasRule,
    heads: usize,
    positions: usize,
    /// `[heads][2 * positions - 1]`, from the key furthest in front to the one furthest behind.
    values: Vec<f32>,
}

/// What a bias is made of.
#[derive(Clone)]
pub(super) enum BiasRule {
    /// `-slope * |distance|`
    Alibi,
    /// Rows of a learned table `[buckets][heads]`.
    Learned { table: Vec<f32>, max_distance: usize },
}

impl DistanceBias {
    /// The table of a model of `positions` positions.
    pub(super) fn new(rule: BiasRule, heads: usize, positions: usize) -> Self {
        Self::of_length(rule, heads, positions.min(KEPT_POSITIONS))
    }

    /// The table for texts of up to `length` tokens, when this one is too short.
    pub(super) fn for_length(&self, length: usize) -> Option<Self> {
        (length > self.positions).then(|| Self::of_length(self.rule.clone(), self.heads, length))
    }

    fn of_length(rule: BiasRule, heads: usize, positions: usize) -> Self {
        let slopes = alibi_slopes(heads);
        let bias = |head: usize, distance: isize| match &rule {
            BiasRule::Alibi => -f64::from(slopes[head]) * distance.unsigned_abs() as f64,
            BiasRule::Learned { table, max_distance } => {
                let bucket = relative_bucket(distance, table.len() / heads, *max_distance);
                f64::from(table[bucket * heads + head])
            }
        };
        let reach = positions as isize - 1;
        let values = (0..heads)
            .flat_map(|head| (-reach..=reach).map(move |distance| (head, distance)))
            .map(|(head, distance)| (bias(head, distance) * std::f64::consts::LOG2_E) as f32)
            .collect();
        DistanceBias { rule, heads, positions, values }
    }

    /// The bias of distance 0: those of other distances up to the table's longest text lie around it.
    pub(super) fn of_head(&self, head: usize) -> *const f32 {
        self.values[head * (2 * self.positions - 1) + self.positions - 1..].as_ptr()
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_beyond_the_kept_table_takes_one_with_the_same_values() {
        let (length, huge) = (KEPT_POSITIONS + 3, usize::MAX / 4);
        let rope = |scaling| Rope { theta: 10_000.0, scaling };
        for scaling in [RopeScaling::None, RopeScaling::DynamicNtk { factor: 2.0, trained: huge }] {
            let kept = Rotation::new(rope(scaling), 8, huge);
            assert!(kept.for_length(KEPT_POSITIONS).is_none(), "{scaling:?}");
            let own = kept.for_length(length).unwrap();
            assert_eq!(own.from(0)[..KEPT_POSITIONS * 8], *kept.from(0), "{scaling:?}");
            assert_eq!(own.from(length - 1).len(), 8, "{scaling:?}");
        }
        let learned = BiasRule::Learned { table: (0..64).map(|i| i as f32).collect(), max_distance: 128 };
        for (what, rule) in [("ALiBi", BiasRule::Alibi), ("learned", learned)] {
            let kept = DistanceBias::new(rule, 2, huge);
            assert!(kept.for_length(KEPT_POSITIONS).is_none(), "{what}");
            let own = kept.for_length(length).unwrap();
            for head in 0..2 {
                let all = &own.values[head * (2 * length - 1)..][..2 * length - 1];
                let known = &kept.values[head * (2 * KEPT_POSITIONS - 1)..][..2 * KEPT_POSITIONS - 1];
                assert_eq!(all[3..all.len() - 3], *known, "{what}, head {head}");
            }
        }
    }
}
