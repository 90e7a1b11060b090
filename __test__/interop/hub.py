"""What Python's huggingface_hub makes of a cache, for huggingface_hub.ts: one command, its answer as JSON."""

import json
import os
import sys

import huggingface_hub
from huggingface_hub.utils import WeakFileLock


def look(cache: str, model: str) -> dict:
    """What it finds without a connection."""
    snapshot = huggingface_hub.snapshot_download(model, cache_dir=cache, local_files_only=True)
    report = huggingface_hub.scan_cache_dir(cache)
    (repo,) = report.repos
    return {
        "snapshot": snapshot,
        "config": huggingface_hub.try_to_load_from_cache(model, "config.json", cache_dir=cache),
        "warnings": [str(warning) for warning in report.warnings],
        "size": repo.size_on_disk,
        "refs": {name: revision.commit_hash for name, revision in repo.refs.items()},
        "files": sorted(os.path.relpath(file.file_path, snapshot) for revision in repo.revisions for file in revision.files),
    }


def download(cache: str, model: str) -> dict:
    """Everything from the hub that HF_ENDPOINT names."""
    return {"snapshot": huggingface_hub.snapshot_download(model, cache_dir=cache)}


def lock(path: str) -> dict:
    """Holds a lock until its input ends."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with WeakFileLock(path):
        print("locked", flush=True)
        sys.stdin.read()
    return {}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    print(json.dumps({"look": look, "download": download, "lock": lock}[command](*arguments)))
