"""An index for another model: a map is baked into a copy, or the vectors of a copy are rotated or mapped."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch

from embedwatch.align.aligner import Aligner
from embedwatch.align.index_copies import (
    CHECKED,
    EXACT,
    NEIGHBOURS,
    QUERIES,
    ROUNDED,
    SAME_ANSWERS,
    SEED,
    IndexCopy,
    Mode,
    answers,
    mapped_recall,
    nearness,
    positions_of,
    require,
    same_ids,
    shared,
)
from embedwatch.align.linear_maps import LinearMap, digest_of, linear_map, mapped
from embedwatch.align.migrating import Migration, migrate
from embedwatch.ann.arrays import sample_of
from embedwatch.ann.facts import IndexFacts
from embedwatch.ann.indexes import index_label, opened
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.reading import Progress, silent

if TYPE_CHECKING:
    from embedwatch.ann.arrays import Matrix

__all__ = ["IndexCopy", "Mode", "align_index"]

ADDED = (
    "the copy maps its queries and what is added to it: add vectors of the new model only, those of the old one would "
    "be mapped too and be wrong"
)
BRIDGE = "a bridge: it searches the old vectors; embed again to gain what the new model can do"


def align_index(
    aligner: Aligner,
    old: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    mode: Mode | None = None,
    allow_lossy: bool = False,
    kind: str | None = None,
    originals: Source | None = None,
    part_rows: int | None = None,
    progress: Progress | None = None,
) -> IndexCopy:
    """Write an index that another model can use, and look at it again before it gets its name. The old one stays.

    `bake`: the map leads from the new model into the space of the index. A copy maps its queries, and what is added to
    it, and searches the old vectors. `rotate`: the map leads from the space of the index into that of the new model,
    and is a rotation; the vectors are turned where they lie, and keep their lengths. `migrate`: the same for any map;
    the vectors are read, mapped, and added to a new index of the same kind, in parts, so that it goes on where it was
    interrupted.

    Args:
        aligner: a fitted map.
        old: index file.
        out: new index file, not there yet.
        mode: one of the three; without it, `bake` or `migrate`, as the dimensions say, or else the side of the map.
        allow_lossy: migrate vectors that the old index has lost in part.
        kind: `faiss.index_factory` text of the new index, for `migrate`; by default that of the old one.
        originals: the vectors from which the old index was built, in its order, to say what it lost.
        part_rows: vectors after which `migrate` saves what it has.
        progress: shows the rows done.

    Raises:
        UsageError: if a map, a mode or a kind does not fit.
        InputError: if the old index cannot be read, or the new one is not what it should be; nothing is left then.
    """
    old, out = Path(old), Path(out)
    if out.exists():
        raise UsageError(f"`out` must not be there yet, got {out.name}; remove it or name another")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"`out` must lie in a folder that exists, got {out}; make the folder first")
    found = linear_map(aligner)
    with opened(old, "closed") as index:
        facts = index.facts
    chosen = _mode(mode, aligner, found, facts)
    if chosen != "bake":
        with opened(old) as index:
            facts = index.facts
    _check_model(aligner, old, chosen)
    if chosen == "rotate" and found is not None:
        _check_turn(found, facts)
    if kind is not None and chosen != "migrate":
        raise UsageError(f"`kind` must be left out with {chosen}, which keeps the kind, got {kind!r}; drop it")
    if chosen != "bake" and facts.lossy and not allow_lossy:
        raise InputError(
            f"{index_label(old)} {' and '.join(facts.lossy)}: what it gives back is not what was embedded; map the "
            "original vectors, bake the map into a copy (`--mode bake`), or accept the loss with `--allow-lossy`"
        )
    mean, least = (None, None) if originals is None else _loss(old, originals, facts)  # refused before it is written
    growing = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        if chosen == "migrate":
            copy = _migrated(aligner, old, out, growing, facts, kind, part_rows, progress or silent)
        else:
            write = _baked if chosen == "bake" else _rotated
            copy = write(_linear(found, chosen), old, growing, facts)
        growing.replace(out)
        _sync_folder(out)
    finally:
        growing.unlink(missing_ok=True)
    if chosen == "migrate":
        Migration.forget(out)
    return replace(copy, loss_mean=mean, loss_least=least)


def _mode(mode: Mode | None, aligner: Aligner, found: LinearMap | None, facts: IndexFacts) -> Mode:
    """Return what is to be done, and refuse what does not fit."""
    gives, takes = aligner.target.dimension, aligner.source.dimension
    bakes, moves = gives == facts.dimension, takes == facts.dimension
    if not bakes and not moves:
        raise UsageError(
            f"`aligner` must lead from or into {facts.dimension} dimensions like the index, got {takes} to {gives}; "
            "fit one between the model of the index and the new one"
        )
    leads_in = aligner.side == "query" if bakes and moves else bakes
    chosen: Mode = mode or ("bake" if leads_in else "migrate")
    if chosen not in get_args(Mode):
        raise UsageError(f"`mode` must be one of {', '.join(get_args(Mode))}, got {mode!r}; choose one")
    if not (bakes if chosen == "bake" else moves):
        side = "into" if chosen == "bake" else "out of"
        raise UsageError(
            f"`aligner` must lead {side} the space of the index to {chosen}, which has {facts.dimension} dimensions, "
            f"got {takes} to {gives}; choose another mode, or fit the other way round"
        )
    if chosen != "migrate":
        _linear(found, chosen)
    return chosen


def _linear(found: LinearMap | None, mode: Mode) -> LinearMap:
    """Return the map, or refuse one that is not linear."""
    if found is None:
        raise UsageError(
            f"`aligner` must be linear to {mode}, got one with a net; fit a linear one, or use `--mode migrate`"
        )
    return found


def _check_turn(found: LinearMap, facts: IndexFacts) -> None:
    """Refuse a map that does more than turn what is stored."""
    if facts.turnable:
        raise UsageError(f"`mode` rotate needs vectors that lie open, got {facts.kind}: {facts.turnable}; use migrate")
    if not found.orthogonal or found.matrix.shape[0] != found.matrix.shape[1]:
        moves = float(np.linalg.norm(found.offset))
        what = f"one that moves the origin by {moves:.3g} too" if moves > EXACT else "one that stretches"
        raise UsageError(f"`aligner` must be a rotation to rotate in place, got {what}; use `--mode migrate`")


def _check_model(aligner: Aligner, old: Path, mode: Mode) -> None:
    """Refuse an index that another model wrote, as far as that can be seen; codes are not asked."""
    mark = aligner.target if mode == "bake" else aligner.source
    try:
        with opened(old) as index:
            rows = None if index.facts.lossy else index.rows_at(sample_of(index.facts.rows, CHECKED, SEED))
    except InputError:
        if mode == "bake":  # no vectors are needed
            return
        raise
    if rows is not None and len(rows):
        mark.check(torch.from_numpy(rows), whose=index_label(old))


def _baked(found: LinearMap, old: Path, growing: Path, facts: IndexFacts) -> IndexCopy:
    queries = np.random.default_rng(SEED).standard_normal((QUERIES, found.matrix.shape[1])).astype(np.float32)
    k = min(NEIGHBOURS, facts.rows)
    with opened(old, "closed") as index:
        index.bake(found.matrix, found.offset, growing, input_unit=found.input_unit, output_unit=found.output_unit)
    with opened(old, "closed") as index:
        expected = answers(index, found.apply(queries), k)
    with opened(growing, "closed") as index:
        same = shared(answers(index, queries, k), expected)
        require(same is None or same >= SAME_ANSWERS, f"other answers than the old one ({same})")
        kind = index.facts.kind
    checked = _same_vectors(old, growing, facts.rows)
    return IndexCopy(
        "bake", facts.kind, kind, facts.rows, facts.dimension, found.matrix.shape[1], checked, same_answers=same,
        notes=(ADDED, BRIDGE),
    )  # fmt: skip


def _same_vectors(old: Path, growing: Path, rows: int) -> int:
    """Refuse a copy that holds other vectors or ids; return how many were looked at, none where they cannot be had."""
    positions = sample_of(rows, CHECKED, SEED)
    try:
        with opened(old, "stored") as index:
            ids, vectors = index.ids_at(positions), index.rows_at(positions)
    except InputError:
        return 0
    with opened(growing, "stored") as index:
        require(np.array_equal(index.ids_at(positions), ids), "other ids than the old one")
        require(np.array_equal(index.rows_at(positions), vectors), "other vectors than the old one")
    return len(positions)


def _rotated(found: LinearMap, old: Path, growing: Path, facts: IndexFacts) -> IndexCopy:
    positions = sample_of(facts.rows, CHECKED, SEED)
    k = min(NEIGHBOURS, facts.rows)
    with opened(old) as index:
        ids, rows = index.ids_at(positions), index.rows_at(positions)
        sound = np.isfinite(rows).all(1) & rows.any(1)  # what has no direction stays, and is neither asked nor compared
        expected = answers(index, rows[sound][:QUERIES], k)
        index.rotate(found.matrix, found.offset, growing)
    turned = found.turn(rows)
    with opened(growing) as index:
        got = index.rows_at(positions)
        mean, least, worst = nearness(got[sound], turned[sound])
        require(np.array_equal(index.ids_at(positions), ids), "other ids than the old one")
        require(worst <= EXACT, f"vectors that are off by {worst:.2g} of their length")
        same = shared(answers(index, turned[sound][:QUERIES], k), expected)
        require(same is None or same >= SAME_ANSWERS, f"other answers than the old one ({same})")
        return IndexCopy(
            "rotate", facts.kind, index.facts.kind, facts.rows, facts.dimension, facts.dimension, len(positions),
            mean, least, same,
            notes=("exact: distances are what they were; ask it with vectors of the new model",),
        )  # fmt: skip


def _migrated(
    aligner: Aligner,
    old: Path,
    out: Path,
    growing: Path,
    facts: IndexFacts,
    kind: str | None,
    part_rows: int | None,
    progress: Progress,
) -> IndexCopy:
    made = migrate(
        aligner, old, out, growing, digest=digest_of(aligner), kind=kind, part_rows=part_rows, progress=progress
    )
    positions = sample_of(facts.rows, CHECKED, SEED)
    with opened(old) as before, opened(growing) as after:
        same_ids(before, after)
        asked = positions[:: max(1, len(positions) // QUERIES)]
        expected = mapped(aligner, before.rows_at(positions))
        got = after.rows_at(positions_of(before, after, positions))
        mean, least, worst = nearness(got, expected)
        allowed = np.inf if after.facts.lossy else ROUNDED if after.facts.rounded else EXACT
        require(worst <= allowed, f"vectors that are off by {worst:.2g} of their length")
        recall = mapped_recall(aligner, before, after, asked)
        notes = list(made.notes)
        if facts.lossy:
            notes.append(f"mapped from what the old index gives back: it {' and '.join(facts.lossy)}")
        if after.facts.lossy:
            notes.append(f"the new index {' and '.join(after.facts.lossy)}")
        return IndexCopy(
            "migrate", facts.kind, after.facts.kind, after.facts.rows, facts.dimension, after.facts.dimension,
            len(positions), mean, least, None, recall, notes=tuple(notes),
        )  # fmt: skip


def _loss(old: Path, originals: Source, facts: IndexFacts) -> tuple[float | None, float | None]:
    """Return how near what the old index gives back is to the vectors that it was built from."""
    if originals.rows is not None and originals.rows != facts.rows:
        raise UsageError(
            f"`originals` must have {facts.rows:,} rows like the index, got {originals.rows:,}; give all of them"
        )
    if originals.dimension is not None and originals.dimension != facts.dimension:
        raise UsageError(
            f"`originals` must have {facts.dimension} dimensions like the index, got {originals.dimension}; give the "
            "vectors that it was built from"
        )
    positions = sample_of(facts.rows, CHECKED, SEED)
    parts: list[Matrix] = []
    start = 0
    for batch in originals.batches(8192):
        inside = positions[(positions >= start) & (positions < start + len(batch))] - start
        parts.append(batch.rows.float().numpy()[inside])
        start += len(batch)
    wanted = np.concatenate(parts) if parts else np.zeros((0, facts.dimension), np.float32)
    finite = np.isfinite(wanted).all(1)
    if not finite.any():
        raise UsageError("`originals` must hold finite rows, got none; give the vectors that the index was built from")
    with opened(old) as index:
        mean, least, _ = nearness(index.rows_at(positions[finite]), wanted[finite])
    return mean, least


def _sync_folder(path: Path) -> None:
    """Wait until the disk has the new name."""
    handle = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
