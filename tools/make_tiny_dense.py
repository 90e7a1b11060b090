#!/usr/bin/env python3
"""A tiny checkpoint with what the others lack: three concatenated poolings and two Dense modules before Normalize.

    python tools/make_tiny_dense.py OUT_DIR        reads OUT_DIR/tiny-bert-max, writes OUT_DIR/tiny-bert-dense

The transformer is that of tiny-bert-max. sentence-transformers builds the rest, saves it in its own newest layout and
gives the vectors of golden.json (see make_tiny_bert.py for its form; `raw` is before Normalize, after the Dense modules).
The Dense modules have a Tanh with bias and an Identity without. Needs tools/requirements.txt.
"""
from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

from make_reference import compute
from make_tiny_bert import HIDDEN, draw, golden
from texts import TINY_TEXTS

POOLINGS = ("max", "cls", "weightedmean")  # not the order of the old booleans: the list's order has to count
WIDTHS = (len(POOLINGS) * HIDDEN, 40, 24)


def dense(seed: int, inputs: int, outputs: int, bias: bool, activation: torch.nn.Module) -> Dense:
    module = Dense(inputs, outputs, bias=bias, activation_function=activation)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(draw(f"{outputs}.{name}", tuple(parameter.shape), seed)))
    return module


def main() -> int:
    out, seed = Path(sys.argv[1]), 7
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    folder = out / "tiny-bert-dense"
    shutil.rmtree(folder, ignore_errors=True)
    SentenceTransformer(
        modules=[
            Transformer(str(out / "tiny-bert-max")),
            Pooling(HIDDEN, pooling_mode=POOLINGS),
            dense(seed, WIDTHS[0], WIDTHS[1], True, torch.nn.Tanh()),
            dense(seed, WIDTHS[1], WIDTHS[2], False, torch.nn.Identity()),
            Normalize(),
        ],
        device="cpu",
    ).save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    values = golden(folder)
    assert np.abs(compute(folder, TINY_TEXTS).final - np.array(values["vectors"])).max() < 1e-7
    (folder / "golden.json").write_text(json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":")), "utf-8")
    print(f"{folder.name:24} batch against single {values['batch_vs_single_max_diff']:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
