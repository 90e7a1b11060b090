//! English words for BM25 and BM42: stop words, stems, and the number that stands for a stem. As FastEmbed has them, so that
//! vectors can be compared with those of its `Qdrant/bm25` and `Qdrant/bm42-all-minilm-l6-v2-attentions`.
//!
//! Stemmer: Snowball's English one. Number of a stem: the absolute value of its MurmurHash3 (32 bits, x86, seed 0) as a
//! signed number. Two stems may share one: then they are one word.

use rust_stemmers::{Algorithm, Stemmer};
use unicode_categories::UnicodeCategories;

/// NLTK's list. Its words with an apostrophe are left out: no word here has one.
const STOP_WORDS: &str = "a about above after again against ain all am an and any are aren as at be because been before \
    being below between both but by can couldn d did didn do does doesn doing don down during each few for from further \
    had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself \
    just ll m ma me mightn more most mustn my myself needn no nor not now o of off on once only or other our ours \
    ourselves out over own re s same shan she should shouldn so some such t than that the their theirs them themselves \
    then there these they this those through to too under until up ve very was wasn we were weren what when where which \
    while who whom why will with won wouldn y you your yours yourself yourselves";

/// Longer words are no words: hashes, addresses, and the like.
const LONGEST: usize = 40;

/// Words in order, each as the number of its stem. A word is a run of letters, their marks, digits and underscores.
pub(crate) fn numbers(text: &str) -> Vec<u32> {
    let of_word = |it: char| it.is_letter() || it.is_mark() || it.is_number() || it == '_';
    let words = text.split(|character: char| !of_word(character));
    words.filter(|word| !matches!(*word, "" | "_") && word.chars().count() <= LONGEST).filter_map(number).collect()
}

/// The number of a word's stem; `None` for a stop word.
pub(crate) fn number(word: &str) -> Option<u32> {
    let lower = word.to_lowercase();
    if is_stop_word(&lower) {
        return None;
    }
    let stem = Stemmer::create(Algorithm::English).stem(&lower).into_owned();
    (!stem.is_empty()).then(|| hash(stem.as_bytes()).cast_signed().unsigned_abs())
}

fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.split_ascii_whitespace().any(|stop| stop == word)
}

/// MurmurHash3, 32 bits, x86, seed 0 (Appleby, public domain).
fn hash(bytes: &[u8]) -> u32 {
    let mix = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (blocks, tail) = bytes.as_chunks::<4>();
    let mut hash = 0u32;
    for block in blocks {
        hash = (hash ^ mix(u32::from_le_bytes(*block))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !tail.is_empty() {
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        hash ^= mix(u32::from_le_bytes(last));
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_the_reference_implementation() {
        // By mmh3 5.3.1, `mmh3.hash(word, 0, signed=False)`.
        let cases: [(&str, u32); 8] = [
            ("", 0x0000_0000),
            ("a", 0x3c25_69b2),
            ("ab", 0x9bbf_d75f),
            ("abc", 0xb3dd_93fa),
            ("vector", 0x7489_2fb9),
            ("vectors", 0xd449_bd94),
            ("straße", 0x7ce8_5b05),
            ("hello, world", 0x149b_bb7f),
        ];
        let wrong: Vec<_> = cases.iter().filter(|(word, want)| hash(word.as_bytes()) != *want).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn stop_words_and_what_is_no_word_have_no_number() {
        for word in ["the", "The", "IS"] {
            assert_eq!(number(word), None, "{word}");
        }
        assert_eq!(numbers("the running dogs, RUNNING!"), numbers("run dog run"));
        assert!(numbers(&"x".repeat(41)).is_empty());
        assert_eq!(numbers(&"x".repeat(40)).len(), 1);
        assert!(["", " ... ", "_ _", "is it?"].iter().all(|text| numbers(text).is_empty()));
        assert_eq!(STOP_WORDS.split_ascii_whitespace().count(), 153);
    }
}
