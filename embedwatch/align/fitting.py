"""Fitting an Aligner: pairs are read once, maps are fitted, judged on pairs of their own, and one is chosen."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from embedwatch.align.aligner import SIDES, Aligner, Side
from embedwatch.align.candidates import DEFAULT, RESIDUAL, FittedMap, Training, fit_map, methods
from embedwatch.align.choosing import Judged, Trial, choose, curve_sizes
from embedwatch.align.kept_pairs import Pairs
from embedwatch.align.marks import SpaceMark
from embedwatch.align.mispairs import find_mispairs
from embedwatch.align.moments import Anchors, read_anchors
from embedwatch.align.pair_inputs import Recipe, open_pair
from embedwatch.align.warning import warnings_of
from embedwatch.batch import PairBatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.geometry.alignment import Affine, PairMoments
from embedwatch.reading import Progress, silent
from embedwatch.sources.paired import PairedSource

__all__ = ["Side", "fit_aligner", "model_mark"]

LEAST_PAIRS = 40
"""Fewer pairs fit no map that anybody should use."""
LEAST_JUDGING = 5
LEAST_JUDGING_QUERIES = 50
"""So many queries of their own, and they choose the map; with fewer, items do."""
BATCH = 8192
SHOWN_SUSPECTS = 20
Rows = str | os.PathLike[str] | Source | Tensor | np.ndarray[Any, Any]
"""What a side may be given as: a path, a Source, or rows (N, D)."""
MOST_SEED = 2**31 - 1
FLOATS = (np.float16, np.float32, np.float64)


class _Opened(NamedTuple):
    """Pairs to be read, and what is known of the two spaces: label and fingerprint of the model."""

    batches: Iterator[PairBatch]
    rows: int | None
    labels: tuple[str, str]
    models: tuple[str, str]
    notes: tuple[str, ...]


def fit_aligner(
    left: Rows,
    right: Rows,
    *,
    side: Side = "query",
    queries: tuple[Rows, Rows] | None = None,
    corpus: Rows | None = None,
    try_methods: Sequence[str] = (),
    gallery: int | None = None,
    seed: int = 0,
    names: tuple[str | None, str | None] = (None, None),
    text: str | os.PathLike[str] | None = None,
    recipes: tuple[Recipe, Recipe] = (Recipe(), Recipe()),
    progress: Progress | None = None,
) -> Aligner:
    """Fit a map from one space into another on the same items in both.

    Pairs are read once. A fifth of them, 2,000 at most, judges: no row of theirs, and no near twin, is fitted on. Each
    way is fitted on the others and judged by what it retrieves; the simplest within a standard error of the best is
    fitted again on all pairs. What was measured lies in `Aligner.report`.

    Args:
        left: the space that is mapped: a path, a Source, an array or a tensor (N, D1); with `text` a model too.
        right: the same items in the space that is mapped into.
        side: `query` if mapped rows will search among rows of the right space, `corpus` if they will be searched.
        queries: rows of the kind that people search with, in both spaces: they fit too, and their own choose the map.
        corpus: rows of the left space that the map will be used for, to see whether the anchors are of their kind.
        try_methods: names of the ways that are tried; by default all.
        gallery: rows that are searched, filled up with anchors; by default those that judge, and 200 at least.
        seed: another one sets other pairs aside.
        names: of the two models, where they are not loaded: an Aligner refuses rows of another.
        text: file with one text a line, which models encode.
        recipes: how each side is read.
        progress: shows the rows done.

    Raises:
        InputError: if a side cannot be read, or holds too few pairs.
        UsageError: if an argument does not fit.

    Memory: 300 MB at most for 384 dimensions, for any number of pairs.

    References:
        Schönemann 1966; Artetxe, Labaka & Agirre 2018, "A robust self-learning method for fully unsupervised
        cross-lingual mappings"; Conneau et al. 2018, arXiv 1710.04087.

    Example:
        >>> rows = torch.randn(500, 6, generator=torch.Generator().manual_seed(0))
        >>> aligner = fit_aligner(rows, rows.flip(1))
        >>> aligner.method, aligner.report["chosen"]["recall_1"][0]
        ('rotation', 1.0)
    """
    if side not in SIDES:
        raise UsageError(f"`side` must be query or corpus, got {side!r}; say which side is mapped")
    if gallery is not None and (isinstance(gallery, bool) or not isinstance(gallery, int) or gallery < 1):
        raise UsageError(f"`gallery` must be a whole number of at least 1, got {gallery!r}; leave it out")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST_SEED:
        raise UsageError(f"`seed` must be a whole number from 0 to {MOST_SEED:,}, got {seed!r}; 0 is usual")
    if queries is not None and not (isinstance(queries, tuple | list) and len(queries) == len(SIDES)):
        raise UsageError("`queries` must be two, of the left and of the right space, got another number; give both")
    wanted, began = methods(tuple(try_methods)), time.perf_counter()
    show = progress or silent
    opened = _open(left, right, names, text, recipes)
    anchors = _read(opened, show, seed)
    asked = None
    if queries is not None:
        asked = _read(_open(*queries, (None, None), None, (Recipe(), Recipe())), show, seed, least=1)
        if _widths(asked) != _widths(anchors):
            raise InputError(f"`queries` must have {_widths(anchors)} dimensions like the items, got {_widths(asked)}")
    training = _training(anchors, asked, side, seed)
    items = Trial.of_items(anchors.held, anchors.kept, side, gallery=gallery)
    trial = items
    if asked is not None and len(asked.held) >= LEAST_JUDGING_QUERIES:
        trial = Trial.of_queries(asked.held, asked.kept, items)
    fitted = {name: fit_map(name, training) for name in wanted}
    judged = [trial.judge(name, each) for name, each in fitted.items()]
    chosen = choose(judged)
    marks = _marks(anchors, asked, opened)
    affine, hidden = _final(chosen.method, fitted[chosen.method], anchors, asked, training)
    report = _report(trial, judged, chosen, training, anchors, asked)
    report["by"] = "items" if trial is items else "queries"
    report["notes"] = list(opened.notes)
    near = None if corpus is None else marks[0].check(_sample(corpus), whose="`corpus`")
    report["warnings"] = warnings_of(report, anchors, asked, marks, side=side, near=near)
    report["seconds"] = round(time.perf_counter() - began, 2)
    return Aligner(
        chosen.method,
        side,
        marks[0],
        marks[1],
        affine.matrix.float().contiguous(),
        affine.offset.float().contiguous(),
        hidden,
        anchors.content if asked is None else f"{anchors.content}-{asked.content}",
        report,
    )


def model_mark(source: Source, recipe: Recipe) -> str:
    """Return a fingerprint of the model behind a Source and of its way from texts to vectors; empty for files."""
    from embedwatch.sources.subject import EncodedTexts

    if not isinstance(source, EncodedTexts):
        return ""
    notes = source.subject.encoder(pooling=recipe.pooling, prefix=recipe.prefix).notes
    told = "\0".join((source.subject.fingerprint(), *notes))
    return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()


def _open(
    left: Rows,
    right: Rows,
    names: tuple[str | None, str | None],
    text: str | os.PathLike[str] | None,
    recipes: tuple[Recipe, Recipe],
) -> _Opened:
    arrays = [isinstance(each, Tensor | np.ndarray) for each in (left, right)]
    if all(arrays):
        sides = [_tensor(each, name) for each, name in ((left, "left"), (right, "right"))]
        if len(sides[0]) != len(sides[1]):
            raise InputError(
                f"`left` and `right` must have a row for each item, got {len(sides[0]):,} and {len(sides[1]):,} rows; "
                "give the same items in one order"
            )
        named = (names[0] or "left", names[1] or "right")
        return _Opened(_batches(*sides), len(sides[0]), named, (names[0] or "", names[1] or ""), ())
    if any(arrays):
        raise UsageError("`left` and `right` must both be arrays or both be sources, got one of each; save the array")
    pair: PairedSource = open_pair(left, right, text=text, recipes=recipes)  # type: ignore[arg-type]
    models = [
        name or model_mark(source, recipe)
        for name, source, recipe in zip(names, (pair.left, pair.right), recipes, strict=True)
    ]
    labels = tuple(name or source.label for name, source in zip(names, (pair.left, pair.right), strict=True))
    return _Opened(
        pair.batches(min(BATCH, pair.batch_rows)), pair.rows, (labels[0], labels[1]), (models[0], models[1]), pair.notes
    )


def _tensor(rows: Any, name: str) -> Tensor:
    plain = rows.dtype in FLOATS if isinstance(rows, np.ndarray) else rows.is_floating_point()
    dense = isinstance(rows, np.ndarray) or (rows.layout is torch.strided and not rows.is_meta)
    if rows.ndim != 2 or not plain or not dense:
        what = "" if dense else " without its numbers" if rows.is_meta else " that is sparse"
        raise UsageError(
            f"`{name}` must be a matrix (N, D) of floats, got {rows.dtype} {tuple(rows.shape)}{what}; convert it first"
        )
    found = torch.from_numpy(np.ascontiguousarray(rows)) if isinstance(rows, np.ndarray) else rows
    return found.detach().cpu()


def _batches(left: Tensor, right: Tensor) -> Iterator[PairBatch]:
    for start in range(0, len(left), BATCH):
        part = slice(start, start + BATCH)
        yield PairBatch(left[part], right[part], torch.arange(start, start + len(left[part])))


def _read(opened: _Opened, show: Progress, seed: int, *, least: int = LEAST_PAIRS) -> Anchors:
    def shown() -> Iterator[PairBatch]:
        done = 0
        with show("pairs", opened.rows) as advance:
            for batch in opened.batches:
                yield batch
                done += len(batch)
                advance(done)

    found = read_anchors(shown(), expected=opened.rows, seed=seed)
    sound = 0 if found is None else found.rows - found.left_out
    if found is None or sound < least or (least > 1 and len(found.held) < LEAST_JUDGING):
        alike = " that repeat one another" if sound >= least else ""
        raise InputError(
            f"pairs of {' and '.join(opened.labels)} must be at least {least} that are finite and distinct, got "
            f"{sound:,}{alike}; pair more items"
        )
    return found


def _widths(anchors: Anchors) -> tuple[int, int]:
    return len(anchors.moments.left_mean), len(anchors.moments.right_mean)


def _training(anchors: Anchors, asked: Anchors | None, side: Side, seed: int) -> Training:
    """Return what maps are fitted on; queries among it."""
    if asked is None:
        return Training(anchors.moments, anchors.kept, side, seed)
    return Training(anchors.moments.merged(asked.moments), _joined(anchors.kept, asked.kept), side, seed)


def _joined(first: Pairs, second: Pairs) -> Pairs:
    """Return two samples as one, mixed, so that each part of it holds both."""
    both = Pairs.joined((first, second))
    return both.take(torch.randperm(len(both), generator=torch.Generator().manual_seed(0)))


def _final(
    name: str, fitted: FittedMap, anchors: Anchors, asked: Anchors | None, training: Training
) -> tuple[Affine, dict[str, Tensor]]:
    """Return the chosen map, fitted on all pairs; a net stays as it was judged."""
    if name == RESIDUAL:
        return fitted.affine, dict(fitted.hidden)
    moments: PairMoments = anchors.all if asked is None else anchors.all.merged(asked.all)
    parts = [training.kept, anchors.held] + ([] if asked is None else [asked.held])
    every = Pairs.joined(parts)
    return fit_map(name, Training(moments, every, training.side, training.seed)).affine, {}


def _marks(anchors: Anchors, asked: Anchors | None, opened: _Opened) -> tuple[SpaceMark, SpaceMark]:
    del asked  # the spaces are known by their items
    m = anchors.moments
    sides = ((m.left_mean, m.left, anchors.held.left), (m.right_mean, m.right, anchors.held.right))
    left, right = (
        SpaceMark.of(
            opened.labels[at], opened.models[at], m.number, mean, scatter, judging, is_unit=anchors.unit[at] > 0.99
        )
        for at, (mean, scatter, judging) in enumerate(sides)
    )
    return left, right


def _report(
    trial: Trial, judged: list[Judged], chosen: Judged, training: Training, anchors: Anchors, asked: Anchors | None
) -> dict[str, Any]:
    """Return what was measured, as JSON."""
    raw = None
    if training.moments.cross.shape[0] == training.moments.cross.shape[1]:
        same = torch.eye(len(training.moments.left), dtype=torch.float64)
        raw = trial.judge("none", FittedMap(Affine(same, torch.zeros(len(same), dtype=torch.float64))))
    mispairs = find_mispairs(Training(anchors.moments, anchors.kept, training.side, training.seed))
    return {
        "pairs": {
            "read": anchors.rows,
            "left_out": anchors.left_out,
            "fitted": training.moments.number,
            "judging": chosen.queries,
            "twins": anchors.twins,
            "queries": 0 if asked is None else asked.rows,
        },
        "gallery": chosen.gallery,
        "gallery_anchors": max(0, chosen.gallery - len(anchors.held)),
        "as_they_are": None if raw is None else raw.to_json(),
        "judged": [each.to_json() for each in judged],
        "chosen": chosen.to_json(),
        "curve": _curve(trial, training, chosen.method),
        "shuffled": _shuffled(trial, training).to_json(),
        "mispairs": {
            "looked_at": mispairs.looked_at, "number": len(mispairs.rows), "rows": list(mispairs.rows[:SHOWN_SUSPECTS])
        },
    }  # fmt: skip


def _curve(trial: Trial, training: Training, method: str) -> list[dict[str, float]]:
    """Return what the chosen way finds with fewer anchors."""
    name, curve = DEFAULT if method == RESIDUAL else method, []
    for size in curve_sizes(len(training.kept)):
        some = training.kept.take(slice(0, size))
        found = trial.judge(name, fit_map(name, Training(some.moments(), some, training.side, training.seed)))
        curve.append(
            {
                "anchors": size,
                "average_precision": found.average_precision.value,
                "recall_1": found.recall_1.value,
                "recall_10": found.recall_10.value,
            }
        )
    return curve


def _shuffled(trial: Trial, training: Training) -> Judged:
    """Return what a map finds that was fitted on pairs which are none: chance, if nothing leaks."""
    order = torch.randperm(len(training.kept), generator=torch.Generator().manual_seed(training.seed))
    pairs = replace(training.kept, right=training.kept.right[order])
    return trial.judge(DEFAULT, fit_map(DEFAULT, Training(pairs.moments(), pairs, training.side, training.seed)))


def _sample(given: Rows) -> Tensor:
    """Return first rows of what the map will be used for.

    Raises:
        InputError: if none of them is finite and has a direction.
    """
    if isinstance(given, Tensor | np.ndarray):
        rows = _tensor(given, "corpus")[:BATCH]
    else:
        from embedwatch.reading import open_rows

        source = open_rows([given])[0][1]
        rows = next((batch.rows.float() for batch in source.batches(BATCH)), torch.zeros(0, 1))
    if not bool((rows.isfinite().all(1) & (rows != 0).any(1)).any()):
        raise InputError(
            f"`corpus` must hold finite rows that are not zero, got none among the first {len(rows):,}; give rows that "
            "the map will be used for"
        )
    return rows
