//! A rank's part of the attention: a contiguous range of the work of all (sequence, head) pairs, cut by estimated cost.

use std::ops::Range;

use simile_kernels::Mask;

/// Where a sequence lies in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Row of its first token.
    pub start: usize,
    /// Rows that are attended to, its first ones: mostly all of its tokens.
    pub keys: usize,
    /// Row of its first query.
    pub first_query: usize,
    /// Its queries: all tokens, or one in a last layer that computes only what is read.
    pub queries: usize,
    /// Position of its first query among its tokens.
    pub first_position: usize,
}

/// Queries of one head of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Index of the sequence.
    pub span: usize,
    pub head: usize,
    /// Of the sequence's queries.
    pub queries: Range<usize>,
}

/// Work of transposing a key, in units of one query's work on it.
const TRANSPOSE: u64 = 8;
/// Queries are cut at multiples of this: full tiles of the kernels (12, 6).
const CUT: u64 = 12;

/// The units of rank `rank` of `ranks`. Together the ranks' units cover every query of every head once.
pub(super) fn units(spans: &[Span], heads: usize, mask: Mask, rank: usize, ranks: usize) -> impl Iterator<Item = Unit> {
    let total: u64 = spans.iter().map(|span| cost(span, mask) * heads as u64).sum();
    let bound = |rank: usize| (u128::from(total) * rank as u128 / ranks as u128) as u64;
    let (from, to) = (bound(rank), bound(rank + 1));
    let mut offset = 0;
    let starts: Vec<u64> = spans
        .iter()
        .map(|span| {
            let start = offset;
            offset += cost(span, mask) * heads as u64;
            start
        })
        .collect();
    spans.iter().zip(starts).enumerate().flat_map(move |(index, (span, start))| {
        let cost = cost(span, mask);
        // Heads of this sequence that the rank's range touches; none when the range is elsewhere.
        let first = from.saturating_sub(start) / cost;
        let last = to.saturating_sub(start).div_ceil(cost).min(heads as u64);
        (first..last.max(first)).filter_map(move |head| {
            let start = start + head * cost;
            let queries = cut(span, mask, from.saturating_sub(start))..cut(span, mask, to.saturating_sub(start));
            (!queries.is_empty()).then_some(Unit { span: index, head: head as usize, queries })
        })
    })
}

/// Work of one head of a sequence: pairs that see each other, and keys to transpose.
fn cost(span: &Span, mask: Mask) -> u64 {
    pairs(span, mask, span.queries) + TRANSPOSE * span.keys as u64
}

/// Pairs of its first `queries` queries and a key.
fn pairs(span: &Span, mask: Mask, queries: usize) -> u64 {
    let before = |position| mask.pairs(position, span.keys);
    before(span.first_position + queries) - before(span.first_position)
}

/// The query at which a head is cut when `work` of its cost lies before the cut: a whole number of tiles, or its end.
/// The same for the rank before the cut and the rank behind it.
fn cut(span: &Span, mask: Mask, work: u64) -> usize {
    let cost = cost(span, mask);
    if work >= cost {
        return span.queries;
    }
    let queries = span.queries as u64;
    if queries <= CUT {
        return if work * 2 < cost { 0 } else { span.queries };
    }
    // The last query before which no more than this part of the pairs lies.
    let target = (u128::from(work) * u128::from(pairs(span, mask, span.queries)) / u128::from(cost)) as u64;
    let (mut low, mut high) = (0, span.queries);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if pairs(span, mask, middle) <= target { low = middle } else { high = middle - 1 }
    }
    ((low as u64 + CUT / 2) / CUT * CUT).min(queries) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(lengths: &[usize], one_query: bool) -> Vec<Span> {
        let mut start = 0;
        lengths
            .iter()
            .enumerate()
            .map(|(i, &keys)| {
                let (first_query, queries) = if one_query { (i, 1) } else { (start, keys) };
                let first_position = if one_query { keys - 1 } else { 0 };
                let span = Span { start, keys, first_query, queries, first_position };
                start += keys;
                span
            })
            .collect()
    }

    fn masks() -> [Mask; 4] {
        let mask = |causal, window| Mask { causal, window };
        [mask(false, None), mask(true, None), mask(false, Some(5)), mask(true, Some(20))]
    }

    #[test]
    fn ranks_cover_every_query_of_every_head_once() {
        for lengths in [&[1][..], &[12], &[13], &[256], &[1, 300, 5, 17], &[512, 512]] {
            for heads in [1, 4, 12] {
                for ranks in [1, 2, 3, 4, 7, 16] {
                    for (one_query, mask) in
                        [false, true].into_iter().flat_map(|one| masks().map(move |mask| (one, mask)))
                    {
                        let spans = spans(lengths, one_query);
                        let mut seen: Vec<Vec<u32>> = spans.iter().map(|span| vec![0; span.queries * heads]).collect();
                        for rank in 0..ranks {
                            for unit in units(&spans, heads, mask, rank, ranks) {
                                for query in unit.queries {
                                    seen[unit.span][unit.head * spans[unit.span].queries + query] += 1;
                                }
                            }
                        }
                        assert!(
                            seen.iter().flatten().all(|&times| times == 1),
                            "{lengths:?}, {heads} heads, {ranks} ranks, one query: {one_query}, {mask:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn two_ranks_get_half_of_the_heads_of_one_sequence() {
        for length in [1, 12, 100, 256] {
            let spans = spans(&[length], false);
            let heads: Vec<usize> = units(&spans, 12, Mask::NONE, 1, 2).map(|unit| unit.head).collect();
            assert_eq!(heads, (6..12).collect::<Vec<_>>(), "{length} tokens");
        }
    }

    #[test]
    fn a_long_head_is_cut_at_tiles() {
        let spans = spans(&[240], false);
        let parts: Vec<_> =
            (0..4).flat_map(|rank| units(&spans, 1, Mask::NONE, rank, 4)).map(|unit| unit.queries).collect();
        assert_eq!(parts, [0..60, 60..120, 120..180, 180..240]);
    }

    /// Half of the pairs of a causal mask lie before 1 / sqrt 2 of the queries.
    #[test]
    fn a_causal_head_is_cut_where_the_work_is_halved() {
        let spans = spans(&[1200], false);
        let mask = Mask { causal: true, window: None };
        let parts: Vec<_> = (0..2).flat_map(|rank| units(&spans, 1, mask, rank, 2)).map(|unit| unit.queries).collect();
        assert_eq!(parts, [0..852, 852..1200]);
    }
}
