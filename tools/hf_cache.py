"""The Hugging Face cache, as much of it as writing one pinned revision needs. Standard library only.

    <cache>/models--<org>--<name>/blobs/<name of the content>
                                 /refs/main                       the commit that `main` is
                                 /snapshots/<commit>/<path>       -> ../../blobs/<name of the content>

Contract
- A blob is named as the hub names it: sha256 for a file that upstream keeps in LFS, git SHA-1 for any other.
- A file appears under its name only when it is whole and has the pinned size and sha256: temporary file, check, rename.
- Where the system refuses symlinks the snapshot holds plain copies; every reader of this layout accepts both.
"""
from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO


class FetchError(Exception):
    """A model could not be had; the message says what to do."""


@dataclass(frozen=True)
class File:
    path: str
    size: int
    sha256: str
    lfs: bool = False  # kept in LFS upstream, so that its blob is named by sha256


class Checked:
    """A binary sink that counts and hashes what goes through it."""

    def __init__(self, sink: BinaryIO, size: int) -> None:
        self.sink, self.size = sink, 0
        self.sha256 = hashlib.sha256()
        self.git = hashlib.sha1(b"blob %d\0" % size)

    def write(self, data: bytes) -> int:
        self.size += len(data)
        self.sha256.update(data)
        self.git.update(data)
        return self.sink.write(data)


class Repository:
    """One revision of one model in a Hugging Face cache."""

    def __init__(self, cache: Path, model_id: str, commit: str, files: tuple[File, ...]) -> None:
        self.id, self.commit, self.files = model_id, commit, files
        self.folder = cache / ("models--" + model_id.replace("/", "--"))
        self.snapshot = self.folder / "snapshots" / commit
        self.ref = self.folder / "refs" / "main"

    def missing(self) -> list[File]:
        """Files that are not there, or not whole."""
        return [f for f in self.files if not is_file_of(self.snapshot / f.path, f.size)]

    def other_snapshot(self) -> Path | None:
        """The snapshot of another commit that `refs/main` names, when it holds a whole model: somebody else's, left alone."""
        if not self.ref.is_file():
            return None
        found = self.folder / "snapshots" / self.ref.read_text().strip()
        weights = ("model.safetensors", "model.safetensors.index.json")
        whole = all((found / f).is_file() for f in ("config.json", "tokenizer.json"))
        return found if whole and found != self.snapshot and any((found / f).is_file() for f in weights) else None

    def put(self, file: File, produce: Callable[[BinaryIO], object]) -> None:
        """Writes one file: blob first, whole and checked, then its name in the snapshot."""
        blobs = self.folder / "blobs"
        blobs.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=blobs, suffix=".incomplete")
        try:
            with os.fdopen(handle, "wb") as sink:
                checked = Checked(sink, file.size)
                produce(checked)  # type: ignore[arg-type]
                sink.flush()
                os.fsync(sink.fileno())
            if (checked.size, checked.sha256.hexdigest()) != (file.size, file.sha256):
                raise FetchError(
                    f"{self.id}/{file.path}: got {checked.size} bytes, sha256 {checked.sha256.hexdigest()}; "
                    f"pinned are {file.size} bytes, sha256 {file.sha256}"
                )
            blob = blobs / (file.sha256 if file.lfs else checked.git.hexdigest())
            os.chmod(name, 0o644)
            os.replace(name, blob)
        finally:
            Path(name).unlink(missing_ok=True)
        self._link(self.snapshot / file.path, blob)

    def _link(self, pointer: Path, blob: Path) -> None:
        pointer.parent.mkdir(parents=True, exist_ok=True)
        temporary = pointer.with_name(f".{pointer.name}.{os.getpid()}")
        try:
            temporary.symlink_to(PurePosixPath(os.path.relpath(blob, pointer.parent).replace(os.sep, "/")))
        except OSError:  # Windows without the privilege, some network file systems
            shutil.copyfile(blob, temporary)
        os.replace(temporary, pointer)

    def name_main(self) -> None:
        """Lets `refs/main` name this revision, whatever it named before."""
        if self.ref.is_file() and self.ref.read_text().strip() == self.commit:
            return
        self.ref.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.ref.with_name(f".main.{os.getpid()}")
        temporary.write_text(self.commit)
        os.replace(temporary, self.ref)


def is_file_of(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def sha256_of(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def user_cache() -> Path:
    """The cache of the Python libraries, by their own rules."""

    def folder(name: str) -> Path | None:
        value = os.environ.get(name, "").strip()
        return Path(os.path.expandvars(value)).expanduser() if value else None

    home, xdg = folder("HF_HOME"), folder("XDG_CACHE_HOME") or Path.home() / ".cache"
    return folder("HF_HUB_CACHE") or folder("HUGGINGFACE_HUB_CACHE") or (home or xdg / "huggingface") / "hub"
