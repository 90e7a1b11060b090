#!/usr/bin/env python3
"""Tiny checkpoints of every encoder family in sizes that fit no tile, with the last layer's hidden states in golden.json.

    python tools/make_tiny_families.py OUT_DIR [--only NAME ...] [--seed 7]

Heads of 12 and of 6, 3 and 5 of them, widths of 36 and 30. Weights are drawn wide (a real model's initial 0.02 would hide
errors) and stored in F16, which both sides widen without loss. The hidden states are those of transformers in float64, one
sequence per pass: in float32 its own rounding takes up to half of the tolerance. It still takes rotary angles, and some
norms and softmaxes, in float32. Where it has no such model they come from the plain forwards below, written after the
source that each names. Epsilons are large in one checkpoint of each kind of norm, so that a wrong one shows. positions.json has
tables of the formulas by which position enters, from transformers where it has them. The same seed gives the same bytes.
Needs tools/requirements.txt.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the libraries are imported

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from torch.nn.functional import gelu, layer_norm, linear, silu
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

VOCAB, HIDDEN, HEADS, INNER, LAYERS, ROWS, PAD = 60, 36, 3, 44, 2, 40, 1
TRAINED = 16  # of dynamic NTK: one sequence ends there, one is a token longer
LENGTHS = (1, 3, TRAINED, TRAINED + 1, 33)
LARGE_EPSILON = 0.05

Config = dict[str, object]
Shapes = dict[str, tuple[int, ...]]


def draw(name: str, shape: tuple[int, ...], seed: int, norms_at: float) -> np.ndarray:
    """A tensor's values depend on its name and the seed only."""
    x = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)
    if len(shape) == 1 and re.search(r"(norm\w*|ln)\.weight$", name.lower()):
        x = norms_at + 0.2 * x
    elif len(shape) == 1:
        x = 0.1 * x
    elif re.search("embed|relative_attention_bias", name):
        x = 0.6 * x
    else:
        x = x * (1.4 / math.sqrt(shape[-1]))
    return np.ascontiguousarray(x.astype(np.float16))


def sequences(name: str, seed: int) -> list[list[int]]:
    """With the padding token inside of two of them: RoBERTa's positions go by it."""
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    texts = [random.integers(2, VOCAB, length).tolist() for length in LENGTHS]
    texts[2][5] = texts[4][0] = texts[4][20] = PAD
    return texts


# ------------------------------------------------------------------ families that transformers has


def bert_config(model_type: str, **more: object) -> Config:
    return {
        "model_type": model_type, "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_attention_heads": HEADS,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "max_position_embeddings": ROWS, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0, **more,
    }  # fmt: skip


ROBERTA = {"pad_token_id": PAD, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTILBERT = {
    "model_type": "distilbert", "vocab_size": VOCAB, "dim": HIDDEN, "n_heads": HEADS, "hidden_dim": INNER, "n_layers": LAYERS,
    "max_position_embeddings": ROWS, "activation": "gelu", "sinusoidal_pos_embds": False, "pad_token_id": 0,
}  # fmt: skip
MODERN_BERT = {
    "model_type": "modernbert", "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_attention_heads": HEADS,
    "intermediate_size": INNER, "num_hidden_layers": 3, "max_position_embeddings": 64, "norm_eps": LARGE_EPSILON,
    "norm_bias": False, "attention_bias": False, "mlp_bias": False, "hidden_activation": "gelu", "local_attention": 12,
    "global_attn_every_n_layers": 2, "global_rope_theta": 10000.0, "local_rope_theta": 100.0, "pad_token_id": 0,
    "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3,
}  # fmt: skip
GROUPED = {
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "intermediate_size": INNER, "max_position_embeddings": 64, "rms_norm_eps": LARGE_EPSILON, "attention_bias": False,
    "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
GEMMA3 = {
    **GROUPED, "model_type": "gemma3_text", "num_hidden_layers": 3, "query_pre_attn_scalar": 20, "sliding_window": 12,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "use_bidirectional_attention": True,
    "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 10000.0, "rope_local_base_freq": 100.0,
    "attn_logit_softcapping": None, "final_logit_softcapping": None,
}  # fmt: skip
QWEN3 = {
    **GROUPED, "model_type": "qwen3", "num_hidden_layers": LAYERS, "hidden_act": "silu", "rope_theta": 10000.0,
    "use_sliding_window": False, "tie_word_embeddings": True,
}  # fmt: skip
NOMIC_NATIVE = {
    **bert_config("nomic_bert", layer_norm_eps=1e-5, hidden_act="silu"),
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
}
GTE_NATIVE = {
    **bert_config("gte", layer_norm_eps=1e-5, type_vocab_size=1),
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}


def class_shapes(config: Config) -> Shapes:
    """Of transformers' own class, without what the hidden states do not need."""
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config))
    names = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    return {name: shape for name, shape in names.items() if not re.search("pooler|position_ids|inv_freq", name)}


