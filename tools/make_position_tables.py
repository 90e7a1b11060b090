#!/usr/bin/env python3
"""Tables by which position enters, from other implementations: __test__/fixtures/reference/positions.json.

    python tools/make_position_tables.py __test__/fixtures/reference/positions.json

`buckets`: MPNet's relative buckets of -200..200 from transformers. `slopes`: ALiBi's, from transformers' BLOOM where the number
of heads is a power of two and after Press et al.'s published function for the others. `frequencies`: rotary frequencies;
`dynamic` from transformers' own dynamic NTK rule (`rope_type: "dynamic"`), the others by their formula in float64.
"""
import json
import math
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder


def slopes(heads):
    # ofirpress/attention_with_linear_biases, get_slopes
    def power(n):
        start = 2 ** -(2 ** -(math.log2(n) - 3))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1].tolist()
        assert max(abs(a - b) for a, b in zip(theirs, power(heads))) < 1e-7
        return theirs
    lower = 2 ** math.floor(math.log2(heads))
    return power(lower) + slopes(2 * lower)[0::2][: heads - lower]


def dynamic(dim, base, factor, trained, length):
    config = LlamaConfig(hidden_size=dim, num_attention_heads=1, max_position_embeddings=trained,
                         rope_parameters={"rope_type": "dynamic", "rope_theta": base, "factor": factor})
    return ROPE_INIT_FUNCTIONS["dynamic"](config, "cpu", seq_len=length)[0].tolist()


distances = torch.arange(-200, 201)
tables = {
    "buckets": [{"buckets": n, "max_distance": 128,
                 "of": MPNetEncoder.relative_position_bucket(distances, num_buckets=n, max_distance=128).tolist()} for n in (8, 32, 64)],
    "slopes": [{"heads": n, "of": slopes(n)} for n in (1, 2, 5, 6, 8, 12, 16, 20)],
    "frequencies": [
        *({"dim": d, "theta": t, "factor": f, "trained": n, "length": l, "of": dynamic(d, t, f, n, l)}
          for d, t, f, n, l in [(64, 1000.0, 2.0, 2048, 2048), (64, 1000.0, 2.0, 2048, 2049), (64, 1000.0, 2.0, 2048, 8192),
                                (12, 1000.0, 2.0, 16, 40), (64, 1000.0, 2.0, 2048, 5)]),
        *({"dim": d, "theta": t, "factor": f, "of": [(t * f) ** (-2 * i / d) / f ** (2 / d) for i in range(d // 2)]}
          for d, t, f in [(64, 20000.0, 8.0), (64, 500000.0, 2.0), (12, 20000.0, 8.0)]),
        *({"dim": d, "theta": t, "of": [t ** (-2 * i / d) for i in range(d // 2)]} for d, t in [(64, 160000.0), (128, 1e6), (256, 1e4), (12, 1e4)]),
    ],
}
Path(sys.argv[1]).write_text(json.dumps(tables) + "\n")
