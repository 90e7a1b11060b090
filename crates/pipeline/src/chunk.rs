//! A long text in pieces that the model embeds whole.
//!
//! The text is tokenised once to see where its tokens begin. Then chunks are filled greedily with the largest parts that
//! fit: runs between white space; a run that is longer than a chunk is taken apart into words, such a word into graphemes,
//! such a grapheme into characters (words and graphemes by UAX #29). Each chunk is then tokenised for itself, in its
//! prompt, because a tokenizer may see other neighbours there; one that came out too long gives up its last parts.
//!
//! Invariants: a chunk has at most as many tokens as were asked for, prompt and special tokens counted; chunks come in
//! order, each ends behind the one before, and all but white space is in one of them; no chunk begins or ends with white
//! space or within a character. Cost: the text is tokenised twice, so about 1 s for each megabyte;
//! 8 bytes of memory for each of its tokens and 24 for each part.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::error::PipelineError;

/// Part of a text, in UTF-16 units as JavaScript counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Its tokens when it is embedded, prompt and special tokens included.
    pub tokens: usize,
}

/// How a text is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkRequest {
    /// The most tokens of a chunk, prompt and special tokens included; `None` is the model's limit.
    pub max_tokens: Option<usize>,
    /// The most tokens of the text that two neighbours share. Whole parts are shared, so it may be fewer.
    pub overlap: usize,
}

/// What is needed to cut one text.
pub(crate) struct Chunker<'a> {
    pub(crate) text: &'a str,
    /// The byte where each token of the text begins, in order.
    pub(crate) starts: &'a [usize],
    /// The most tokens of a chunk.
    pub(crate) max_tokens: usize,
    /// The tokens of these that are left for the text.
    pub(crate) room: usize,
    pub(crate) overlap: usize,
    /// Tokens of a part of the text when it is embedded.
    pub(crate) count: &'a dyn Fn(&str) -> Result<usize, PipelineError>,
    /// Whether to go on; asked before each chunk, and every few thousand parts before the first.
    pub(crate) go_on: &'a dyn Fn() -> bool,
}

/// A part of the text that is not taken apart further unless it must be.
#[derive(Clone)]
struct Part {
    range: Range<usize>,
    level: Level,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Run,
    Word,
    Grapheme,
    Character,
}

impl Chunker<'_> {
    /// The chunks; `None` when it was told to stop.
    ///
    /// # Errors
    /// [`PipelineError::ChunkTooSmall`] when a single character does not fit, and those of the tokenizer.
    pub(crate) fn run(&self) -> Result<Option<Vec<Chunk>>, PipelineError> {
        let mut parts = Vec::new();
        for range in runs(self.text) {
            if !self.fitting(Part { range, level: Level::Run }, &mut parts) {
                return Ok(None);
            }
        }
        let mut chunks: Vec<(Range<usize>, usize)> = Vec::new();
        // Parts `first..` go into the next chunk; those before `done` are in one already.
        let (mut first, mut done) = (0, 0);
        while done < parts.len() {
            if !(self.go_on)() {
                return Ok(None);
            }
            let begin = parts[first].range.start;
            let mut end = self.fill(&parts, first, self.room);
            let tokens = loop {
                if end <= done {
                    break None;
                }
                let tokens = (self.count)(&self.text[begin..parts[end - 1].range.end])?;
                if tokens <= self.max_tokens {
                    break Some(tokens);
                }
                if end - first == 1 {
                    let part = parts[first].clone();
                    let smaller = next_level(self.text, &part)
                        .ok_or(PipelineError::ChunkTooSmall { actual: self.max_tokens, least: tokens })?;
                    parts.splice(first..=first, smaller);
                    end = self.fill(&parts, first, self.room);
                    // Taken apart it counts as before, so that the whole may seem to fit again.
                    let whole = parts[end - 1].range.end >= part.range.end;
                    end -= usize::from(whole && end - first > 1);
                    continue;
                }
                let estimate = self.tokens(begin..parts[end - 1].range.end);
                end = self.fill(&parts, first, estimate.saturating_sub(tokens - self.max_tokens)).min(end - 1);
            };
            let Some(tokens) = tokens else {
                // What is shared with the chunk before leaves no room for anything new.
                first += 1;
                continue;
            };
            chunks.push((begin..parts[end - 1].range.end, tokens));
            done = end;
            first = self.share(&parts, first, done);
        }
        Ok(Some(utf16(self.text, &chunks)))
    }

    /// Appends the largest parts of `part` that fit into a chunk; `false` when it was told to stop.
    fn fitting(&self, part: Part, parts: &mut Vec<Part>) -> bool {
        /// A millisecond's worth.
        const PARTS: usize = 4096;
        let fits = self.tokens(part.range.clone()) <= self.room;
        if !fits && let Some(smaller) = next_level(self.text, &part) {
            return smaller.into_iter().all(|part| self.fitting(part, parts));
        }
        parts.push(part);
        !parts.len().is_multiple_of(PARTS) || (self.go_on)()
    }

    /// Behind the last of the parts from `first` on that have at most `room` tokens together; one at least.
    fn fill(&self, parts: &[Part], first: usize, room: usize) -> usize {
        let limit = self.token_at(parts[first].range.start) + room;
        let bound = self.starts.get(limit).copied().unwrap_or(self.text.len());
        let fits = parts[first..].partition_point(|part| part.range.end <= bound);
        first + fits.max(1)
    }

    /// The first part of the chunk after the one of parts `first..done`.
    fn share(&self, parts: &[Part], first: usize, done: usize) -> usize {
        if self.overlap == 0 {
            return done;
        }
        let least = self.token_at(parts[done - 1].range.end).saturating_sub(self.overlap);
        let shared = parts[..done].partition_point(|part| self.token_at(part.range.start) < least);
        shared.max(first + 1)
    }

    /// Tokens that begin in these bytes of the text.
    fn tokens(&self, range: Range<usize>) -> usize {
        self.token_at(range.end) - self.token_at(range.start)
    }

    /// The first token that begins at this byte or behind it.
    fn token_at(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start < byte)
    }
}

