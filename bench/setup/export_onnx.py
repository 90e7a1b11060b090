#!/usr/bin/env python3
"""The folder that the ONNX rivals load: one BERT model as f32 graphs, with its tokenizer and configs.

usage: export_onnx.py MODEL_DIR OUT_DIR

  onnx/model.onnx         the plain graph, as hubs carry it: what @huggingface/transformers runs
  onnx/model_fused.onnx   the same after onnxruntime's own transformer optimizer (Attention, SkipLayerNormalization,
                          BiasGelu): the fastest f32 graph that its users can have

Both give token states for int64 input_ids, attention_mask and token_type_ids. They are checked against transformers
on a padded batch before they are kept, and the fused one must have every layer's attention fused.
tokenizer_config.json's model_max_length becomes sentence-transformers' max_seq_length, because
@huggingface/transformers looks nowhere else for the length to cut at.
"""
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
from transformers import AutoModel

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
OUTPUT = "last_hidden_state"
TOLERANCE = 1e-4  # largest difference of a token state; the states are of size 1


class ClassicBert(torch.nn.Module):
    """BERT spelt as in 2018, the pattern that onnxruntime's optimizer looks for: additive mask, explicit head split."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert
        self.heads = bert.config.num_attention_heads

    def forward(self, input_ids, attention_mask, token_type_ids):
        x = self.bert.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.bert.encoder.layer:
            attention, output = layer.attention.self, layer.attention.output
            q, k, v = (self.split(linear(x)) for linear in (attention.query, attention.key, attention.value))
            weights = torch.softmax(q @ k.transpose(-1, -2) / q.size(-1) ** 0.5 + mask, -1)
            context = (weights @ v).permute(0, 2, 1, 3).contiguous()
            context = context.view(context.size(0), context.size(1), x.size(2))
            x = output.LayerNorm(output.dense(context) + x)
            inner = torch.nn.functional.gelu(layer.intermediate.dense(x))
            x = layer.output.LayerNorm(layer.output.dense(inner) + x)
        return x

    def split(self, t):
        return t.view(t.size(0), t.size(1), self.heads, t.size(2) // self.heads).permute(0, 2, 1, 3)


def copy_configs(model, out):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        if (model / name).exists():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(model / name, out / name)
    config = json.loads((out / "tokenizer_config.json").read_text())
    config["model_max_length"] = json.loads((model / "sentence_bert_config.json").read_text())["max_seq_length"]
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def check(path, inputs, expected):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    got = session.run([OUTPUT], {name: tensor.numpy() for name, tensor in zip(INPUTS, inputs)})[0]
    difference = np.abs((got - expected.numpy()) * inputs[1].numpy()[..., None]).max()
    print(f"{path.name}: largest difference to transformers {difference:.1e}")
    if not difference < TOLERANCE:
        raise SystemExit(f"{path.name} differs by {difference} from transformers, at most {TOLERANCE} is allowed")


def main(model, out):
    (out / "onnx").mkdir(parents=True, exist_ok=True)
    copy_configs(model, out)
    plain, fused = out / "onnx/model.onnx", out / "onnx/model_fused.onnx"
    bert = AutoModel.from_pretrained(model, attn_implementation="eager", dtype=torch.float32).eval()
    ids = torch.arange(1000, 1018).reshape(2, 9)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    inputs = (ids, mask, torch.zeros_like(ids))
    with torch.no_grad():
        expected = bert(**dict(zip(INPUTS, inputs))).last_hidden_state
        torch.onnx.export(
            ClassicBert(bert).eval(), inputs, str(plain), input_names=INPUTS, output_names=[OUTPUT], opset_version=17, dynamo=False,
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in [*INPUTS, OUTPUT]},
        )
    check(plain, inputs, expected)

    options = FusionOptions("bert")
    options.enable_embed_layer_norm = False  # wants int32 inputs, and gains nothing
    # opt_level 0: fusions only. The rest of onnxruntime's passes run when the session is made, on the processor that runs it.
    graph = optimizer.optimize_model(
        str(plain), model_type="bert", num_heads=bert.config.num_attention_heads, hidden_size=bert.config.hidden_size,
        optimization_options=options, opt_level=0,
    )
    counts = graph.get_fused_operator_statistics()
    layers = bert.config.num_hidden_layers
    wanted = {"Attention": layers, "SkipLayerNormalization": 2 * layers, "BiasGelu": layers}
    if missing := {name: counts[name] for name, count in wanted.items() if counts[name] != count}:
        raise SystemExit(f"fused {missing}, expected {wanted}")
    graph.save_model_to_file(str(fused))
    check(fused, inputs, expected)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
