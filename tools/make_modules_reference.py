"""Writes reference vectors of tiny checkpoints with other modules behind the transformer than they ship, with sentence-transformers.

usage: make_modules_reference.py   (writes __test__/fixtures/reference/tiny-modules.json)

`pooling`: every pooling mode and a concatenation, with the prompt's tokens left out (`include_prompt: false`), and texts that
are cut or are nothing but a prompt. `layer_norm`: a LayerNorm module behind the pooling, whose weights are a formula.
"""
import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

FIXTURES = Path(__file__).parent.parent / "__test__" / "fixtures"
MODES = [["cls"], ["max"], ["mean"], ["mean_sqrt_len_tokens"], ["weightedmean"], ["lasttoken"], ["lasttoken", "cls", "mean"]]
MODELS = ["tiny-bert-mean-pooler", "tiny-roberta", "tiny-xlm-roberta", "tiny-qwen3-embedding"]
PROMPT = "query the fox: "


def rows(vectors):
    return [[float(f"{value:.8g}") for value in row] for row in vectors]


def texts(name):
    golden = json.loads((FIXTURES / "tiny" / name / "golden.json").read_text("utf-8"))
    return [text for i, text in enumerate(golden["texts"]) if i in (0, 1, 2, 4, 5, 7, 10, 16)]


def pooling(name, modes):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(FIXTURES / "tiny" / name, folder, dirs_exist_ok=True)
        model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32})
    transformer = model[0]
    model = SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_embedding_dimension(), tuple(modes), include_prompt=False)], device="cpu"
    )
    # Far over the longest text's tokens would be slow for nothing; ours is loaded with the same limit.
    model.max_seq_length = 64
    vectors = model.encode(texts(name), prompt=PROMPT, batch_size=1, show_progress_bar=False)
    return {"model": name, "modes": modes, "vectors": rows(vectors)}


def layer_norm(name):
    model = SentenceTransformer(str(FIXTURES / "tiny" / name), device="cpu", model_kwargs={"dtype": torch.float32})
    width = model[1].get_embedding_dimension()
    norm = LayerNorm(width)
    with torch.no_grad():
        norm.norm.weight.copy_(torch.arange(width) * 0.03125 + 0.5)
        norm.norm.bias.copy_(torch.arange(width) * 0.015625 - 0.25)
    model = SentenceTransformer(modules=[model[0], model[1], norm], device="cpu")
    return {"model": name, "vectors": rows(model.encode(texts(name), prompt="", batch_size=1, show_progress_bar=False))}


def main():
    out = {
        "prompt": PROMPT,
        "texts": texts("tiny-bert-mean-pooler"),
        "pooling": [pooling(name, modes) for name in MODELS for modes in MODES],
        "layer_norm": layer_norm("tiny-bert-mean-pooler"),
    }
    path = FIXTURES / "reference" / "tiny-modules.json"
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n", "utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
