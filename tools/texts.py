"""The fixed texts that reference vectors are made of. Written for this project.

`TEXTS` is for real models: ordinary sentences, then one text for everything that tokenizers, templates and truncation
are known to get wrong. `TINY_TEXTS` is for checkpoints of toy size. The order is part of the fixtures: append only.
"""
from __future__ import annotations

import unicodedata

#: Longer than any limit: thousands of tokens, in words and without a single space.
LONG = " ".join(
    f"Sentence {i} talks about river number {i * 7 % 31}, a bridge, and the {('red', 'green', 'blue')[i % 3]} boat under it."
    for i in range(400)
)
LONG_CJK = "長い文章は切り詰められなければならない。" * 220

TEXTS: list[str] = [
    # nothing, next to nothing, punctuation only
    "", " ", "a", "Z", ".", "?!...,;:", "-- --- ----", "\"quoted\" 'single' `tick`",
    # ordinary sentences; letter case; texts that look like templates
    "The quick heron waits by the cold lake.",
    "the quick heron waits by the cold lake.",
    "THE QUICK HERON WAITS BY THE COLD LAKE.",
    "A small dog chased the ball across the yard.",
    "Interest rates rose for the third quarter in a row.",
    "query: how do I reset a lost password",
    "passage: Open settings, choose security, then press reset.",
    # accents, composed and decomposed
    "Café crème brûlée à la façon d'Ångström, naïve coöperation, ŁÓDŹ, smørrebrød, çiğ köfte",
    unicodedata.normalize("NFC", "Ünïcödé é ñ Å ộ"),
    unicodedata.normalize("NFD", "Ünïcödé é ñ Å ộ"),
    # other scripts
    "한국어 문장은 여기에서 시작합니다.",
    unicodedata.normalize("NFD", "한국어 문장"),
    "日本語の文とカタカナと漢字。",
    "ｶﾀｶﾅ half width and ｆｕｌｌ　ｗｉｄｔｈ　１２３",
    "今天天气很好，我们去公园散步吧！",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "שלום עולם מעורב with English ו־123",
    "नमस्ते दुनिया, यह एक परीक्षण है।",
    "สวัสดีชาวโลก ไม่มีช่องว่าง",
    "Привет, мир! Ёжик и подъезд.",
    "Γειά σου Κόσμε ΣΊΣΥΦΟΣ ς σ",
    # case mappings that change length or depend on the language
    "Straße STRASSE ẞ ſ ﬁ ﬂ Ǆ ĳ",
    "İstanbul ıI iİ",
    # emoji, joiners, invisible characters, controls, white space
    "👩‍👩‍👧‍👦 family 👍🏽 thumbs 🇫🇷🇯🇵 flags ❤️ ☺",
    "🙂",
    "zero\u200bwidth\u200djoin\ufefferbom\u2060",
    "soft\u00adhyphen\u00adword",
    "nul\x00inside",
    "\x00",
    "bell\x07 escape\x1b del\x7f c1\x85 nel\x9f",
    "tab\tnew\nline\r\nreturn\rvt\x0bff\x0c",
    "  leading and trailing   spaces   inside  ",
    "\n\n\n",
    "nbsp\u00a0thin\u2009ideographic\u3000space\u2028para\u2029end",
    # code, paths, numbers
    'fn main() { let x: Vec<u8> = vec![0; 1_000]; println!("{:?}", &x[..3]); }',
    "def f(a, *, b=None):\n    return {**a, 'k': [i for i in range(10) if i % 2]}",
    "https://example.org/path/to/page?id=42&lang=fr#frag and mail me@host.example",
    "C:\\Users\\x\\AppData\\Local\\Temp\\file.tmp",
    "3.14159 1,000,000 1e-10 0xDEADBEEF 50% $12.99 ½ ² ③ Ⅷ",
    # literal special tokens of several vocabularies
    "ids like [SEP] and [CLS] and [MASK] and [PAD] inside",
    "markers </s> <s> <pad> <unk> <mask> inside",
    "<|endoftext|> <|im_start|>user <bos> <eos>",
    "[SEP]",
    "</s>",
    "▁metaspace ▁▁ ## ##ing Ġ Ċ",
    # words that are too long for a word-piece vocabulary
    "supercalifragilistic" * 12, "x" * 300, "a" * 101,
    # apostrophes, directions, characters beyond the basic plane
    "don't can't it's I'll we've y'all O'Neill",
    "mixed العربية and עברית and English \u202eoverride\u202c \u200frtl mark",
    "\U0001f600 astral 𝒳𝓎 𠜎𠜱 \U0010fffd",
    "𝐁𝐨𝐥𝐝 𝔽𝕒𝕟𝕔𝕪 ᴬᴮ",
    "Question ? Answer ! space , before ; punctuation :",
    "hello-world_foo.bar/baz\\qux|pipe~tilde^caret",
    # beyond every limit
    LONG, LONG_CJK,
]  # fmt: skip

TINY_TEXTS: list[str] = [
    "", " ", "a", "hello world", "Hello, World!", "the quick brown fox jumps over the lazy dog",
    "embedding models map text to vectors", "Café déjà vu", "日本語 テスト", "привет мир", "🙂 emoji 👍🏽",
    "[SEP] </s> <pad> literal", "tabs\tand\nnewlines", "unbelievableunbrokenword" * 3, "x1 y2 z3 100%",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 2, "the dog and the fox and the world " * 40,
]  # fmt: skip

#: Words for the toy vocabularies besides those of TINY_TEXTS (text pairs and prompts of later checkpoints use them).
VOCABULARY_TEXTS: list[str] = [
    "what is a vector", "a vector is a list of numbers", "what is a vector", "the fox jumps over the dog", "", "empty query", "hello", "",
    "long document", "the dog and the fox and the world " * 40, "long query the quick brown fox " * 30, "short", "Café", "日本語 テスト 🙂",
]  # fmt: skip
PROMPT_WORDS = (
    "yes no instruct query document user assistant system think judge whether the meets requirements based on and "
    "provided note that answer can only be"
)