def run_transformers(folder: Path, texts: list[list[int]]) -> list[torch.Tensor]:
    model, loading = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True
    )
    missing = [name for name in loading["missing_keys"] if "pooler" not in name]
    if missing or loading["unexpected_keys"] or loading["mismatched_keys"]:
        raise SystemExit(f"{folder.name}: transformers reads other tensors: {missing}, {loading}")
    model.eval()
    with torch.inference_mode():
        return [
            model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long)).last_hidden_state[0]
            for ids in texts
        ]


# ------------------------------------------------------------------ families that it lacks, or has in part


class Weights:
    """A checkpoint's tensors in float64, and the operations that read them."""

    def __init__(self, tensors: dict[str, np.ndarray], prefix: str, epsilon: float):
        self.tensors = {k.removeprefix(prefix): torch.from_numpy(v.astype(np.float64)) for k, v in tensors.items()}
        self.epsilon = epsilon

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.tensors[name + ".weight"], self.tensors.get(name + ".bias"))

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, x.shape[-1:], self.tensors[name + ".weight"], self.tensors[name + ".bias"], self.epsilon)

    def embed(self, ids: list[int], norm: str) -> torch.Tensor:
        """Word rows, the first type's row if there are types, RoBERTa's positions if there is a table."""
        x = self.tensors["embeddings.word_embeddings.weight"][ids]
        types = self.tensors.get("embeddings.token_type_embeddings.weight")
        table = self.tensors.get("embeddings.position_embeddings.weight")
        if types is not None:
            x = x + types[0]
        if table is not None:
            real = torch.tensor(ids) != PAD
            x = x + table[torch.where(real, real.cumsum(0) + PAD, PAD)]
        return self.norm(norm, x)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int, frequencies=None, bias=None) -> torch.Tensor:
    """softmax(q k / sqrt(d) + bias) v by head; queries and keys rotated first when there are frequencies."""
    length, width = q.shape
    q, k, v = (x.view(length, heads, width // heads).transpose(0, 1) for x in (q, k, v))
    if frequencies is not None:
        angles = torch.arange(length, dtype=torch.float32)[:, None] * torch.cat([frequencies, frequencies])
        half = width // heads // 2

        def rotate(x: torch.Tensor) -> torch.Tensor:
            return x * angles.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angles.sin()

        q, k = rotate(q), rotate(k)
    scores = q @ k.transpose(1, 2) / math.sqrt(width // heads)
    if bias is not None:
        scores = scores + bias
    return (scores.softmax(-1) @ v).transpose(0, 1).reshape(length, width)


def plain_frequencies(theta: float, dim: int) -> torch.Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def ntk_frequencies(theta: float, dim: int, factor: float) -> torch.Tensor:
    """Alibaba-NLP/new-impl, modeling.py, NTKScalingRotaryEmbedding without mixed_b."""
    return plain_frequencies(theta * factor, dim) / factor ** (2 / dim)


def dynamic_frequencies(theta: float, dim: int, factor: float, trained: int, length: int) -> torch.Tensor:
    """nomic-ai/nomic-bert-2048, modeling_hf_nomic_bert.py, NomicBertDynamicNTKRotaryEmbedding."""
    stretch = factor * length / trained - (factor - 1) if length > trained else 1.0
    return plain_frequencies(theta * stretch ** (dim / (dim - 2)), dim)


def slopes(heads: int) -> torch.Tensor:
    """Bloom's ALiBi of a text of two tokens has the slopes in its second column."""
    return build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]


def with_biases(shapes: dict[str, tuple[int, ...]], norms: list[str], biased: list[str]) -> Shapes:
    """Weights as given; a bias beside each of `biased`; both vectors of each norm."""
    result = {name + ".weight": shape for name, shape in shapes.items()}
    result |= {name + ".bias": shapes[name][:1] for name in biased}
    width = shapes["embeddings.word_embeddings"][1]
    return result | {f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")}


NOMIC = {
    "model_type": "nomic_bert", "vocab_size": VOCAB, "n_embd": HIDDEN, "n_head": HEADS, "n_inner": INNER, "n_layer": LAYERS,
    "n_positions": 64, "type_vocab_size": 2, "layer_norm_epsilon": 1e-5, "activation_function": "swiglu",
    "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": 2, "prenorm": False,
    "max_trained_positions": TRAINED, "parallel_block": False, "causal": False, "use_rms_norm": False,
    "scale_attn_weights": True,
}  # fmt: skip


def nomic_shapes(config: Config) -> Shapes:
    words, types = "embeddings.word_embeddings", "embeddings.token_type_embeddings"
    shapes, norms = {words: (VOCAB, HIDDEN), types: (2, HIDDEN)}, ["emb_ln"]
    biased = []
    for layer in range(LAYERS):
        p = f"encoder.layers.{layer}."
        linears = {p + "attn.Wqkv": (3 * HIDDEN, HIDDEN), p + "attn.out_proj": (HIDDEN, HIDDEN),
                   p + "mlp.fc11": (INNER, HIDDEN), p + "mlp.fc12": (INNER, HIDDEN), p + "mlp.fc2": (HIDDEN, INNER)}  # fmt: skip
        shapes |= linears
        norms += [p + "norm1", p + "norm2"]
        biased += linears if "n_embd" in config else []
    return with_biases(shapes, norms, biased)


def nomic(w: Weights, config: Config, ids: list[int]) -> torch.Tensor:
    """nomic-ai/nomic-bert-2048, modeling_hf_nomic_bert.py: post-norm NomicBertBlock with NomciBertGatedMLP."""
    frequencies = dynamic_frequencies(config["rotary_emb_base"], HIDDEN // HEADS, config["rotary_scaling_factor"],
                                      config["max_trained_positions"], len(ids))  # fmt: skip
    x = w.embed(ids, "emb_ln")
    for layer in range(LAYERS):
        p = f"encoder.layers.{layer}."
        mixed = attend(*w.linear(p + "attn.Wqkv", x).chunk(3, -1), HEADS, frequencies)
        x = w.norm(p + "norm1", x + w.linear(p + "attn.out_proj", mixed))
        middle = w.linear(p + "mlp.fc11", x) * silu(w.linear(p + "mlp.fc12", x))
        x = w.norm(p + "norm2", x + w.linear(p + "mlp.fc2", middle))
    return x


GTE_NEW = {
    **bert_config("new", type_vocab_size=0, position_embedding_type="rope", rope_theta=500, pack_qkv=True),
    "rope_scaling": {"type": "ntk", "factor": 2.0}, "layer_norm_type": "layer_norm", "logn_attention_scale": False,
}  # fmt: skip


def gte_shapes(config: Config) -> Shapes:
    shapes, norms = {"embeddings.word_embeddings": (VOCAB, HIDDEN)}, ["embeddings.LayerNorm"]
    if config["type_vocab_size"]:
        shapes["embeddings.token_type_embeddings"] = (1, HIDDEN)
    biased = []
    for layer in range(LAYERS):
        p = f"encoder.layer.{layer}."
        shapes |= {p + "attention.qkv_proj": (3 * HIDDEN, HIDDEN), p + "attention.o_proj": (HIDDEN, HIDDEN),
                   p + "mlp.up_gate_proj": (2 * INNER, HIDDEN), p + "mlp.down_proj": (HIDDEN, INNER)}  # fmt: skip
        biased += [p + "attention.qkv_proj", p + "attention.o_proj", p + "mlp.down_proj"]
        norms += [p + "attn_ln", p + "mlp_ln"]
    return with_biases(shapes, norms, biased)


def gte_new(w: Weights, config: Config, ids: list[int]) -> torch.Tensor:
    """Alibaba-NLP/new-impl, modeling.py: NewLayer, NewGatedMLP."""
    frequencies = ntk_frequencies(config["rope_theta"], HIDDEN // HEADS, config["rope_scaling"]["factor"])
    x = w.embed(ids, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        p = f"encoder.layer.{layer}."
        mixed = attend(*w.linear(p + "attention.qkv_proj", x).chunk(3, -1), HEADS, frequencies)
        x = w.norm(p + "attn_ln", x + w.linear(p + "attention.o_proj", mixed))
        up, gate = w.linear(p + "mlp.up_gate_proj", x).chunk(2, -1)
        x = w.norm(p + "mlp_ln", x + w.linear(p + "mlp.down_proj", up * gelu(gate)))
    return x


# Five heads: their slopes are interpolated, unlike those of a power of two.
JINA_HIDDEN, JINA_HEADS = 30, 5


def jina_config(kind: str, epsilon: float) -> Config:
    repository = "jinaai/jina-bert-v2-qk-post-norm" if kind == "qk-norm" else "jinaai/jina-bert-implementation"
    return {
        **bert_config("bert", hidden_size=JINA_HIDDEN, num_attention_heads=JINA_HEADS, layer_norm_eps=epsilon),
        "architectures": ["JinaBertModel"], "position_embedding_type": "alibi", "feed_forward_type": "geglu",
        "auto_map": {"AutoModel": f"{repository}--modeling_bert.JinaBertModel"},
    }  # fmt: skip


def jina_shapes(kind: str) -> Shapes:
    h = JINA_HIDDEN
    shapes = {"embeddings.word_embeddings": (VOCAB, h), "embeddings.token_type_embeddings": (2, h)}
    norms, biased = ["embeddings.LayerNorm"], []
    for layer in range(LAYERS):
        p = f"encoder.layer.{layer}."
        projections = [p + f"attention.{name}" for name in ("self.query", "self.key", "self.value", "output.dense")]
        up, down = ("gated_layers", "wo") if kind == "gated" else ("up_gated_layer", "down_layer")
        shapes |= {name: (h, h) for name in projections} | {p + f"mlp.{up}": (2 * INNER, h), p + f"mlp.{down}": (h, INNER)}
        biased += [*projections, p + f"mlp.{down}"]
        norms += [p + name for name in {
            "gated": ["attention.output.LayerNorm", "mlp.layernorm"],
            "up-gated": ["layer_norm_1", "layer_norm_2"],
            "qk-norm": ["attention.self.layer_norm_q", "attention.self.layer_norm_k", "attention.output.LayerNorm",
                        "layer_norm_1", "layer_norm_2"],
        }[kind]]  # fmt: skip
    return with_biases(shapes, norms, biased)


def jina(kind: str) -> Callable[[Weights, Config, list[int]], torch.Tensor]:
    """jinaai/jina-bert-implementation and jinaai/jina-bert-v2-qk-post-norm, modeling_bert.py; for the latter also
    text-embeddings-inference, backends/candle/src/models/jina_code.rs, the `forward` of attention and layer."""

    def forward(w: Weights, config: Config, ids: list[int]) -> torch.Tensor:
        x = w.embed(ids, "embeddings.LayerNorm")
        place = torch.arange(len(ids), dtype=torch.float32)
        bias = -slopes(JINA_HEADS)[:, None, None] * (place[:, None] - place).abs()
        for layer in range(LAYERS):
            p = f"encoder.layer.{layer}."
            q, k, v = (w.linear(p + f"attention.self.{name}", x) for name in ("query", "key", "value"))
            if kind == "qk-norm":
                q, k = w.norm(p + "attention.self.layer_norm_q", q), w.norm(p + "attention.self.layer_norm_k", k)
            mixed = x + w.linear(p + "attention.output.dense", attend(q, k, v, JINA_HEADS, bias=bias))
            if kind == "gated":
                x = w.norm(p + "attention.output.LayerNorm", mixed)
                gate, up = w.linear(p + "mlp.gated_layers", x).chunk(2, -1)
                x = w.norm(p + "mlp.layernorm", x + w.linear(p + "mlp.wo", gelu(gate) * up))
                continue
            if kind == "qk-norm":
                mixed = x + w.norm(p + "attention.output.LayerNorm", mixed)
            x = w.norm(p + "layer_norm_1", mixed)
            up, gate = w.linear(p + "mlp.up_gated_layer", x).chunk(2, -1)
            x = w.norm(p + "layer_norm_2", x + w.linear(p + "mlp.down_layer", up * gelu(gate)))
        return x

    return forward


def flash_config(positions: str) -> Config:
    return {
        **bert_config("xlm-roberta", **ROBERTA), "position_embedding_type": positions, "use_flash_attn": False,
        "rotary_emb_base": 500.0, "lora_adaptations": None, "truncate_dim": None,
        "auto_map": {"AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_xlm_roberta.XLMRobertaModel"},
    }  # fmt: skip


def flash_shapes(config: Config) -> Shapes:
    shapes = {"embeddings.word_embeddings": (VOCAB, HIDDEN), "embeddings.token_type_embeddings": (1, HIDDEN)}
    if config["position_embedding_type"] == "absolute":
        shapes["embeddings.position_embeddings"] = (ROWS, HIDDEN)
    norms, biased = ["emb_ln"], []
    for layer in range(LAYERS):
        p = f"encoder.layers.{layer}."
        linears = {p + "mixer.Wqkv": (3 * HIDDEN, HIDDEN), p + "mixer.out_proj": (HIDDEN, HIDDEN),
                   p + "mlp.fc1": (INNER, HIDDEN), p + "mlp.fc2": (HIDDEN, INNER)}  # fmt: skip
        shapes |= linears
        biased += linears
        norms += [p + "norm1", p + "norm2"]
    return with_biases(shapes, norms, biased)


def flash(w: Weights, config: Config, ids: list[int]) -> torch.Tensor:
    """jinaai/xlm-roberta-flash-implementation, modeling_xlm_roberta.py; Dao's flash_attn/modules/block.py, post-norm."""
    rotary = config["position_embedding_type"] == "rotary"
    frequencies = plain_frequencies(config["rotary_emb_base"], HIDDEN // HEADS) if rotary else None
    x = w.embed(ids, "emb_ln")
    for layer in range(LAYERS):
        p = f"encoder.layers.{layer}."
        mixed = attend(*w.linear(p + "mixer.Wqkv", x).chunk(3, -1), HEADS, frequencies)
        x = w.norm(p + "norm1", x + w.linear(p + "mixer.out_proj", mixed))
        x = w.norm(p + "norm2", x + w.linear(p + "mlp.fc2", gelu(w.linear(p + "mlp.fc1", x))))
    return x


# ------------------------------------------------------------------ the checkpoints


@dataclass(frozen=True)
class Checkpoint:
    config: Config
    shapes: Callable[[Config], Shapes] = class_shapes
    forward: Callable[[Weights, Config, list[int]], torch.Tensor] | None = None  # None is transformers' class
    prefix: str = ""
    norms_at: float = 1.0  # what the norms' weights are drawn around


def jina_checkpoint(kind: str, epsilon: float) -> Checkpoint:
    return Checkpoint(jina_config(kind, epsilon), lambda _: jina_shapes(kind), jina(kind))


CHECKPOINTS = {
    "bert": Checkpoint(bert_config("bert", layer_norm_eps=LARGE_EPSILON)),
    "distilbert": Checkpoint(DISTILBERT, prefix="distilbert."),
    "gemma3": Checkpoint(GEMMA3, norms_at=0.0),
    "gte-native": Checkpoint(GTE_NATIVE, gte_shapes),
    "gte-new": Checkpoint(GTE_NEW, gte_shapes, gte_new, prefix="new."),
    "jina-bert": jina_checkpoint("gated", 1e-12),
    "jina-bert-qk-norm": jina_checkpoint("qk-norm", LARGE_EPSILON),
    "jina-bert-up-gated": jina_checkpoint("up-gated", 1e-12),
    "modern-bert": Checkpoint(MODERN_BERT),
    "mpnet": Checkpoint(bert_config("mpnet", **ROBERTA, relative_attention_num_buckets=32)),
    "nomic-bert": Checkpoint(NOMIC, nomic_shapes, nomic),
    "nomic-bert-native": Checkpoint(NOMIC_NATIVE, nomic_shapes),
    "qwen3": Checkpoint(QWEN3),
    "roberta": Checkpoint(bert_config("roberta", **ROBERTA)),
    "xlm-roberta": Checkpoint(bert_config("xlm-roberta", **ROBERTA), prefix="roberta."),
    "xlm-roberta-flash-absolute": Checkpoint(flash_config("absolute"), flash_shapes, flash),
    "xlm-roberta-flash-rotary": Checkpoint(flash_config("rotary"), flash_shapes, flash, prefix="roberta."),
}


def make(out: Path, name: str, seed: int) -> str:
    it = CHECKPOINTS[name]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(it.config, indent=1) + "\n", "utf-8")
        tensors = {it.prefix + k: draw(k, shape, seed, it.norms_at) for k, shape in it.shapes(it.config).items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        ids = sequences(name, seed)
        if it.forward:
            epsilon = it.config.get("layer_norm_eps", it.config.get("layer_norm_epsilon"))
            weights = Weights(load_file(folder / "model.safetensors"), it.prefix, epsilon)
            with torch.inference_mode():
                hidden = [it.forward(weights, it.config, text) for text in ids]
        else:
            hidden = run_transformers(folder, ids)
        values = {
            "reference": "plain torch" if it.forward else f"transformers {transformers.__version__}",
            "ids": ids,
            "hidden": [[[round(x, 6) for x in row] for row in text.tolist()] for text in hidden],
        }
        (folder / "golden.json").write_text(json.dumps(values, allow_nan=False, separators=(",", ":")) + "\n", "utf-8")
        size = sum(file.stat().st_size for file in folder.iterdir())
        shutil.rmtree(out / name, ignore_errors=True)
        shutil.copytree(folder, out / name)
    return f"{name:28} {size / 1000:5.0f} kB"


def position_tables() -> dict[str, object]:
    """Rope tables are in f32 as the models compute them, slopes are Bloom's, buckets MPNet's."""
    distances = list(range(-200, 201))
    ropes = [{"theta": t, "head_dim": d, "frequencies": plain_frequencies(t, d)} for t, d in ((1e4, 64), (1.6e5, 12), (1e3, 6))]
    ropes += [
        {"theta": t, "head_dim": d, "ntk": {"factor": f}, "frequencies": ntk_frequencies(t, d, f)}
        for t, d, f in ((5e5, 12, 2.0), (2e4, 64, 8.0), (1e4, 6, 1.5))
    ]
    ropes += [
        {"theta": t, "head_dim": d, "dynamic": {"factor": f, "trained": n}, "length": length,
         "frequencies": dynamic_frequencies(t, d, f, n, length)}
        for t, d, f, n in ((1e3, 12, 2.0, 16), (1e3, 64, 2.0, 2048)) for length in (1, n, n + 1, 4 * n)
    ]  # fmt: skip
    return {
        "buckets": [
            {"buckets": n, "max_distance": 128, "first_distance": -200,
             "of": MPNetEncoder.relative_position_bucket(torch.tensor(distances), num_buckets=n, max_distance=128).tolist()}
            for n in (16, 32)
        ],
        "ropes": [{**rope, "frequencies": [float(f"{x:.9g}") for x in rope["frequencies"].tolist()]} for rope in ropes],
        "slopes": {str(heads): [float(f"{x:.9g}") for x in slopes(heads).tolist()] for heads in (5, 6, 8, 12)},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Tiny checkpoints of every family with reference hidden states.")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(CHECKPOINTS), default=list(CHECKPOINTS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=7, help="the committed fixtures have 7")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # poolers that the files lack are reported at length otherwise
    transformers.logging.disable_progress_bar()
    options.out_dir.mkdir(parents=True, exist_ok=True)
    tables = json.dumps(position_tables(), separators=(",", ":")) + "\n"
    (options.out_dir / "positions.json").write_text(tables, "utf-8")
    for name in options.only:
        print(make(options.out_dir, name, options.seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
