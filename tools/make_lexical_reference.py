#!/usr/bin/env python3
"""Reference vectors of BM25 and BM42, computed with Python's own parts: mmh3, the Snowball stemmer, transformers.

    python tools/make_lexical_reference.py MODEL_FOLDER

MODEL_FOLDER is all-MiniLM-L6-v2. Writes bm25.json and bm42.json into __test__/fixtures/reference: for each text the
entries [number, weight] of passage and query. Needs tools/requirements.txt, and mmh3 5.3.1 and py-rust-stemmers 0.1.8.
The rules are those of FastEmbed (fastembed/sparse/bm25.py, bm42.py), written anew.
"""
from __future__ import annotations

import collections
import json
import math
import re
import string
import sys
import unicodedata
from pathlib import Path

import mmh3
import torch
from py_rust_stemmers import SnowballStemmer
from texts import TEXTS
from transformers import AutoModel, AutoTokenizer

OUT = Path(__file__).resolve().parent.parent / "__test__" / "fixtures" / "reference"
SOURCE = Path(__file__).resolve().parent.parent / "crates" / "pipeline" / "src" / "words.rs"
STEMMER = SnowballStemmer("english")
# The list is data that both sides share; what is done with it is not.
STOP_WORDS = set(re.search(r'STOP_WORDS: &str = "(.*?)";', SOURCE.read_text(), re.S).group(1).replace("\\\n", " ").split())


def number(word: str) -> int:
    return abs(mmh3.hash(STEMMER.stem_word(word)))


def entries(weights: dict[int, float]) -> list[list[float]]:
    return [[index, float(f"{weights[index]:.9g}")] for index in sorted(weights)]


def bm25(text: str) -> dict[str, object]:
    kept = "".join(c if re.match(r"[\w\s]", c) or unicodedata.category(c).startswith("M") else " " for c in text)
    words = [w for w in kept.lower().split() if len(w) <= 40 and w != "_" and w not in STOP_WORDS]
    counts = collections.Counter(number(word) for word in words)
    length = 1.2 * (1 - 0.75 + 0.75 * len(words) / 256)
    passage = {word: count * 2.2 / (count + length) for word, count in counts.items()}
    return {"text": text, "passage": entries(passage), "query": entries(dict.fromkeys(counts, 1.0))}


def bm42(text: str, tokenizer, model) -> dict[str, object]:
    encoded = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        attention = model(**encoded, output_attentions=True).attentions[-1][0, :, 0].mean(0).tolist()
    words: list[tuple[str, float]] = []
    for token, weight in zip(tokenizer.convert_ids_to_tokens(encoded["input_ids"][0]), attention):
        if token in tokenizer.all_special_tokens:
            continue
        if token.startswith("##") and words:
            words[-1] = (words[-1][0] + token[2:], words[-1][1] + weight)
        else:
            words.append((token, weight))
    passage: dict[int, float] = {}
    for word, weight in words:
        if word not in STOP_WORDS and word not in string.punctuation:
            passage[number(word)] = max(passage.get(number(word), 0.0), math.sqrt(math.log1p(weight)))
    return {"text": text, "passage": entries(passage), "query": entries(dict.fromkeys(passage, 1.0))}


def main() -> None:
    folder = sys.argv[1]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    # The long texts say nothing that the others do not.
    texts = [text for text in TEXTS if len(text) < 600]
    for name, items in (("bm25", [bm25(text) for text in texts]), ("bm42", [bm42(text, tokenizer, model) for text in texts])):
        (OUT / f"{name}.json").write_text(json.dumps({"items": items}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
