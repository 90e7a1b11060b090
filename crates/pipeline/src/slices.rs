//! Cutting a huge text where its tokens cannot notice.
//!
//! The tokenizers library needs about 130 bytes of memory for each byte of a text, all at once: 1.3 GB for 10 MB. BERT's
//! pipeline (normaliser, pre-tokenizer and WordPiece) looks at characters and words only, so a text that is cut at a blank
//! between two ASCII letters or digits gives the same tokens in slices, in bounded memory, and a little faster; and between
//! two slices work can be let in that is more urgent, or the rest given up. Other pipelines (Metaspace, byte-level BPE)
//! see their neighbours, and their texts stay whole: one of them is tokenised without a pause.

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{ModelWrapper, Tokenizer};

/// A slice ends at the first good place after this many bytes: about 7 ms of work, as long as a layer of a micro-batch,
/// because between two slices others get a turn. Larger slices are not faster.
pub(crate) const SLICE: usize = 16 << 10;

/// Whether slices give the same tokens as the whole.
pub(crate) fn are_safe(tokenizer: &Tokenizer) -> bool {
    let per_character = |step: &NormalizerWrapper| {
        matches!(step, NormalizerWrapper::BertNormalizer(_) | NormalizerWrapper::Lowercase(_))
    };
    let normalizer = match tokenizer.get_normalizer() {
        None => true,
        Some(NormalizerWrapper::Sequence(steps)) => steps.as_ref().iter().all(per_character),
        Some(step) => per_character(step),
    };
    // A token that holds white space could lie across a cut.
    let added = tokenizer.get_added_tokens_decoder();
    normalizer
        && matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_)))
        && matches!(tokenizer.get_model(), ModelWrapper::WordPiece(_))
        && added.values().all(|token| !token.content.contains(char::is_whitespace))
}

/// Slices of at least `length` bytes (the last may be shorter) that make up the text, with the byte where each begins.
pub(crate) fn cut(text: &str, length: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let end = place(text.as_bytes(), start + length.max(1));
        done = end.is_none();
        let slice = (start, &text[start..end.unwrap_or(text.len())]);
        start += slice.1.len();
        Some(slice)
    })
}

/// The first blank at or after `from` that stands between two ASCII letters or digits; so it is a character boundary.
fn place(bytes: &[u8], from: usize) -> Option<usize> {
    (from..bytes.len().saturating_sub(1))
        .find(|&at| bytes[at] == b' ' && bytes[at - 1].is_ascii_alphanumeric() && bytes[at + 1].is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_make_up_the_text() {
        let text = "ab cd, e f  g\u{301} h é i jk l";
        for length in 0..30 {
            let slices: Vec<_> = cut(text, length).collect();
            assert_eq!(slices.iter().map(|(_, slice)| *slice).collect::<String>(), text, "{length}");
            assert!(slices.iter().all(|(start, slice)| text[*start..].starts_with(slice)));
        }
        assert_eq!(cut("a b c d", 2).map(|(_, slice)| slice).collect::<Vec<_>>(), ["a b", " c", " d"]);
        assert_eq!(cut("", 2).collect::<Vec<_>>(), [(0, "")]);
        // Nowhere to cut.
        assert_eq!(cut("aaaa,  é é ,", 1).count(), 1);
    }
}
