//! The formulas by which position enters: rotary frequencies, ALiBi slopes, relative buckets, RoBERTa's positions. Both
//! executors take them from here; what they are worth is tested against tables of other implementations.

use crate::spec::{Positions, Rope, RopeScaling};

impl Rope {
    /// The `head_dim / 2` frequencies for a text of `length` tokens: token p is rotated by the angle `p * frequency`, which
    /// the reference takes in f32.
    pub fn frequencies(&self, head_dim: usize, length: usize) -> Vec<f32> {
        let dim = head_dim as f64;
        let (theta, divisor) = match self.scaling {
            RopeScaling::None => (self.theta, 1.0),
            RopeScaling::Ntk { factor } => (self.theta * factor, factor.powf(2.0 / dim)),
            RopeScaling::DynamicNtk { factor, trained } if length > trained => {
                let stretch = factor * length as f64 / trained as f64 - (factor - 1.0);
                (self.theta * stretch.powf(dim / (dim - 2.0)), 1.0)
            }
            RopeScaling::DynamicNtk { .. } => (self.theta, 1.0),
        };
        (0..head_dim / 2).map(|i| (theta.powf(-2.0 * i as f64 / dim) / divisor) as f32).collect()
    }

    /// Whether the frequencies depend on the text's length.
    pub fn depends_on_length(&self) -> bool {
        matches!(self.scaling, RopeScaling::DynamicNtk { .. })
    }
}

/// ALiBi's slopes of `heads` heads: `2^(-8 (i + 1) / n)` for a power of two n; else those of the next lower power of two,
/// then every second one of the next higher (Press et al. 2021, reference implementation).
pub fn alibi_slopes(heads: usize) -> Vec<f32> {
    let of_power = |n: usize| (0..n).map(move |i| 2f64.powf(-8.0 * (i + 1) as f64 / n as f64));
    let lower = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    let rest = of_power(2 * lower).step_by(2).take(heads - lower);
    of_power(lower).chain(rest).map(|slope| slope as f32).collect()
}

/// The bucket of a key `distance` = key position - query position away (T5's bidirectional rule, as MPNet uses it): half of
/// the buckets for each side, half of a side's exact, the others logarithmic up to `max_distance`.
pub fn relative_bucket(distance: isize, buckets: usize, max_distance: usize) -> usize {
    let half = buckets / 2;
    let side = if distance > 0 { half } else { 0 };
    let (away, exact) = (distance.unsigned_abs(), half / 2);
    if away < exact {
        return side + away;
    }
    // In f32, as the reference.
    let ratio = (away as f32 / exact as f32).ln() / (max_distance as f64 / exact as f64).ln() as f32;
    side + (exact + (ratio * (half - exact) as f32) as usize).min(half - 1)
}

impl Positions {
    /// The row of the position table that each token of one sequence reads; nothing when there is no table.
    pub fn rows(self, ids: &[u32]) -> impl Iterator<Item = usize> {
        let mut seen = 0;
        ids.iter().enumerate().map_while(move |(i, &id)| match self {
            Positions::None => None,
            Positions::Absolute { .. } => Some(i),
            Positions::NonPad { pad, .. } if id == pad => Some(pad as usize),
            Positions::NonPad { pad, .. } => {
                seen += 1;
                Some(pad as usize + seen)
            }
        })
    }

    /// Rows of the table, when there is one.
    pub fn table(self) -> Option<usize> {
        match self {
            Positions::None => None,
            Positions::Absolute { table } | Positions::NonPad { table, .. } => Some(table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_eight_and_six_heads() {
        assert_eq!(alibi_slopes(8)[..3], [0.5, 0.25, 0.125]);
        let six: Vec<f64> = alibi_slopes(6).into_iter().map(f64::from).collect();
        let expected = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125];
        assert_eq!(six, expected);
    }

    #[test]
    fn padding_in_a_text_takes_no_position() {
        let rows = |positions: Positions| positions.rows(&[0, 7, 1, 9, 2]).collect::<Vec<_>>();
        assert_eq!(rows(Positions::NonPad { table: 66, pad: 1 }), [2, 3, 1, 4, 5]);
        assert_eq!(rows(Positions::Absolute { table: 64 }), [0, 1, 2, 3, 4]);
        assert!(rows(Positions::None).is_empty());
    }
}
