//! The sequences that one pass computes: all of a batch, or the group that a thread took.

use super::share::Span;
use crate::{EncoderInput, Rows};

/// Sequences of a batch, laid out one after the other in the pass's buffers.
pub(super) struct Sequences<'a> {
    batch: &'a EncoderInput<'a>,
    rows: Rows,
    /// All queries, for every layer but the last.
    pub all: Vec<Span>,
    /// The queries that are read, for the last layer.
    pub last: Vec<Span>,
    /// For each sequence: where its tokens are in the batch, and its first row of the output.
    places: Vec<(usize, usize)>,
}

/// Where each sequence of a batch begins: among the tokens, and among the rows of the output.
pub(super) struct Starts {
    pub tokens: Vec<usize>,
    pub outputs: Vec<usize>,
}

impl Starts {
    /// Both with one entry more than there are sequences: the ends.
    pub(super) fn new(lengths: &[usize], rows: Rows) -> Self {
        let (mut tokens, mut outputs) = (vec![0], vec![0]);
        let (mut token, mut output) = (0, 0);
        for &length in lengths {
            token += length;
            output += rows.count(length);
            tokens.push(token);
            outputs.push(output);
        }
        Starts { tokens, outputs }
    }
}

impl<'a> Sequences<'a> {
    /// The sequences `indices` of `batch`.
    pub(super) fn new(
        batch: &'a EncoderInput<'a>,
        rows: Rows,
        starts: &Starts,
        indices: impl Iterator<Item = usize>,
    ) -> Self {
        let (mut all, mut last, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let (mut start, mut first_query) = (0, 0);
        for i in indices {
            let (length, keys) = (batch.lengths[i], batch.attended(i));
            let queries = rows.count(length);
            all.push(Span { start, keys, first_query: start, queries: length, first_position: 0 });
            last.push(Span { start, keys, first_query, queries, first_position: rows.first(length) });
            places.push((starts.tokens[i], starts.outputs[i]));
            start += length;
            first_query += queries;
        }
        Sequences { batch, rows, all, last, places }
    }

    /// Rows of every layer but the last.
    pub(super) fn tokens(&self) -> usize {
        self.all.last().map_or(0, |span| span.start + span.queries)
    }

    /// Rows of the last layer.
    pub(super) fn outputs(&self) -> usize {
        self.last.last().map_or(0, |span| span.first_query + span.queries)
    }

    /// Whether the last layer goes on with some rows only.
    pub(super) fn narrows(&self) -> bool {
        self.rows != Rows::All
    }

    /// Row of the token that the last layer goes on with, for sequence `i`.
    pub(super) fn picked_row(&self, i: usize) -> usize {
        let span = &self.all[i];
        span.start + self.rows.first(span.queries)
    }

    /// Token id and token type of the token at `offset` in sequence `i`.
    pub(super) fn token(&self, i: usize, offset: usize) -> (usize, usize) {
        let at = self.first_token(i) + offset;
        let token_type = self.batch.token_type_ids.get(at).copied().unwrap_or(0);
        (self.batch.input_ids[at] as usize, token_type as usize)
    }

    /// Token ids of sequence `i`.
    pub(super) fn ids(&self, i: usize) -> &[u32] {
        &self.batch.input_ids[self.first_token(i)..][..self.length(i)]
    }

    /// Tokens of sequence `i`, attended to or not.
    pub(super) fn length(&self, i: usize) -> usize {
        self.all[i].queries
    }

    /// Where in the batch sequence `i` begins.
    pub(super) fn first_token(&self, i: usize) -> usize {
        self.places[i].0
    }

    /// First row of the output of sequence `i`.
    pub(super) fn output_row(&self, i: usize) -> usize {
        self.places[i].1
    }
}

/// The rows of `range` by sequence: `(sequence, offset of its first row in `range` within the sequence, rows)`.
pub(super) fn by_sequence(
    spans: &[Span],
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let first = spans.partition_point(|span| span.first_query + span.queries <= range.start);
    let rest = spans.iter().enumerate().skip(first);
    rest.take_while(move |(_, span)| span.first_query < range.end).map(move |(i, span)| {
        let from = range.start.saturating_sub(span.first_query);
        (i, from..(range.end - span.first_query).min(span.queries))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lengths: &[usize]) -> EncoderInput<'_> {
        const IDS: [u32; 16] = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25];
        EncoderInput { input_ids: &IDS[..lengths.iter().sum()], token_type_ids: &[], lengths, attended: &[] }
    }

    #[test]
    fn a_group_finds_its_tokens_and_its_rows_of_the_output() {
        let batch = batch(&[3, 1, 4, 2]);
        let starts = Starts::new(batch.lengths, Rows::All);
        let group = Sequences::new(&batch, Rows::All, &starts, [2, 0].into_iter());
        assert_eq!((group.tokens(), group.outputs()), (7, 7));
        assert_eq!(group.token(0, 1), (15, 0));
        assert_eq!(group.token(1, 2), (12, 0));
        assert_eq!(group.ids(1), [10, 11, 12]);
        assert_eq!((group.output_row(0), group.output_row(1)), (4, 0));
    }

    #[test]
    fn a_last_layer_goes_on_with_one_row_a_sequence() {
        let batch = batch(&[3, 1, 4]);
        for (rows, expected) in [(Rows::First, [0, 3, 4]), (Rows::Last, [2, 3, 7])] {
            let starts = Starts::new(batch.lengths, rows);
            let all = Sequences::new(&batch, rows, &starts, 0..3);
            assert!(all.narrows());
            assert_eq!([0, 1, 2].map(|i| all.picked_row(i)), expected, "{rows:?}");
            assert_eq!((all.tokens(), all.outputs()), (8, 3));
            let first_position = rows.first(4);
            assert_eq!(all.last[2], Span { start: 4, keys: 4, first_query: 2, queries: 1, first_position });
        }
    }

    #[test]
    fn rows_are_found_by_sequence() {
        let batch = batch(&[3, 1, 4]);
        let starts = Starts::new(batch.lengths, Rows::All);
        let all = Sequences::new(&batch, Rows::All, &starts, 0..3);
        let parts = |range| by_sequence(&all.all, range).collect::<Vec<_>>();
        assert_eq!(parts(0..8), [(0, 0..3), (1, 0..1), (2, 0..4)]);
        assert_eq!(parts(2..5), [(0, 2..3), (1, 0..1), (2, 0..1)]);
        assert_eq!(parts(6..7), [(2, 2..3)]);
        assert_eq!(parts(8..8), []);
    }
}
