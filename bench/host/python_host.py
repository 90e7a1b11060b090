#!/usr/bin/env python3
"""Runs one Python engine: `python_host.py ADAPTER OPTIONS_JSON`. The protocol is in lib/engine_process.mjs.

An adapter has load(options) and embed(texts) -> float32 array [texts, dimensions] of unit rows, in the order of the texts.
"""
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

adapter, options = sys.argv[1:3]
protocol = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the engine prints goes to the log
corpora_folder = Path(__file__).resolve().parent.parent / ".work" / "corpora"
corpora = {}
engine = None


def texts_of(name):
    if name not in corpora:
        corpora[name] = [json.loads(line) for line in (corpora_folder / f"{name}.jsonl").open(encoding="utf-8")]
    return corpora[name]


def milliseconds(work):
    start = time.perf_counter()
    result = work()
    return 1000 * (time.perf_counter() - start), result


def load():
    def first_vector():
        global engine
        spec = importlib.util.spec_from_file_location("engine", adapter)
        engine = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(engine)
        engine.load(json.loads(options))
        engine.embed(["hello world"])

    return {"ms": milliseconds(first_vector)[0]}


def embed(corpus, file=None):
    ms, vectors = milliseconds(lambda: engine.embed(texts_of(corpus)))
    if file is not None:
        np.ascontiguousarray(vectors, dtype=np.float32).tofile(file)
    return {"ms": ms, "rows": len(vectors)}


def latency(corpus, count, warm):
    texts = texts_of(corpus)[:count]
    for text in texts[:warm]:
        engine.embed([text])
    return {"ms": [milliseconds(lambda: engine.embed([text]))[0] for text in texts]}


commands = {"load": load, "embed": embed, "latency": latency}
for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = {"ok": True, **commands[request.pop("command")](**request)}
    except Exception as error:  # the engine's; the driver decides what it means
        answer = {"ok": False, "error": repr(error)}
    protocol.write(json.dumps(answer) + "\n")
    protocol.flush()
