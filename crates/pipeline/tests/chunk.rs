//! Long texts in chunks: each is embedded whole, all of the text is in them, and they are cut where people would.

mod common;

use common::{load, tiny};
use simile_kernels::Isa;
use simile_pipeline::{Chunk, ChunkRequest, PipelineError, Role, TextModel};

fn request(max_tokens: usize, overlap: usize) -> ChunkRequest {
    ChunkRequest { max_tokens: Some(max_tokens), overlap }
}

fn chunks(model: &TextModel, role: Role, text: &str, request: ChunkRequest) -> Result<Vec<Chunk>, PipelineError> {
    model.chunk(role, None, text, request, &|| true).map(|chunks| chunks.expect("not stopped"))
}

/// The text of a range in UTF-16 units; `None` when an end lies within a character.
fn slice(text: &str, chunk: &Chunk) -> Option<String> {
    let units: Vec<u16> = text.encode_utf16().collect();
    String::from_utf16(units.get(chunk.start..chunk.end)?).ok()
}

/// As JavaScript trims: a byte order mark is white space there.
fn trim(text: &str) -> &str {
    text.trim_matches(|one: char| one.is_whitespace() || one == '\u{feff}')
}

/// What is wrong with the chunks of a text, if anything is.
fn fault(model: &TextModel, role: Role, text: &str, asked: ChunkRequest) -> Option<String> {
    let chunks = match chunks(model, role, text, asked) {
        Ok(chunks) => chunks,
        Err(error) => return Some(error.to_string()),
    };
    let limit = asked.max_tokens.unwrap_or(model.max_length());
    let (mut covered, mut start) = (0, None);
    for chunk in &chunks {
        let Some(part) = slice(text, chunk) else { return Some(format!("{chunk:?} cuts a character")) };
        let tokens = model.tokenize(role, None, &part).unwrap();
        if tokens.truncated() || tokens.total != chunk.tokens || chunk.tokens > limit {
            return Some(format!("{chunk:?} has {} tokens of {limit}", tokens.total));
        }
        if trim(&part) != part || part.is_empty() {
            return Some(format!("{chunk:?} is {part:?}"));
        }
        if chunk.end <= covered || start.is_some_and(|start| chunk.start <= start) {
            return Some(format!("{chunk:?} does not get on"));
        }
        let between = Chunk { start: covered, end: chunk.start, tokens: 0 };
        if chunk.start > covered && !slice(text, &between).is_some_and(|between| trim(&between).is_empty()) {
            return Some(format!("text is lost before {chunk:?}"));
        }
        if asked.overlap == 0 && chunk.start < covered {
            return Some(format!("{chunk:?} overlaps"));
        }
        (covered, start) = (chunk.end, Some(chunk.start));
    }
    let rest = Chunk { start: covered, end: text.encode_utf16().count(), tokens: 0 };
    (!slice(text, &rest).is_some_and(|rest| trim(&rest).is_empty())).then(|| "the end is lost".to_owned())
}

