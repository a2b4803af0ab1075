"""Polled items: what lies at a place that is looked at, how it stands, and which number it is delivered by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from embedwatch.core.errors import EmbedwatchError, InputError, UsageError
from embedwatch.index_health import IndexQuestions
from embedwatch.sources import open_source

__all__ = ["WHOLE", "Item", "Polled", "Questions", "Signature", "items_of", "number_of", "signature_of"]

STEP = re.compile(r"(\d+)(?=\D*$)")
"""The last number in a name is the step: `step-00000200`, `checkpoint-500`, `epoch=1-step=500.safetensors`."""
NUMBER_BYTES = 7
"""Of a digest, so that it is a whole number that JSON and SQLite hold."""
RUN_FOLDER = "checkpoints"
"""Where a run keeps its checkpoints, if the folder of the run is named."""

WHOLE = "all"
"""Segment of what is not one file of several."""
Signature = str


@dataclass(frozen=True)
class Questions:
    """What is asked of a model: arguments of `audit` by the same names."""

    text: Path | None = None
    prompts: Path | None = None
    length: int | None = None
    deep: bool = False


@dataclass(frozen=True)
class Polled:
    """What is looked at.

    Args:
        kind: `checkpoints`: a folder in which each checkpoint that appears is audited; `files`: a file, a folder that
            is one source (Parquet), or a folder of files.
        path: where it is.
        name: label `model` of what is found.
        every: seconds between two looks.
        questions: what is asked of the models in checkpoints.
        index: what is asked of an index among the files; it is asked again when these change.
    """

    kind: Literal["checkpoints", "files"]
    path: Path
    name: str
    every: float = 300.0
    questions: Questions = Questions()
    index: IndexQuestions = field(default_factory=IndexQuestions)

    def __post_init__(self) -> None:
        if not self.every > 0:
            raise UsageError(f"`every` must be above 0 seconds, got {self.every!r}; 300 is usual")

    def signature_of(self, path: Path) -> Signature:
        """Return a digest of what lies there, and of what it is asked with."""
        beside = [Path(each) for each in (self.index.queries, self.index.present) if isinstance(each, Path)]
        return signature_of(path) + "".join(signature_of(each) for each in beside if each.exists())


@dataclass(frozen=True)
class Item:
    """One thing to audit, as it was when it was looked at."""

    path: Path
    segment: str
    step: int | None
    signature: Signature


def items_of(polled: Polled) -> Iterator[Item]:
    """Yield what is there, the oldest step first.

    Raises:
        InputError: if nothing is there.
    """
    path = polled.path
    if not path.exists():
        raise InputError(f"{path} must exist to be looked at, it does not; make it, or correct the path")
    found = _checkpoints(path) if polled.kind == "checkpoints" else _files(path)
    for item, segment, step in found:
        with suppress(FileNotFoundError):  # a checkpoint that was just dropped
            yield Item(item, segment, step, polled.signature_of(item))


def _checkpoints(path: Path) -> list[tuple[Path, str, int | None]]:
    folder = path / RUN_FOLDER if (path / RUN_FOLDER).is_dir() else path
    found = []
    for child in folder.iterdir():
        match = STEP.search(child.name)
        if match and not child.name.startswith(".") and not child.is_symlink() and _is_model(child):
            found.append((child, WHOLE, int(match[1])))
    return sorted(found, key=lambda item: (item[2], item[0].name))


def _is_model(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".safetensors"


def _files(path: Path) -> list[tuple[Path, str, int | None]]:
    if path.is_file() or _is_one_source(path):
        return [(path, WHOLE, None)]
    children = sorted(child for child in path.iterdir() if child.is_file() and not child.name.startswith("."))
    return [(child, child.name, None) for child in children]


def _is_one_source(folder: Path) -> bool:
    try:
        open_source(folder)
    except EmbedwatchError:
        return False
    return True


def signature_of(path: Path) -> Signature:
    """Return a digest of names, sizes and times of what lies there; contents are not read."""
    digest = hashlib.blake2b(digest_size=NUMBER_BYTES)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        stat = file.stat()
        if not file.is_dir():
            digest.update(f"{file.relative_to(path)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def number_of(item: Item, *, life: str = "") -> int:
    """Return the number of a delivery: the same for the same content at the same place, within one life."""
    told = f"{item.path}\0{item.signature}\0{life}"
    digest = hashlib.blake2b(told.encode("utf-8", "replace"), digest_size=NUMBER_BYTES)
    return int.from_bytes(digest.digest(), "big")
