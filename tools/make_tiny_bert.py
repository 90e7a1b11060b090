#!/usr/bin/env python3
"""Tiny BERT checkpoints with random weights, in the layouts in which real ones are published, each with golden.json.

    python tools/make_tiny_bert.py OUT_DIR [--only NAME ...] [--seed 7]

Two layers, hidden size 32, 64 positions: small enough to commit, and every weight is drawn wide (a real model's
initial 0.02 would hide errors). The same seed gives the same bytes. golden.json holds texts, token ids, vectors
before (`raw`) and after (`vectors`) the Normalize module, all from sentence-transformers in float32.

The toy vocabulary leaves out some characters of the texts on purpose, so that [UNK] occurs. Needs tools/requirements.txt.
"""
from __future__ import annotations

import argparse
import collections
import json
import math
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import sentence_transformers
import torch
import transformers
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer

from make_reference import compute
from texts import PROMPT_WORDS, TINY_TEXTS, VOCABULARY_TEXTS

HIDDEN, FEED_FORWARD, HEADS, LAYERS, POSITIONS = 32, 64, 4, 2, 64
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CORPUS = " ".join(TINY_TEXTS + VOCABULARY_TEXTS).lower().split() + PROMPT_WORDS.split() * 3
BGE_QUERY_PROMPT = "Represent this sentence for searching relevant passages: "


def dump(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8")


# ------------------------------------------------------------------ tokenizer


def vocabulary() -> dict[str, int]:
    """Special tokens, characters, their ## forms, frequent words, a few suffixes."""

    def known(char: str) -> bool:
        return ord(char) < 0x250 or char in "日本テスト"

    ascii_chars = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-()[]{}<>/\\|+=*&%$#@_~`^"
    chars = sorted({c for word in CORPUS for c in word if known(c)} | set(ascii_chars))
    counts = collections.Counter(re.findall(r"[a-z]+", " ".join(CORPUS)))
    words = [w for w, _ in sorted(counts.items(), key=lambda x: (-x[1], x[0])) if 1 < len(w) < 10][:140]
    suffixes = ["##" + s for s in ("ing", "ed", "er", "ly", "word", "able", "ion", "s")]
    start = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = dict.fromkeys(start + chars + ["##" + c for c in chars] + words + suffixes)
    return {piece: i for i, piece in enumerate(pieces)}


def write_tokenizer(folder: Path, vocab: dict[str, int]) -> None:
    def part(name: str, type_id: int) -> dict[str, object]:
        kind = "Sequence" if name in "AB" else "SpecialToken"
        return {kind: {"id": name, "type_id": type_id}}

    def added(token: str) -> dict[str, object]:
        return {"id": vocab[token], "content": token, "single_word": False, "lstrip": token == "<mask>", "rstrip": False,
                "normalized": False, "special": True}  # fmt: skip

    single = [part("[CLS]", 0), part("A", 0), part("[SEP]", 0)]
    post = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single + [part("B", 1), part("[SEP]", 1)],
        "special_tokens": {t: {"id": t, "ids": [vocab[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")},
    }
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}
    dump(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(t) for t in SPECIALS],
        "normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": post,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}, "model": model,
    })  # fmt: skip
    names = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}
    dump(folder / "tokenizer_config.json", {
        "do_lower_case": True, **names, "tokenize_chinese_chars": True, "strip_accents": None,
        "tokenizer_class": "BertTokenizer", "model_max_length": POSITIONS,
    })  # fmt: skip
    dump(folder / "special_tokens_map.json", names)


# ------------------------------------------------------------------ weights


def config(vocab_size: int, architecture: str) -> dict[str, object]:
    return {
        "architectures": [architecture], "attention_probs_dropout_prob": 0.1, "classifier_dropout": None, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "hidden_size": HIDDEN, "initializer_range": 0.02, "intermediate_size": FEED_FORWARD,
        "layer_norm_eps": 1e-12, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "position_embedding_type": "absolute", "use_cache": True, "vocab_size": vocab_size,
        "max_position_embeddings": POSITIONS, "model_type": "bert", "pad_token_id": 0, "torch_dtype": "float32",
        "transformers_version": "4.44.0", "type_vocab_size": 2,
    }  # fmt: skip


def draw(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """A tensor's values depend on its name and the seed only, not on the order in which tensors are drawn."""
    x = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)
    if len(shape) == 1:
        x = 1.0 + 0.2 * x if re.search(r"norm\w*\.(weight|gamma)$", name.lower()) else 0.1 * x
    elif "embed" in name.lower():
        x = 0.6 * x
    else:
        x = x * (1.4 / math.sqrt(shape[-1]))
    return np.ascontiguousarray(x.astype(np.float32))