#[test]
fn every_chunk_fits_and_nothing_is_lost() {
    let texts = [
        ("words", "the quick brown fox jumps over the lazy dog, and the dog is not amused. ".repeat(20)),
        ("one long word", "antidisestablishmentarianism".repeat(3)),
        ("a word over the tokenizer's limit", format!("a {} b", "x".repeat(500))),
        ("emoji with joiners", "👩‍👩‍👧‍👦👍🏽 ".repeat(30)),
        ("CJK", "検索エンジンは文書のベクトルを比べる。".repeat(12)),
        ("combining marks", "e\u{301}a\u{308}\u{323} ".repeat(40)),
        ("a mountain of marks", format!("a{}b", "\u{301}".repeat(200))),
        ("NUL and controls", "a\0b \u{1}\u{2} c\u{7f}".repeat(20)),
        ("controls alone", "\0\0\0".to_owned()),
        ("CRLF", "first line\r\nsecond line\r\n\r\n".repeat(15)),
        ("odd white space", "a\u{a0}b\u{3000}c\u{2028}d\u{feff}e ".repeat(20)),
        ("replacement characters", "x\u{fffd}\u{fffd}y ".repeat(20)),
        ("punctuation", "...---!!!???((()))".repeat(10)),
        ("a byte order mark first", "\u{feff}the dog and the fox".to_owned()),
    ];
    let mut faults = Vec::new();
    for name in ["tiny-bert-cls", "tiny-bert-mean-pooler"] {
        let model = load(&tiny(name), Isa::best());
        for (what, text) in &texts {
            for role in [Role::Generic, Role::Query] {
                let around = model.tokenize(role, None, "").unwrap().total;
                let most = model.max_length() - around;
                for room in [1, 2, 5, 17.min(most), most] {
                    for overlap in [0, 1, room / 2, room - 1] {
                        let asked = request(around + room, overlap.min(room - 1));
                        if let Some(fault) = fault(&model, role, text, asked) {
                            faults.push(format!("{name}, {what}, {role}, {asked:?}: {fault}"));
                        }
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults[..faults.len().min(20)].join("\n"));
}

#[test]
fn a_word_is_cut_only_when_it_is_longer_than_a_chunk() {
    let model = load(&tiny("tiny-bert-cls"), Isa::best());
    let text = "search vector database search vector database";
    let words: Vec<usize> =
        text.split(' ').map(|word| model.tokenize(Role::Generic, None, word).unwrap().total).collect();
    let widest = *words.iter().max().unwrap();
    let cut = |max_tokens| -> Vec<String> {
        let chunks = chunks(&model, Role::Generic, text, request(max_tokens, 0)).unwrap();
        chunks.iter().map(|chunk| slice(text, chunk).unwrap()).collect()
    };
    for part in cut(widest).iter().flat_map(|part| part.split(' ')) {
        assert!(text.split(' ').any(|word| word == part), "{part:?} of {:?}", cut(widest));
    }
    assert_eq!(cut(3).concat(), text.replace(' ', ""), "one token at a time");
    assert_eq!(cut(64), [text]);
}

#[test]
fn neighbours_share_what_was_asked_for() {
    let model = load(&tiny("tiny-bert-cls"), Isa::best());
    let text = "a b c d e f g h i j";
    assert_eq!(model.tokenize(Role::Generic, None, text).unwrap().total, 12, "a token each");
    let cut = |max_tokens, overlap| -> Vec<String> {
        let chunks = chunks(&model, Role::Generic, text, request(max_tokens, overlap)).unwrap();
        chunks.iter().map(|chunk| slice(text, chunk).unwrap()).collect()
    };
    assert_eq!(cut(6, 0), ["a b c d", "e f g h", "i j"]);
    assert_eq!(cut(6, 1), ["a b c d", "d e f g", "g h i j"]);
    assert_eq!(cut(5, 2), ["a b c", "b c d", "c d e", "d e f", "e f g", "f g h", "g h i", "h i j"]);
}

#[test]
fn requests_that_cannot_be_met() {
    let model = load(&tiny("tiny-bert-cls"), Isa::best());
    let limit = model.max_length();
    let around = model.tokenize(Role::Query, None, "").unwrap().total;
    let cases = [
        (Role::Generic, request(2, 0), PipelineError::ChunkTooSmall { actual: 2, least: 3 }),
        (Role::Query, request(around, 0), PipelineError::ChunkTooSmall { actual: around, least: around + 1 }),
        (Role::Generic, request(limit + 1, 0), PipelineError::ChunkTooLarge { actual: limit + 1, limit }),
        (Role::Generic, request(10, 8), PipelineError::OverlapTooLarge { actual: 8, room: 8 }),
    ];
    for (role, asked, expected) in cases {
        for text in ["", "a text"] {
            assert_eq!(chunks(&model, role, text, asked).unwrap_err(), expected, "{role}, {asked:?}, {text:?}");
        }
    }
    let error = model.chunk(Role::Generic, Some("find"), "", request(10, 0), &|| true).unwrap_err();
    assert!(matches!(error, PipelineError::InstructionNotSupported { .. }), "{error}");
}

#[test]
fn nothing_comes_of_nothing_and_of_a_stop() {
    let model = load(&tiny("tiny-bert-cls"), Isa::best());
    for text in ["", " ", "\r\n\t", "\u{feff}\u{3000}"] {
        assert_eq!(chunks(&model, Role::Generic, text, ChunkRequest::default()).unwrap(), [], "{text:?}");
    }
    let asked = std::cell::Cell::new(0);
    let go_on = || asked.replace(asked.get() + 1) < 3;
    let text = "one two three four five six seven eight";
    assert_eq!(model.chunk(Role::Generic, None, text, request(3, 0), &go_on).unwrap(), None);
}
