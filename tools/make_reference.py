#!/usr/bin/env python3
"""Reference vectors of one model: sentence-transformers, float32, CPU, one text per batch, empty prompt.

    python tools/make_reference.py MODEL_DIR OUT.json            write OUT.json and OUT.safetensors
    python tools/make_reference.py MODEL_DIR OUT.json --check    compute again and compare with what is there

OUT.json: per text its token ids as the model sees them and the number of tokens before truncation (special tokens
counted in both). OUT.safetensors, float32 [texts, dimensions]: `final`, what encode() gives; `raw`, the same before the
Normalize module; `batched`, encode() with padded batches of 16. The largest difference of `batched` and `final` is the
reference's own noise: no tolerance can be below it.

MODEL_DIR is a model folder; a snapshot folder that fetch_models.py prints is one. Needs tools/requirements.txt.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer

from texts import TEXTS

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

CHECK_TOLERANCE = 1e-6  # between two processors; on one processor the numbers are equal


@dataclass
class Reference:
    model: SentenceTransformer
    ids: list[list[int]]  # after truncation
    lengths: list[int]  # before truncation
    ids_differ_at: list[int]  # texts whose ids tokenizer.json alone does not give
    final: np.ndarray
    raw: np.ndarray
    batched: np.ndarray

    @property
    def noise(self) -> float:
        return float(np.abs(self.final - self.batched).max())


def compute(folder: Path, texts: list[str], batch_size: int = 16) -> Reference:
    model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32}).eval()
    preprocess = getattr(model, "preprocess", None) or model.tokenize

    def encode(size: int) -> np.ndarray:
        return model.encode(texts, batch_size=size, prompt="", show_progress_bar=False).astype(np.float32)

    ids, raw = [], []
    for text in texts:
        features = preprocess([text])
        ids.append([int(i) for i in features["input_ids"][0]])
        with torch.inference_mode():
            for module in model.children():
                if type(module).__name__ != "Normalize":
                    features = module(features)
        raw.append(features["sentence_embedding"][0].float().numpy())

    plain = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_padding()
    plain.no_truncation()
    lengths = [len(plain.encode(text).ids) for text in texts]
    plain.enable_truncation(model.max_seq_length)
    differ = [i for i, text in enumerate(texts) if plain.encode(text).ids != ids[i]]
    return Reference(model, ids, lengths, differ, encode(1), np.stack(raw), encode(batch_size))


def versions() -> dict[str, str]:
    return {
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "sentence_transformers": sentence_transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }


def write(reference: Reference, name: str, texts: list[str], out: Path) -> None:
    items = [
        {"text": text, "ids": ids, "tokens_before_truncation": length}
        for text, ids, length in zip(texts, reference.ids, reference.lengths, strict=True)
    ]
    table = {
        "model": name,
        "max_seq_length": reference.model.max_seq_length,
        "dim": int(reference.final.shape[1]),
        "modules": [type(m).__name__ for m in reference.model.children()],
        "versions": versions(),
        "tokenizer_json_ids_differ_from_st_at": reference.ids_differ_at,
        "batch_vs_single_max_diff": reference.noise,
        "items": items,
    }
    vectors = {"final": reference.final, "raw": reference.raw, "batched": reference.batched}
    save_file(vectors, out.with_suffix(".safetensors"))
    out.write_text(json.dumps(table, ensure_ascii=True), "utf-8")  # escaped, so that controls survive any editor


def check(reference: Reference, texts: list[str], out: Path) -> list[str]:
    """What differs from the files that are there; empty: nothing."""
    table = json.loads(out.read_text("utf-8"))
    stored = load_file(out.with_suffix(".safetensors"))
    problems = []
    if [item["text"] for item in table["items"]] != texts:
        return ["the texts are not those of tools/texts.py"]
    for i, (item, ids, length) in enumerate(zip(table["items"], reference.ids, reference.lengths, strict=True)):
        if (item["ids"], item["tokens_before_truncation"]) != (ids, length):
            problems.append(f"text {i}: token ids or their number differ")
    for name in ("final", "raw", "batched"):
        difference = float(np.abs(stored[name] - getattr(reference, name)).max())
        print(f"  {name:8} max difference {difference:.2e}")
        if not difference <= CHECK_TOLERANCE:
            problems.append(f"{name}: {difference:.2e} is more than {CHECK_TOLERANCE:.0e}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description="Reference vectors of one model with sentence-transformers.")
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", help="the model's name in OUT.json; default: the name of OUT.json")
    parser.add_argument("--check", action="store_true", help="compare with OUT.json and OUT.safetensors, write nothing")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    reference = compute(options.model_dir, TEXTS)
    print(
        f"{options.name or options.out.stem}: {len(TEXTS)} texts, {reference.final.shape[1]} dimensions, "
        f"max {reference.model.max_seq_length} tokens, batch against single {reference.noise:.2e}"
    )
    if not options.check:
        write(reference, options.name or options.out.stem, TEXTS, options.out)
        return 0
    problems = check(reference, TEXTS, options.out)
    for problem in problems:
        print(f"  {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
