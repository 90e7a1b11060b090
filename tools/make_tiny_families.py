#!/usr/bin/env python3
"""One checkpoint of every family in awkward sizes: hidden 60, 5 heads of 12, a middle of 100; grouped heads 4:2.

    python tools/make_tiny_families.py __test__/fixtures/odd

Each folder has config.json and golden.json: `tensors` (name to shape, offset and scale), `ids` of a few texts and their
`hidden` states. Weights are not stored: element i of the tensor called n is offset + scale * u(n, i), where u comes from
a hash (`uniform` below; the test in crates/encoder/tests/encoder/families.rs has the same), all in float32. Hidden states come from
transformers where it has the architecture (XLM-RoBERTa, BERT, …), else from the forward passes below, in float64, written
after upstream's code; they are independent of the Rust code. The same bytes on every run with the same versions.
"""
from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers

VOCAB, HIDDEN, HEADS, INNER = 41, 60, 5, 100
# A single token, one that fits no tile, one beyond windows (8) and trained positions (16).
LENGTHS = (1, 13, 40)


def fnv(name: str) -> int:
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def uniform(name: str, count: int) -> np.ndarray:
    """`count` values in -1..1 (multiples of 2^-23, so exact in float32): splitmix64 from the name's FNV-1a hash."""
    with np.errstate(over="ignore"):
        x = np.uint64(fnv(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return ((x >> np.uint64(40)).astype(np.float64) / 2.0**23 - 1.0).astype(np.float32)


def describe(name: str, shape: tuple[int, ...], centre: float) -> dict:
    """Offset and scale: wide weights, so that errors show. `centre` is what norms' weights lie around."""
    norm = len(shape) == 1 and name.endswith("weight")
    if norm:
        return {"shape": shape, "offset": centre, "scale": 0.3}
    if len(shape) == 1:
        return {"shape": shape, "offset": 0.0, "scale": 0.2}
    if "embed" in name or "bias" in name:
        return {"shape": shape, "offset": 0.0, "scale": 1.0}
    return {"shape": shape, "offset": 0.0, "scale": round(2.2 / math.sqrt(shape[1]), 4)}


def values(name: str, tensor: dict) -> torch.Tensor:
    flat = np.float32(tensor["offset"]) + np.float32(tensor["scale"]) * uniform(name, math.prod(tensor["shape"]))
    return torch.from_numpy(flat.astype(np.float32).reshape(tensor["shape"]))


def texts(pad: int | None) -> list[list[int]]:
    """Ids; in the longest the padding token stands in the middle, for families whose positions count without it."""
    rows = [[int(v) for v in (uniform(f"text of {n}", n).astype(np.float64) + 1) / 2 * (VOCAB - 2) + 2] for n in LENGTHS]
    if pad is not None:
        rows[-1][7] = pad
    return rows


def write(out: Path, name: str, config: dict, shapes: dict, forward, reference: str, centre=1.0, pad=None) -> None:
    tensors = {key: describe(key, tuple(shape), centre) for key, shape in sorted(shapes.items())}
    weights = {key: values(key, tensor) for key, tensor in tensors.items()}
    ids = texts(pad)
    with torch.inference_mode():
        hidden = [forward(weights, config, row) for row in ids]
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    rounded = [[[float(f"{v:.8g}") for v in state] for state in text.tolist()] for text in hidden]
    assert all(math.isfinite(v) for text in rounded for state in text for v in state)
    golden = {"reference": reference, "tensors": tensors, "ids": ids, "hidden": rounded}
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


# ---------------------------------------------------------------- families that transformers has
def native(out: Path, name: str, config: dict, centre=1.0, pad=None, rename=lambda key: key) -> None:
    made = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    model = transformers.AutoModel.from_config(made, attn_implementation="eager").eval()
    shapes = {rename(k): tuple(v.shape) for k, v in model.state_dict().items() if not k.startswith("pooler.") and "inv_freq" not in k}
    shapes = {k: v for k, v in shapes.items() if not k.endswith("_ids")}

    def forward(weights, _config, ids):
        state = {k: weights[rename(k)] for k in model.state_dict() if rename(k) in weights}
        result = model.load_state_dict(state, strict=False)
        assert not [k for k in result.missing_keys if not k.startswith("pooler.") and "inv_freq" not in k and not k.endswith("_ids")], result
        return model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long)).last_hidden_state[0]

    write(out, name, config, shapes, forward, f"transformers {transformers.__version__}", centre, pad)


