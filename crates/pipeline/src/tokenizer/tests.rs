use super::*;
use crate::template::Template;
use serde_json::{Value, json};
use tokenizers::{TruncationDirection, TruncationParams};

/// Two dialects of BERT's tokenizer.json: as older tools and as transformers 5 write it.
const FILES: [&str; 2] = ["tiny-bert-cls", "tiny-st6-bert"];

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures/tiny");
    std::fs::read(folder.join(name).join("tokenizer.json")).unwrap()
}

impl Tokenizer {
    /// Tokenises without a pause.
    fn encode(&self, rendered: &Rendered<'_>, max_length: usize, truncate: Truncate) -> Result<Tokens, PipelineError> {
        self.encode_while(rendered, max_length, truncate, &|| true).map(|tokens| tokens.expect("nobody said no"))
    }
}

fn tokenizer(content: &[u8]) -> Tokenizer {
    Tokenizer::new(Path::new("m"), content, &BertKeys::default(), false).unwrap()
}

fn words(post_processor: Value) -> Value {
    let vocab = json!({"<s>": 0, "</s>": 1, "a": 2, "b": 3, "c": 4, "p:": 5, "[UNK]": 6});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": [], "post_processor": post_processor, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}
    })
}

fn template(single: Value) -> Value {
    json!({"type": "TemplateProcessing", "single": single, "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}})
}

fn texts() -> Vec<String> {
    let golden = std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures/tiny/tiny-bert-cls/golden.json"),
    )
    .unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    golden["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn cutting_the_end_or_the_start_is_what_the_library_does() {
    for (truncate, direction) in
        [(Truncate::End, TruncationDirection::Right), (Truncate::Start, TruncationDirection::Left)]
    {
        for name in FILES {
            let content = fixture(name);
            let ours = tokenizer(&content);
            for max_length in [3, 4, 7, 16, 64, 512] {
                let mut library = tokenizers::Tokenizer::from_bytes(&content).unwrap();
                let full: Vec<usize> =
                    texts().iter().map(|text| library.encode(text.as_str(), true).unwrap().len()).collect();
                library
                    .with_truncation(Some(TruncationParams { max_length, direction, ..Default::default() }))
                    .unwrap();
                for (text, total) in texts().iter().zip(full) {
                    let want = library.encode(text.as_str(), true).unwrap();
                    let got = ours.encode(&Rendered::plain(text), max_length, truncate).unwrap();
                    assert_eq!(
                        (got.ids.as_slice(), got.total),
                        (want.get_ids(), total),
                        "{name} {max_length} {text:?}"
                    );
                    assert_eq!(got.truncated(), total > max_length);
                }
            }
        }
    }
}

#[test]
fn what_the_file_says_about_padding_and_truncation_is_set_aside() {
    let mut file: Value = serde_json::from_slice(&fixture(FILES[0])).unwrap();
    let plain = tokenizer(file.to_string().as_bytes());
    file["truncation"] = json!({"direction": "Left", "max_length": 4, "strategy": "LongestFirst", "stride": 1});
    file["padding"] = json!({"strategy": {"Fixed": 128}, "direction": "Left", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"});
    let reset = tokenizer(file.to_string().as_bytes());
    for text in texts() {
        let encode = |tokenizer: &Tokenizer| tokenizer.encode(&Rendered::plain(&text), 20, Truncate::End).unwrap();
        assert_eq!(encode(&plain), encode(&reset), "{text:?}");
    }
}

#[test]
fn too_long_is_an_error_with_both_numbers_under_that_policy() {
    let tokenizer = tokenizer(&fixture(FILES[0]));
    let encode = |text| tokenizer.encode(&Rendered::plain(text), 5, Truncate::Error);
    assert_eq!(encode("a b c").unwrap().total, 5);
    assert_eq!(encode("a b c d").unwrap_err(), PipelineError::TextTooLong { limit: 5, actual: 6 });
}

#[test]
fn cutting_the_start_keeps_template_and_frame() {
    let tokenizer = tokenizer(words(template(json!([
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}
    ]))).to_string().as_bytes());
    let rendered = Template::parse("p: p: {text} p:").unwrap().render("a b c a b c", "");
    let ids = |max_length| tokenizer.encode(&rendered, max_length, Truncate::Start).map(|tokens| tokens.ids);
    assert_eq!(ids(11).unwrap(), [0, 5, 5, 2, 3, 4, 2, 3, 4, 5, 1]);
    assert_eq!(ids(7).unwrap(), [0, 5, 5, 3, 4, 5, 1]);
    assert_eq!(ids(5).unwrap(), [0, 5, 5, 5, 1]);
    assert_eq!(ids(4).unwrap_err(), PipelineError::TemplateTooLong { limit: 4, actual: 5 });
    // The end is cut as the library cuts it, template or not.
    assert_eq!(tokenizer.encode(&rendered, 7, Truncate::End).unwrap().ids, [0, 5, 5, 2, 3, 4, 1]);
}

#[test]
fn frames() {
    let special = |id: &str, type_id: usize| json!({"SpecialToken": {"id": id, "type_id": type_id}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let good = [
        (json!(null), [vec![], vec![]]),
        (template(json!([text])), [vec![], vec![]]),
        (template(json!([text, special("</s>", 0)])), [vec![], vec![1]]),
        (template(json!([special("<s>", 0), special("<s>", 0), text])), [vec![0, 0], vec![]]),
        (json!({"type": "BertProcessing", "cls": ["<s>", 0], "sep": ["</s>", 1]}), [vec![0], vec![1]]),
        (
            json!({"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 1], "trim_offsets": true, "add_prefix_space": true}),
            [vec![0], vec![1]],
        ),
        (
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            [vec![], vec![]],
        ),
        (json!({"type": "Sequence", "processors": [template(json!([text, special("</s>", 0)]))]}), [vec![], vec![1]]),
    ];
    for (processor, [before, after]) in good {
        let file = words(processor.clone()).to_string();
        let tokenizer = tokenizer(file.as_bytes());
        assert_eq!((&tokenizer.before, &tokenizer.after), (&before, &after), "{processor}");
        let library = tokenizers::Tokenizer::from_bytes(&file).unwrap().encode("a b c", true).unwrap();
        assert_eq!(
            tokenizer.encode(&Rendered::plain("a b c"), 99, Truncate::End).unwrap().ids,
            library.get_ids(),
            "{processor}"
        );
    }
    let bad = [
        (template(json!([special("<s>", 0)])), "one piece"),
        (template(json!([text, special("</s>", 0), text])), "repeats"),
        (template(json!([special("<s>", 2), text])), "token types"),
        (template(json!([{"Sequence": {"id": "A", "type_id": 1}}])), "token types"),
    ];
    for (processor, part) in bad {
        let error = Tokenizer::new(
            Path::new("m"),
            words(processor.clone()).to_string().as_bytes(),
            &BertKeys::default(),
            false,
        )
        .err()
        .unwrap();
        assert!(
            matches!(error, LoadError::Tokenizer { .. }) && error.to_string().contains(part),
            "{processor}: {error}"
        );
    }
}

#[test]
fn failures_and_panics_of_the_library_are_errors_of_the_text() {
    let mut file = words(json!(null));
    file["model"]["unk_token"] = json!("absent");
    let encode =
        |file: &Value, text| tokenizer(file.to_string().as_bytes()).encode(&Rendered::plain(text), 9, Truncate::End);
    assert!(matches!(encode(&file, "a zebra"), Err(PipelineError::Tokenizer { .. })));
    assert!(encode(&file, "a b").is_ok());
    // Pieces of no length: the library divides by it.
    file["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0});
    let error = encode(&file, "a").unwrap_err();
    assert!(matches!(&error, PipelineError::TokenizerPanicked { message } if !message.is_empty()), "{error}");

    for content in ["", "{}", "[1", "version https://git-lfs.github.com/spec/v1"] {
        let error =
            Tokenizer::new(Path::new("the-folder"), content.as_bytes(), &BertKeys::default(), false).err().unwrap();
        assert!(error.to_string().contains("the-folder"), "{error}");
    }
}

#[test]
fn lower_casing_comes_first_and_once() {
    let mut file = words(json!(null));
    let ids = |file: &Value, lowercase| {
        let tokenizer =
            Tokenizer::new(Path::new("m"), file.to_string().as_bytes(), &BertKeys::default(), lowercase).unwrap();
        tokenizer.encode(&Rendered::plain("A b"), 9, Truncate::End).unwrap().ids
    };
    assert_eq!(ids(&file, false), [6, 3]);
    assert_eq!(ids(&file, true), [2, 3]);
    for normalizer in [
        json!({"type": "Lowercase"}),
        json!({"type": "NFC"}),
        json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]}),
    ] {
        file["normalizer"] = normalizer;
        assert_eq!(ids(&file, true), [2, 3], "{}", file["normalizer"]);
    }
}

#[test]
fn slices_give_the_tokens_of_the_whole() {
    let parts = [
        "hello",
        "world",
        "embedding",
        "x1",
        "[SEP]",
        "[MASK]",
        "Café",
        "e\u{301}",
        "\u{301}",
        "日本語",
        "🙂",
        "...",
        "unbelievable",
        "\u{a0}",
        "\n",
        "\0",
        "İ",
        "##ing",
    ];
    let mut state = 7u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for name in FILES {
        let content = fixture(name);
        let mut sliced = tokenizer(&content);
        assert!(sliced.slice.is_some());
        let whole = Tokenizer { slice: None, ..tokenizer(&content) };
        for _ in 0..200 {
            let text: String = (0..random(80))
                .map(|_| format!("{}{}", parts[random(parts.len())], [" ", "  ", "", " ", " "][random(5)]))
                .collect();
            let rendered = Template::parse("the query: {text} !").unwrap().render(&text, "");
            sliced.slice = Some(random(40));
            for (truncate, max_length) in [(Truncate::End, 1000), (Truncate::End, 20), (Truncate::Start, 20)] {
                let encode = |tokenizer: &Tokenizer| tokenizer.encode(&rendered, max_length, truncate).unwrap();
                assert_eq!(encode(&sliced), encode(&whole), "{name} {:?} {text:?}", sliced.slice);
            }
        }
    }
    // A pipeline whose tokens see their neighbours is never cut.
    assert!(tokenizer(words(json!(null)).to_string().as_bytes()).slice.is_none());
}

#[test]
fn a_long_text_is_given_up_between_two_slices() {
    use std::cell::Cell;
    let tokenizer = tokenizer(&fixture(FILES[0]));
    let text = "hello ".repeat(5 * slices::SLICE / 6);
    let asked = Cell::new(0);
    let encode = |most: usize| {
        asked.set(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            asked.get() <= most
        };
        tokenizer.encode_while(&Rendered::plain(&text), 20, Truncate::End, &go_on).unwrap()
    };
    assert!(encode(2).is_none());
    assert_eq!(asked.get(), 3, "nothing is tokenised after a no");
    let all = encode(usize::MAX).expect("nobody said no");
    assert_eq!(asked.get(), 4, "five slices");
    assert_eq!(all, tokenizer.encode(&Rendered::plain(&text), 20, Truncate::End).unwrap());
}