def write_weights(folder: Path, layout: Layout, vocab_size: int, seed: int) -> None:
    """Shapes come from transformers' own class, names as published files spell them."""
    cfg = config(vocab_size, layout.architecture)
    head = transformers.AutoModelForMaskedLM if layout.architecture == "BertForMaskedLM" else transformers.AutoModel
    model = head.from_config(transformers.AutoConfig.for_model(**cfg))
    shapes = {k: tuple(v.shape) for k, v in model.state_dict().items() if not k.endswith("position_ids")}
    tensors = {}
    for name, shape in shapes.items():
        if ("pooler" in name and not layout.pooler) or name.startswith("cls.predictions.decoder"):
            continue
        if layout.gamma_beta:
            name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[name] = draw(name, shape, seed)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    dump(folder / "config.json", cfg)


# ------------------------------------------------------------------ sentence-transformers' files


def write_modules(folder: Path, layout: Layout) -> None:
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")] + ([("2_Normalize", "Normalize")] if layout.normalize else [])
    dump(folder / "modules.json", [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(modules)
    ])  # fmt: skip
    flags = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "mean_sqrt_len_tokens": "meansqrt",
             "weightedmean_tokens": "weightedmean", "lasttoken": "last"}  # fmt: skip
    dump(folder / "1_Pooling/config.json", {
        "word_embedding_dimension": HIDDEN, **{f"pooling_mode_{k}": layout.pooling == v for k, v in flags.items()}, "include_prompt": True,
    })  # fmt: skip
    dump(folder / "sentence_bert_config.json", {"max_seq_length": layout.max_length, "do_lower_case": False})
    dump(folder / "config_sentence_transformers.json", {
        "__version__": {"sentence_transformers": "3.0.0", "transformers": "4.44.0", "pytorch": "2.4.0"},
        "prompts": layout.prompts, "default_prompt_name": None, "similarity_fn_name": "cosine",
    })  # fmt: skip


def as_version_6_saves_it(folder: Path, seed: int) -> None:
    """The same model after a load and a save: other class paths, `pooling_mode` instead of booleans, limits elsewhere."""
    torch.manual_seed(seed)  # a pooler that the file lacks is drawn at random and then saved
    model = SentenceTransformer(str(folder), device="cpu")
    shutil.rmtree(folder)
    model.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)


# ------------------------------------------------------------------ the checkpoints


@dataclass(frozen=True)
class Layout:
    pooling: str = "mean"
    architecture: str = "BertModel"
    pooler: bool = False
    gamma_beta: bool = False
    normalize: bool = True
    max_length: int = POSITIONS
    prompts: dict[str, str] = field(default_factory=dict)
    after: Callable[[Path, int], None] | None = None


CLS_WITH_PROMPT = {"pooling": "cls", "prompts": {"query": BGE_QUERY_PROMPT}}
CHECKPOINTS = {
    "tiny-bert-cls": Layout(**CLS_WITH_PROMPT),
    "tiny-bert-mean-pooler": Layout(pooler=True),
    "tiny-bert-max": Layout("max", pooler=True),
    "tiny-bert-weightedmean": Layout("weightedmean", pooler=True),
    "tiny-bert-meansqrt": Layout("meansqrt", pooler=True),
    # `bert.` prefix, the TensorFlow spelling of LayerNorm, a language-model head left in the file, no Normalize
    "tiny-bert-gamma-prefix": Layout(architecture="BertForMaskedLM", gamma_beta=True, normalize=False, max_length=48),
    "tiny-st6-bert": Layout(**CLS_WITH_PROMPT, after=as_version_6_saves_it),
}


def numbers(rows: np.ndarray) -> list[list[float]]:
    """Nine significant digits: float32 survives."""
    return [[float(f"{x:.9g}") for x in row] for row in rows]


def golden(folder: Path) -> dict[str, object]:
    reference = compute(folder, TINY_TEXTS, batch_size=len(TINY_TEXTS))
    return {
        "family": "bert", "kind": "dense", "reference": f"sentence-transformers {sentence_transformers.__version__}",
        "max_seq_length": reference.model.max_seq_length, "texts": TINY_TEXTS, "ids": reference.ids,
        "ids_from_tokenizer_json_alone_differ_at": reference.ids_differ_at, "raw": numbers(reference.raw),
        "vectors": numbers(reference.final), "batch_vs_single_max_diff": reference.noise,
    }  # fmt: skip


def make(out: Path, name: str, seed: int) -> str:
    layout = CHECKPOINTS[name]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        vocab = vocabulary()
        write_tokenizer(folder, vocab)
        write_weights(folder, layout, len(vocab), seed)
        write_modules(folder, layout)
        values = golden(folder)
        if layout.after:
            layout.after(folder, seed)
            again = compute(folder, TINY_TEXTS)
            values["layout"] = f"sentence-transformers {sentence_transformers.__version__.split('.')[0]}"
            values["reload_max_diff"] = float(np.abs(again.final - np.array(values["vectors"])).max())
        (folder / "golden.json").write_text(json.dumps(values, ensure_ascii=True, allow_nan=False, separators=(",", ":")), "utf-8")
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.copytree(folder, out / name)
    return f"{name:24} batch against single {values['batch_vs_single_max_diff']:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Tiny BERT checkpoints with reference vectors.")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(CHECKPOINTS), default=list(CHECKPOINTS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=7, help="the committed fixtures have 7")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out_dir.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        print(make(options.out_dir, name, options.seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