def bert_like(model_type: str, **changes) -> dict:
    return {"model_type": model_type, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": 2,
            "intermediate_size": INNER, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "vocab_size": VOCAB,
            "max_position_embeddings": 64, **changes}


# ---------------------------------------------------------------- families that it has not, or with other rules
def linear(w, name, x, bias=True):
    return F.linear(x, w[name + ".weight"].double(), w[name + ".bias"].double() if bias else None)


def norm(w, name, x, eps):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"].double(), w[name + ".bias"].double(), eps)


def rotate(x, frequencies):
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies[None]
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def attend(q, k, v, heads, frequencies=None, bias=0.0):
    q, k, v = (x.view(len(x), heads, -1).transpose(0, 1) for x in (q, k, v))
    if frequencies is not None:
        q, k = rotate(q, frequencies), rotate(k, frequencies)
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + bias
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)


def frequencies(dim, base):
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def words(w, ids, types="embeddings.token_type_embeddings.weight"):
    x = w["embeddings.word_embeddings.weight"].double()[ids]
    return x + w[types].double()[0] if types in w else x


def dimensions(prefix, *linears, norms=()):
    """Shapes of linear layers (name, out, in, bias) and norms (name, width) behind a prefix."""
    shapes = {}
    for name, outputs, inputs, bias in linears:
        shapes[f"{prefix}{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{prefix}{name}.bias"] = (outputs,)
    for name, width in norms:
        shapes |= {f"{prefix}{name}.weight": (width,), f"{prefix}{name}.bias": (width,)}
    return shapes


# nomic-ai/nomic-bert-2048, modeling_hf_nomic_bert.py: NomicBertDynamicNTKRotaryEmbedding, NomciBertGatedMLP.
def nomic(w, c, ids):
    heads, dim = c["n_head"], c["n_embd"] // c["n_head"]
    base, trained, factor = c["rotary_emb_base"], c["max_trained_positions"], c["rotary_scaling_factor"]
    if factor and len(ids) > trained:
        base *= (factor * len(ids) / trained - (factor - 1)) ** (dim / (dim - 2))
    x = norm(w, "emb_ln", words(w, ids), c["layer_norm_epsilon"])
    for i in range(c["n_layer"]):
        p = f"encoder.layers.{i}."
        q, k, v = linear(w, p + "attn.Wqkv", x, c["qkv_proj_bias"]).chunk(3, -1)
        a = linear(w, p + "attn.out_proj", attend(q, k, v, heads, frequencies(dim, base)), c["qkv_proj_bias"])
        x = norm(w, p + "norm1", x + a, c["layer_norm_epsilon"])
        y = linear(w, p + "mlp.fc11", x, c["mlp_fc1_bias"]) * F.silu(linear(w, p + "mlp.fc12", x, c["mlp_fc1_bias"]))
        x = norm(w, p + "norm2", x + linear(w, p + "mlp.fc2", y, c["mlp_fc2_bias"]), c["layer_norm_epsilon"])
    return x


def nomic_config(factor, bias):
    return {"model_type": "nomic_bert", "activation_function": "swiglu", "n_embd": HIDDEN, "n_head": HEADS, "n_inner": INNER,
            "n_layer": 2, "n_positions": 64, "vocab_size": VOCAB, "type_vocab_size": 2, "layer_norm_epsilon": 1e-5,
            "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "causal": False, "prenorm": False,
            "rotary_scaling_factor": factor, "max_trained_positions": 16, "qkv_proj_bias": bias, "mlp_fc1_bias": bias, "mlp_fc2_bias": bias}


