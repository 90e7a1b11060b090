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

    /// The keys, of `keys`, that the query at `position` sees. Queries may stand behind the last key (tokens that nobody
    /// attends to); one that would see none sees the last.
    #[inline]
    pub fn seen(self, position: usize, keys: usize) -> Range<usize> {
        let reach = self.window.unwrap_or(usize::MAX);
        let ahead = if self.causal { 0 } else { reach };
        let start = position.saturating_sub(reach).min(keys.saturating_sub(1));
        start..position.saturating_add(ahead).saturating_add(1).min(keys)
    }

    /// The keys that the queries at `positions` see together.
    #[inline]
    pub(crate) fn seen_by_any(self, positions: Range<usize>, keys: usize) -> Range<usize> {
        self.seen(positions.start, keys).start..self.seen(positions.end - 1, keys).end
    }

    /// How many pairs of a query at `0..queries` and a key, of `keys`, see each other, which is what attention costs.
    /// Queries behind the last key count as the one at it.
    pub fn pairs(self, queries: usize, keys: usize) -> u64 {
        let outside = queries.saturating_sub(keys) as u64 * self.seen(keys.saturating_sub(1), keys).len() as u64;
        let reach = self.window.unwrap_or(keys).min(keys) as u64;
        let (queries, keys) = (queries.min(keys) as u64, keys as u64);
        // At or before the query: min(i, reach) + 1 keys.
        let rising = queries.min(reach + 1);
        let before = rising * (rising + 1) / 2 + (queries - rising) * (reach + 1);
        if self.causal {
            return before + outside;
        }
        // Behind it: min(keys - 1 - i, reach) keys.
        let level = queries.min(keys - reach);
        let falling = queries - level;
        let first = keys.saturating_sub(1 + level);
        let behind = level * reach + falling * first - falling * falling.saturating_sub(1) / 2;
        before + behind + outside
    }
}
