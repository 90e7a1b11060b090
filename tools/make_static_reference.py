"""Writes reference vectors of the tiny static models that their golden.json does not have, with model2vec.

usage: make_static_reference.py   (writes __test__/fixtures/reference/tiny-static.json)

`f32`: tiny-static-f16 with its table widened to float32 first, because model2vec itself rounds its means to float16.
`limits`: tiny-static under other limits in tokens, where model2vec first cuts a text to so many times the median length of
the vocabulary's tokens in characters.
"""
import json
from pathlib import Path

import numpy as np
from model2vec import StaticModel

FIXTURES = Path(__file__).parent.parent / "__test__" / "fixtures"
LIMITS = [2, 4, 8, 16]


def vectors(model, texts):
    rows = model.encode(texts, use_multiprocessing=False).astype(np.float32)
    return [[float(f"{value:.9g}") for value in row] for row in rows]


def main():
    texts = json.loads((FIXTURES / "tiny" / "tiny-static" / "golden.json").read_text("utf-8"))["texts"]
    half = StaticModel.from_pretrained(str(FIXTURES / "tiny" / "tiny-static-f16"))
    half.embedding = half.embedding.astype(np.float32)
    limits = {}
    for limit in LIMITS:
        model = StaticModel.from_pretrained(str(FIXTURES / "tiny" / "tiny-static"), max_length=limit)
        limits[str(limit)] = vectors(model, texts)
    out = {"f32": vectors(half, texts), "limits": limits}
    path = FIXTURES / "reference" / "tiny-static.json"
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n", "utf-8")
    print(f"{path}: {path.stat().st_size} bytes, {len(texts)} texts, median token length {model.median_token_length}")


if __name__ == "__main__":
    main()