def nomic_shapes(bias):
    shapes = {"embeddings.word_embeddings.weight": (VOCAB, HIDDEN), "embeddings.token_type_embeddings.weight": (2, HIDDEN)}
    shapes |= dimensions("", norms=[("emb_ln", HIDDEN)])
    for i in range(2):
        shapes |= dimensions(f"encoder.layers.{i}.", ("attn.Wqkv", 3 * HIDDEN, HIDDEN, bias), ("attn.out_proj", HIDDEN, HIDDEN, bias),
                             ("mlp.fc11", INNER, HIDDEN, bias), ("mlp.fc12", INNER, HIDDEN, bias), ("mlp.fc2", HIDDEN, INNER, bias),
                             norms=[("norm1", HIDDEN), ("norm2", HIDDEN)])
    return shapes


# Alibaba-NLP/new-impl, modeling.py: NTKScalingRotaryEmbedding, NewGatedMLP.
def gte(w, c, ids):
    heads, dim, eps, ff = c["num_attention_heads"], c["hidden_size"] // c["num_attention_heads"], c["layer_norm_eps"], c["intermediate_size"]
    factor = c["rope_scaling"]["factor"]
    f = frequencies(dim, c["rope_theta"] * factor) / factor ** (2 / dim)
    x = norm(w, "embeddings.LayerNorm", words(w, ids), eps)
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        q, k, v = linear(w, p + "attention.qkv_proj", x).chunk(3, -1)
        x = norm(w, p + "attn_ln", x + linear(w, p + "attention.o_proj", attend(q, k, v, heads, f)), eps)
        u = linear(w, p + "mlp.up_gate_proj", x, False)
        x = norm(w, p + "mlp_ln", x + linear(w, p + "mlp.down_proj", u[:, :ff] * F.gelu(u[:, ff:])), eps)
    return x


def gte_shapes():
    shapes = {"embeddings.word_embeddings.weight": (VOCAB, HIDDEN), "embeddings.token_type_embeddings.weight": (1, HIDDEN)}
    shapes |= dimensions("embeddings.", norms=[("LayerNorm", HIDDEN)])
    for i in range(2):
        shapes |= dimensions(f"encoder.layer.{i}.", ("attention.qkv_proj", 3 * HIDDEN, HIDDEN, True), ("attention.o_proj", HIDDEN, HIDDEN, True),
                             ("mlp.up_gate_proj", 2 * INNER, HIDDEN, False), ("mlp.down_proj", HIDDEN, INNER, True),
                             norms=[("attn_ln", HIDDEN), ("mlp_ln", HIDDEN)])
    return shapes


