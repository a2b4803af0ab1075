"""Migrating: the vectors of an index are mapped and added to a new one, in parts, so that it can go on later."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embedwatch.align.aligner import Aligner
from embedwatch.align.linear_maps import blank_note, mapped, undirected
from embedwatch.ann.arrays import sample_of
from embedwatch.ann.indexes import IndexBuilder, IndexFile, building, index_label, opened
from embedwatch.ann.recipes import fitting_recipe, plain_recipe
from embedwatch.core.errors import InputError, UsageError
from embedwatch.reading import Progress
from embedwatch.sources.faiss import FaissSource
from embedwatch.whole_files import write_whole

__all__ = ["Migration", "migrate"]

SCHEMA = 1
LEAST_PART = 100_000
"""Vectors between two saves, or a tenth of all where that is more."""
CHUNK = 8192
TRAINING = 65_536
"""Vectors to train on, or 256 for each list where that is more: what FAISS takes at most."""
PER_LIST = 256
LISTS = re.compile(r"IVF(\d+)")
SEED = 21


@dataclass(frozen=True)
class Migration:
    """What was made.

    Args:
        rows: of the new index.
        resumed: rows that were there from a run before.
        notes: what its owner must know.
    """

    rows: int
    resumed: int
    notes: tuple[str, ...]

    @staticmethod
    def files(out: Path) -> tuple[Path, Path]:
        """Return the index that is saved while it grows, and what says to which migration it belongs."""
        return out.with_name(f"{out.name}.part"), out.with_name(f"{out.name}.part.json")

    @staticmethod
    def forget(out: Path) -> None:
        """Remove both."""
        for path in Migration.files(out):
            path.unlink(missing_ok=True)


def migrate(
    aligner: Aligner,
    old: Path,
    out: Path,
    growing: Path,
    *,
    digest: str,
    kind: str | None,
    part_rows: int | None,
    progress: Progress,
) -> Migration:
    """Map all vectors of an index into a new one, with their ids.

    Args:
        aligner: the map.
        old: index file.
        out: name that the new one will have; what is saved on the way lies beside it.
        growing: where the whole new index is written.
        digest: of the map.
        kind: for `faiss.index_factory`; by default that of the old index.
        part_rows: vectors after which it is saved.
        progress: shows the rows done.

    Raises:
        InputError, UsageError: where it cannot be done; what was saved stays.
    """
    with opened(old) as source:
        recipe, notes = _recipe(source, kind, aligner.target.dimension)
        told = {"schema": SCHEMA, "old": FaissSource.open(old).fingerprint(), "map": digest, "recipe": recipe}
        part, about = Migration.files(out)
        resumed = _belongs(part, about, told)
        rows = source.facts.rows
        step = max(LEAST_PART, rows // 10) if part_rows is None else part_rows
        sample = None if resumed else _training(aligner, source, recipe)
        with (
            building(
                index_label(out), resume=part if resumed else None, recipe=recipe, dimension=aligner.target.dimension,
                metric=source.facts.metric, sample=sample, own_ids=source.facts.own_ids, settings=source.facts.settings,
            ) as builder,
            progress(f"{index_label(old)}/migrate", rows) as advance,
        ):  # fmt: skip
            if builder.rows > rows:
                raise InputError(f"{index_label(part)} holds more than the old index; remove it and start again")
            begun, saved = builder.rows, builder.rows
            write_whole(about, json.dumps(told).encode())
            blank = sum(undirected(source.rows(at, min(CHUNK, begun - at))) for at in range(0, begun, CHUNK))
            for start in range(begun, rows, CHUNK):
                count = min(CHUNK, rows - start)
                given = source.rows(start, count)
                blank += undirected(given)
                builder.add(mapped(aligner, given), source.ids(start, count))
                advance(builder.rows)
                if builder.rows - saved >= step and builder.rows < rows:
                    _save(builder, part)
                    saved = builder.rows
            builder.save(growing)
    if blank:
        notes.append(blank_note(blank, rows))
    if begun:
        notes.append(f"went on after {begun:,} rows of a run before")
    return Migration(rows, begun, tuple(notes))


def _recipe(source: IndexFile, kind: str | None, dimension: int) -> tuple[str, list[str]]:
    """Return what the factory shall build, and what to say of it."""
    facts = source.facts
    if facts.metric not in ("inner product", "euclidean"):
        raise UsageError(
            f"`old` must compare by inner product or L2, got {facts.metric}; build the new index with FAISS"
        )
    if kind is not None:
        return kind, [f"built as {kind}"]
    if not facts.recipe:
        raise UsageError(
            f"`kind` must be given for an index of kind {facts.kind}, which cannot be built again by itself, got none; "
            "name one for faiss.index_factory, like `IVF1024,Flat` or `HNSW32`"
        )
    recipe = fitting_recipe(facts.recipe, dimension)
    plain = plain_recipe(facts.recipe)
    return recipe, [] if recipe == plain else [
        f"built as {recipe}, since {plain} does not divide {dimension} dimensions"
    ]


def _training(aligner: Aligner, source: IndexFile, recipe: str) -> Any:
    """Return mapped vectors to train on. Shape: (n, D)."""
    lists = LISTS.search(recipe)
    wanted = max(TRAINING, PER_LIST * int(lists[1]) if lists else 0)
    positions = sample_of(source.facts.rows, wanted, SEED)
    parts = [
        mapped(aligner, source.rows_at(positions[start : start + CHUNK])) for start in range(0, len(positions), CHUNK)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, aligner.target.dimension), np.float32)


def _belongs(part: Path, about: Path, told: dict[str, Any]) -> bool:
    """Return whether something was saved that belongs to this very migration.

    Raises:
        UsageError: where it belongs to another.
    """
    if not part.exists():
        return False
    found: Any = None
    with suppress(OSError, ValueError):
        found = json.loads(about.read_text(encoding="utf-8"))
    if found != told:
        raise UsageError(
            f"`out` must name a new index, got one beside which {part.name} of another migration lies (another index, "
            "map or kind); remove that file, or name another output"
        )
    return True


def _save(builder: IndexBuilder, part: Path) -> None:
    """Write what there is, whole or not at all."""
    growing = part.with_name(f".{part.name}.{os.getpid()}")
    try:
        builder.save(growing)
        growing.replace(part)
    finally:
        growing.unlink(missing_ok=True)
