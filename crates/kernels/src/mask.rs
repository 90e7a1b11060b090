//! Which keys a query of an attention sees.

use std::ops::Range;

/// A rule by positions: of every query the keys that it sees are one range, never empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// A query at position i sees no key behind i.
    pub causal: bool,
    /// A query at position i sees only keys with |i - j| <= this.
    pub window: Option<usize>,
}

impl Mask {
    /// Every query sees every key.
    pub const NONE: Mask = Mask { causal: false, window: None };

    /// The keys, of `keys`, that the query at `position` sees.
    #[inline]
    pub fn seen(self, position: usize, keys: usize) -> Range<usize> {
        let reach = self.window.unwrap_or(keys);
        let ahead = if self.causal { 0 } else { reach };
        position.saturating_sub(reach)..position.saturating_add(ahead).saturating_add(1).min(keys)
    }

    /// The keys that the queries at `positions` see together.
    #[inline]
    pub(crate) fn seen_by_any(self, positions: Range<usize>, keys: usize) -> Range<usize> {
        self.seen(positions.start, keys).start..self.seen(positions.end - 1, keys).end
    }

    /// How many pairs of a query at `0..queries` and a key, of `keys`, see each other: what attention costs.
    pub fn pairs(self, queries: usize, keys: usize) -> u64 {
        // Queries before `full` see as many keys as position and window allow; those behind it lose some at the end.
        let reach = self.window.unwrap_or(keys).min(keys) as u64;
        let (queries, keys) = (queries as u64, keys as u64);
        // Behind or at the query: min(i, reach) + 1 each.
        let rising = queries.min(reach + 1);
        let behind = rising * (rising + 1) / 2 + (queries - rising) * (reach + 1);
        if self.causal {
            return behind;
        }
        // In front of it: min(keys - 1 - i, reach) each.
        let level = queries.min(keys.saturating_sub(reach));
        let falling = queries - level;
        let first = keys - 1 - level.min(keys - 1);
        behind + level * reach + falling * first - falling * falling.saturating_sub(1) / 2
    }
}
