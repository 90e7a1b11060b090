//! Pairs of texts: both tokenised for themselves, cut together, and framed as `tokenizer.json` frames pairs.

use serde::Serialize;
use tokenizers::{Encoding, Token};

use super::{Tokenizer, Tokens};
use crate::error::{LoadError, PipelineError};
use crate::options::Truncate;

/// Which of the two texts is cut when a pair is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PairTruncation {
    /// The longer one, then both, as the tokenizers library does it.
    LongestFirst,
    /// The query to three quarters of the limit, then the text to what is left: FlagEmbedding's rule for BGE rerankers.
    QueryShare,
}

/// What the post-processor puts around a pair: ids, and the token types of all five parts.
#[derive(Debug)]
pub(crate) struct PairFrame {
    before: Vec<u32>,
    middle: Vec<u32>,
    after: Vec<u32>,
    types: [Vec<u32>; 3],
    query_type: u32,
    text_type: u32,
}

impl PairFrame {
    /// Tokens that are added to each pair.
    pub(crate) fn special_tokens(&self) -> usize {
        self.before.len() + self.middle.len() + self.after.len()
    }

    /// How many tokens of a query of `query` and of a text of `text` tokens are kept, of `room` in all.
    fn share(truncation: PairTruncation, query: usize, text: usize, room: usize, limit: usize) -> (usize, usize) {
        match truncation {
            _ if query + text <= room => (query, text),
            PairTruncation::QueryShare => {
                let query = query.min(limit * 3 / 4).min(room);
                (query, text.min(room - query))
            }
            PairTruncation::LongestFirst => {
                let (short, long) = (query.min(text), query.max(text));
                // The shorter one stays whole where the longer one can give all; else each gets half.
                let (short, long) = match room.saturating_sub(short) {
                    left if left >= short => (short, long.min(left)),
                    _ => (room / 2, room - room / 2),
                };
                if query <= text { (short, long) } else { (long, short) }
            }
        }
    }
}

impl Tokenizer {
    /// What the post-processor puts around a pair: seen by giving it ids that no vocabulary has.
    ///
    /// # Errors
    /// [`LoadError::Tokenizer`] when it does not keep both texts in one piece and in their order.
    pub(crate) fn pair_frame(&self) -> Result<PairFrame, LoadError> {
        const PROBE: [u32; 2] = [u32::MAX - 1, u32::MAX];
        let one = |id| Encoding::from_tokens(vec![Token::new(id, String::new(), (0, 0))], 0);
        let refuse = |message: String| LoadError::Tokenizer { folder: self.folder.clone(), message };
        let framed = self
            .inner
            .post_process(one(PROBE[0]), Some(one(PROBE[1])), true)
            .map_err(|error| refuse(error.to_string()))?;
        let (ids, types) = (framed.get_ids(), framed.get_type_ids());
        let place = |probe| {
            let mut found = (0..ids.len()).filter(|&at| ids[at] == probe);
            found.next().filter(|_| found.next().is_none())
        };
        let (Some(query), Some(text)) = (place(PROBE[0]), place(PROBE[1])) else {
            return Err(refuse("its post-processor does not keep each text of a pair once".to_owned()));
        };
        if query > text {
            return Err(refuse("its post-processor puts the second text of a pair first".to_owned()));
        }
        let parts = [0..query, query + 1..text, text + 1..ids.len()];
        let [before, middle, after] = parts.clone().map(|part| ids[part].to_vec());
        let types_of = parts.map(|part| types[part].to_vec());
        Ok(PairFrame { before, middle, after, types: types_of, query_type: types[query], text_type: types[text] })
    }

    /// Tokenises the second text of a pair and cuts both to `max_length` tokens, special tokens included. `go_on` is asked
    /// between the slices of a long text; `None` when it says no.
    ///
    /// # Errors
    /// [`PipelineError::TextTooLong`] under [`Truncate::Error`], and those of the tokenizer.
    pub(crate) fn pair(
        &self,
        frame: &PairFrame,
        query: &[u32],
        text: &str,
        (max_length, truncate, truncation): (usize, Truncate, PairTruncation),
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Tokens>, PipelineError> {
        let Some(text) = self.raw(text, false, go_on)? else { return Ok(None) };
        let total = query.len() + text.ids.len() + frame.special_tokens();
        if total > max_length && truncate == Truncate::Error {
            return Err(PipelineError::TextTooLong { limit: max_length, actual: total });
        }
        let room = max_length.saturating_sub(frame.special_tokens());
        let (of_query, of_text) = PairFrame::share(truncation, query.len(), text.ids.len(), room, max_length);
        let mut ids = Vec::with_capacity(of_query + of_text + frame.special_tokens());
        let mut types = Vec::with_capacity(ids.capacity());
        let [before, middle, after] = &frame.types;
        for (part, types_of, count, of) in [
            (&frame.before[..], Some(before), frame.before.len(), 0),
            (&query[..of_query], None, of_query, frame.query_type),
            (&frame.middle[..], Some(middle), frame.middle.len(), 0),
            (&text.ids[..of_text], None, of_text, frame.text_type),
            (&frame.after[..], Some(after), frame.after.len(), 0),
        ] {
            ids.extend_from_slice(part);
            match types_of {
                Some(of_part) => types.extend_from_slice(of_part),
                None => types.resize(types.len() + count, of),
            }
        }
        Ok(Some(Tokens { ids, types, total, ..Tokens::default() }))
    }

    /// Tokens of a text without frame, template or limit. `None` when `go_on` says no.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub(crate) fn bare(&self, text: &str, go_on: &dyn Fn() -> bool) -> Result<Option<Vec<u32>>, PipelineError> {
        Ok(self.raw(text, false, go_on)?.map(|raw| raw.ids))
    }

    /// Ids that are put before and after a single text.
    pub(crate) fn frame(&self) -> (&[u32], &[u32]) {
        (&self.before, &self.after)
    }

    /// The token of an id; `None` for a special one.
    pub(crate) fn word_piece(&self, id: u32) -> Option<String> {
        let special = self.inner.get_added_tokens_decoder().get(&id).is_some_and(|token| token.special);
        if special { None } else { self.inner.id_to_token(id) }
    }

    /// The id of a token, if the vocabulary or the added tokens have it.
    pub(crate) fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_pair_that_is_too_long() {
        use PairTruncation::{LongestFirst, QueryShare};
        // (rule, tokens of query and text, room, limit) -> kept. The first six as tokenizers 0.23 cuts them.
        let cases = [
            ((LongestFirst, 4, 5, 9, 12), (4, 5)),
            ((LongestFirst, 4, 50, 9, 12), (4, 5)),
            ((LongestFirst, 50, 4, 9, 12), (5, 4)),
            ((LongestFirst, 50, 50, 9, 12), (4, 5)),
            ((LongestFirst, 51, 50, 9, 12), (5, 4)),
            ((LongestFirst, 5, 50, 9, 12), (4, 5)),
            ((LongestFirst, 3, 3, 0, 3), (0, 0)),
            ((QueryShare, 4, 5, 9, 12), (4, 5)),
            ((QueryShare, 4, 50, 9, 12), (4, 5)),
            ((QueryShare, 50, 50, 12, 12), (9, 3)),
            ((QueryShare, 50, 2, 12, 12), (9, 2)),
            ((QueryShare, 50, 50, 5, 12), (5, 0)),
        ];
        let wrong: Vec<_> = cases
            .into_iter()
            .filter(|((rule, query, text, room, limit), kept)| {
                PairFrame::share(*rule, *query, *text, *room, *limit) != *kept
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