/// What stands between white space. The byte order mark is white space to JavaScript, and to nobody a word.
fn runs(text: &str) -> impl Iterator<Item = Range<usize>> {
    let blank = |character: char| character.is_whitespace() || character == '\u{feff}';
    text.split(blank).filter(|run| !run.is_empty()).map(move |run| {
        let start = run.as_ptr() as usize - text.as_ptr() as usize;
        start..start + run.len()
    })
}

/// A part taken apart; `None` for a character.
fn next_level(text: &str, part: &Part) -> Option<Vec<Part>> {
    let slice = &text[part.range.clone()];
    let of = |level, pieces: &mut dyn Iterator<Item = (usize, usize)>| {
        let at = part.range.start;
        Some(pieces.map(|(start, length)| Part { range: at + start..at + start + length, level }).collect())
    };
    match part.level {
        Level::Run => of(Level::Word, &mut slice.split_word_bound_indices().map(|(at, word)| (at, word.len()))),
        Level::Word => of(Level::Grapheme, &mut slice.grapheme_indices(true).map(|(at, one)| (at, one.len()))),
        Level::Grapheme => of(Level::Character, &mut slice.char_indices().map(|(at, one)| (at, one.len_utf8()))),
        Level::Character => None,
    }
}

/// Byte ranges, whose starts and ends each come in order, as chunks.
fn utf16(text: &str, ranges: &[(Range<usize>, usize)]) -> Vec<Chunk> {
    let convert = |bytes: &mut dyn Iterator<Item = usize>| -> Vec<usize> {
        let (mut at, mut units) = (0, 0);
        bytes
            .map(|byte| {
                units += text[at..byte].encode_utf16().count();
                at = byte;
                units
            })
            .collect()
    };
    let starts = convert(&mut ranges.iter().map(|(range, _)| range.start));
    let ends = convert(&mut ranges.iter().map(|(range, _)| range.end));
    let chunks = starts.into_iter().zip(ends).zip(ranges);
    chunks.map(|((start, end), (_, tokens))| Chunk { start, end, tokens: *tokens }).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_stop_is_noticed_before_the_first_chunk() {
        let many_runs = "a ".repeat(20_000);
        let one_run = "a-".repeat(10_000);
        for (text, room) in [(&many_runs, usize::MAX >> 1), (&one_run, 1)] {
            let starts: Vec<usize> = (0..text.len()).filter(|byte| text.as_bytes()[*byte] != b' ').collect();
            let asked = Cell::new(0);
            let chunker = Chunker {
                text,
                starts: &starts,
                max_tokens: room,
                room,
                overlap: 0,
                count: &|_| panic!("a chunk of a call that nobody waits for"),
                // The first time it is still wanted.
                go_on: &|| asked.replace(asked.get() + 1) == 0,
            };
            assert_eq!(chunker.run(), Ok(None));
            assert_eq!(asked.get(), 2);
        }
    }
}