def slopes(heads):
    """Press et al. 2021, ofirpress/attention_with_linear_biases, get_slopes."""
    if math.log2(heads).is_integer():
        start = 2.0 ** -(2.0 ** -(math.log2(heads) - 3))
        return [start ** (i + 1) for i in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return slopes(lower) + slopes(2 * lower)[0::2][: heads - lower]


# jinaai/jina-bert-implementation and jina-bert-v2-qk-post-norm, modeling_bert.py; text-embeddings-inference, jina_code.rs.
def jina(w, c, ids):
    eps, heads, ff = c["layer_norm_eps"], c["num_attention_heads"], c["intermediate_size"]
    activation = {"geglu": F.gelu, "reglu": F.relu}[c["feed_forward_type"]]
    places = torch.arange(len(ids), dtype=torch.float64)
    bias = -torch.tensor(slopes(heads), dtype=torch.float64)[:, None, None] * (places[:, None] - places[None]).abs()
    x = norm(w, "embeddings.LayerNorm", words(w, ids), eps)
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        q, k, v = (linear(w, f"{p}attention.self.{part}", x) for part in ("query", "key", "value"))
        if p + "attention.self.layer_norm_q.weight" in w:
            q, k = norm(w, p + "attention.self.layer_norm_q", q, eps), norm(w, p + "attention.self.layer_norm_k", k, eps)
        a = linear(w, p + "attention.output.dense", attend(q, k, v, heads, bias=bias))
        if p + "attention.output.LayerNorm.weight" in w:
            a = norm(w, p + "attention.output.LayerNorm", x + a, eps)
        if p + "layer_norm_1.weight" in w:
            a = norm(w, p + "layer_norm_1", x + a, eps)
        if p + "mlp.gated_layers.weight" in w:
            g = linear(w, p + "mlp.gated_layers", a, False)
            x = norm(w, p + "mlp.layernorm", a + linear(w, p + "mlp.wo", activation(g[:, :ff]) * g[:, ff:]), eps)
        else:
            g = linear(w, p + "mlp.up_gated_layer", a, False)
            x = norm(w, p + "layer_norm_2", a + linear(w, p + "mlp.down_layer", g[:, :ff] * activation(g[:, ff:])), eps)
    return x


def jina_config(**changes):
    return {"architectures": ["JinaBertForMaskedLM"], **bert_like("bert"), "position_embedding_type": "alibi", "feed_forward_type": "geglu",
            "type_vocab_size": 2, **changes}


def jina_shapes(up_gated, attention_norm, qk_norm):
    shapes = {"embeddings.word_embeddings.weight": (VOCAB, HIDDEN), "embeddings.token_type_embeddings.weight": (2, HIDDEN)}
    shapes |= dimensions("embeddings.", norms=[("LayerNorm", HIDDEN)])
    for i in range(2):
        square = [(f"attention.self.{part}", HIDDEN, HIDDEN, True) for part in ("query", "key", "value")]
        mlp = [("mlp.up_gated_layer", 2 * INNER, HIDDEN, False), ("mlp.down_layer", HIDDEN, INNER, True)] if up_gated else \
              [("mlp.gated_layers", 2 * INNER, HIDDEN, False), ("mlp.wo", HIDDEN, INNER, True)]
        norms = ["layer_norm_1", "layer_norm_2"] if up_gated else ["mlp.layernorm"]
        norms += ["attention.output.LayerNorm"] * attention_norm + ["attention.self.layer_norm_q", "attention.self.layer_norm_k"] * qk_norm
        shapes |= dimensions(f"encoder.layer.{i}.", *square, ("attention.output.dense", HIDDEN, HIDDEN, True), *mlp,
                             norms=[(name, HIDDEN) for name in norms])
    return shapes


# jinaai/xlm-roberta-flash-implementation, modeling_xlm_roberta.py, block.py, embedding.py.
def xlm_flash(w, c, ids):
    w = {key.removeprefix("roberta."): value for key, value in w.items()}
    heads, eps = c["num_attention_heads"], c["layer_norm_eps"]
    f = None
    x = words(w, ids)
    if c["position_embedding_type"] == "absolute":
        pad, seen, rows = c["pad_token_id"], 0, []
        for token in ids:
            seen += token != pad
            rows.append(pad if token == pad else pad + seen)
        x = x + w["embeddings.position_embeddings.weight"].double()[rows]
    else:
        f = frequencies(c["hidden_size"] // heads, c["rotary_emb_base"])
    x = norm(w, "emb_ln", x, eps)
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layers.{i}."
        q, k, v = linear(w, p + "mixer.Wqkv", x).chunk(3, -1)
        x = norm(w, p + "norm1", x + linear(w, p + "mixer.out_proj", attend(q, k, v, heads, f)), eps)
        x = norm(w, p + "norm2", x + linear(w, p + "mlp.fc2", F.gelu(linear(w, p + "mlp.fc1", x))), eps)
    return x


def xlm_flash_shapes(absolute, prefix=""):
    shapes = {prefix + "embeddings.word_embeddings.weight": (VOCAB, HIDDEN), prefix + "embeddings.token_type_embeddings.weight": (1, HIDDEN)}
    if absolute:
        shapes[prefix + "embeddings.position_embeddings.weight"] = (66, HIDDEN)
    shapes |= dimensions(prefix, norms=[("emb_ln", HIDDEN)])
    for i in range(2):
        shapes |= dimensions(f"{prefix}encoder.layers.{i}.", ("mixer.Wqkv", 3 * HIDDEN, HIDDEN, True), ("mixer.out_proj", HIDDEN, HIDDEN, True),
                             ("mlp.fc1", INNER, HIDDEN, True), ("mlp.fc2", HIDDEN, INNER, True), norms=[("norm1", HIDDEN), ("norm2", HIDDEN)])
    return shapes


def xlm_flash_config(position):
    code = "jinaai/xlm-roberta-flash-implementation--modeling_xlm_roberta.XLMRobertaModel"
    return {**bert_like("xlm-roberta"), "auto_map": {"AutoModel": code}, "max_position_embeddings": 66, "pad_token_id": 1,
            "type_vocab_size": 1, "position_embedding_type": position, "rotary_emb_base": 10000.0, "use_flash_attn": True}


def main() -> None:
    out = Path(sys.argv[1])
    native(out, "bert", bert_like("bert", type_vocab_size=2))
    native(out, "bert-relu-eps", bert_like("bert", type_vocab_size=2, hidden_act="relu", layer_norm_eps=0.1))
    native(out, "roberta", bert_like("roberta", type_vocab_size=1, max_position_embeddings=66, pad_token_id=1), pad=1)
    native(out, "xlm-roberta", bert_like("xlm-roberta", type_vocab_size=1, max_position_embeddings=66, pad_token_id=1), pad=1)
    native(out, "mpnet", bert_like("mpnet", max_position_embeddings=66, pad_token_id=1, relative_attention_num_buckets=32), pad=1)
    native(out, "distilbert", {"model_type": "distilbert", "dim": HIDDEN, "n_heads": HEADS, "n_layers": 2, "hidden_dim": INNER,
                               "activation": "gelu", "vocab_size": VOCAB, "max_position_embeddings": 64, "sinusoidal_pos_embds": False})
    native(out, "modernbert", {"model_type": "modernbert", "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": 4,
                               "intermediate_size": INNER, "hidden_activation": "gelu", "norm_eps": 1e-5, "norm_bias": False,
                               "attention_bias": False, "mlp_bias": False, "vocab_size": VOCAB, "max_position_embeddings": 64,
                               "global_attn_every_n_layers": 3, "local_attention": 8, "global_rope_theta": 160000.0,
                               "local_rope_theta": 10000.0, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2,
                               "sep_token_id": 3})
    grouped = {"hidden_size": HIDDEN, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "intermediate_size": INNER,
               "rms_norm_eps": 1e-6, "vocab_size": VOCAB, "max_position_embeddings": 64, "attention_bias": False}
    native(out, "qwen3", {"model_type": "qwen3", **grouped, "num_hidden_layers": 2, "hidden_act": "silu", "rope_theta": 1000000.0,
                          "use_sliding_window": False})
    native(out, "gemma3", {"model_type": "gemma3_text", **grouped, "num_hidden_layers": 4, "hidden_activation": "gelu_pytorch_tanh",
                           "query_pre_attn_scalar": 20, "sliding_window": 8, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                           "layer_types": ["sliding_attention", "full_attention"] * 2, "use_bidirectional_attention": True,
                           "pad_token_id": 0}, centre=0.0)
    own = "own forward pass, float64"
    write(out, "nomic", nomic_config(None, False), nomic_shapes(False), nomic, own)
    write(out, "nomic-dynamic-ntk-biases", nomic_config(2, True), nomic_shapes(True), nomic, own)
    gte_config = {**bert_like("new"), "position_embedding_type": "rope", "rope_theta": 20000.0, "type_vocab_size": 1, "pack_qkv": True,
                  "rope_scaling": {"type": "ntk", "factor": 8.0}, "layer_norm_type": "layer_norm"}
    write(out, "gte-new", gte_config, gte_shapes(), gte, own)
    write(out, "jina-bert", jina_config(), jina_shapes(False, True, False), jina, own)
    write(out, "jina-bert-12-heads", jina_config(num_attention_heads=12), jina_shapes(False, True, False), jina, own)
    write(out, "jina-bert-reglu", jina_config(feed_forward_type="reglu"), jina_shapes(True, False, False), jina, own)
    write(out, "jina-bert-qk-norm", jina_config(), jina_shapes(True, True, True), jina, own)
    write(out, "xlm-roberta-flash", xlm_flash_config("rotary"), xlm_flash_shapes(False, "roberta."), xlm_flash, own)
    write(out, "xlm-roberta-flash-absolute", xlm_flash_config("absolute"), xlm_flash_shapes(True), xlm_flash, own, pad=1)


if __name__ == "__main__":
    main()
