"""`embedwatch align mixed`: which rows of a store the present model did not write, or not in this way."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.align.mixed_causes import Candidate, candidates_of, explained_by
from embedwatch.align.mixed_results import Group, Mixed
from embedwatch.align.pair_inputs import Given, Recipe, is_a_model, open_side
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.verdict import Status
from embedwatch.geometry.grids import GRIDS, on_grid
from embedwatch.geometry.pairs import unit
from embedwatch.reading import Progress, silent
from embedwatch.sources.paired import Join, PairedSource

__all__ = ["find_mixed"]

LEAST_FLOOR = 1e-9
"""Cosine distance that rounding in float32 and another order of sums stay below."""
LOWEST, LEAST_LOWEST = 0.02, 10
"""The rows that agree best tell the noise: this share of all, and so many at least."""
SPREAD = 8.0
"""The farthest of rows with one sort of noise was at most 7.7 times as far as a tenth of them, whatever made it."""
GREY = 2.0
"""Rows up to so many times beyond the threshold may be agreeing ones: they bound its false positives."""
SLIGHT = 1e-3
"""Distance that fewer bits make."""
SAME_LENGTH = 2e-3
UNRELATED = 4.0
"""Standard deviations of the centred cosine with another text, up to which a row has nothing to do with its own."""
MEAN_ROWS = 2_000
HELD_NUMBERS = 1 << 26
"""Numbers of both sides that are kept to look for swapped rows: 256 MiB each."""
SHOWN_IDS = 20
TOLD = {
    "agrees": "written as the model writes now",
    "rounded": "the same, with fewer bits",
    "norm": "the same direction, another length",
    "broken": "NaN, Inf or zero",
    "swapped": "the vector of another row's text",
    "recipe": "the same model, used otherwise or altered",
    "other": "another model, or another text",
}
GRADES: dict[str, Status] = {
    "agrees": "ok", "rounded": "warn", "norm": "warn", "broken": "fail", "swapped": "fail", "recipe": "fail",
    "other": "fail",
}  # fmt: skip


class _Evidence(NamedTuple):
    """What each row tells, all (N,).

    Args:
        distance: 1 - cosine to what the model writes for its text.
        centred: cosine to that, both less the mean.
        strange: the same to what the model writes for another text.
        norm: its length over that of what the model writes.
        sound: whether both are finite and not zero.
        coarser: place in `GRIDS`, from 1 on, of the number format that only the row has; 0 for none.
    """

    distance: Tensor
    centred: Tensor
    strange: Tensor
    norm: Tensor
    sound: Tensor
    coarser: Tensor


def find_mixed(
    store: Given,
    *,
    model: str | os.PathLike[str] | None = None,
    text: str | os.PathLike[str] | None = None,
    expected: Given | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    kind: str | None = None,
    select: str | None = None,
    join: Join = "auto",
    progress: Progress | None = None,
) -> Mixed:
    """Say which rows of a store the model did not write, or not in this way.

    Args:
        store: a file of vectors, or a Source.
        model: what should have written it, with `text`.
        text: the text of each row, one a line, in the order of the store.
        expected: instead of both, a file with what the model writes for each row.
        pooling: how the model's token vectors become one; by default as it says.
        prefix: stands before each text; by default as the model says.
        kind: kind of the store, where it is ambiguous.
        select: array, tensor or column of the store.
        join: rows by `number`, by `name`, or `auto`.
        progress: shows the rows done.

    Without model and texts only what shows in the rows themselves is told: lengths, number formats, zeros.

    Raises:
        InputError: if something cannot be read, or dimensions differ.
        UsageError: if an argument does not fit.

    Example:
        >>> import numpy, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = Path(folder, "store.npy"), Path(folder, "expected.npy")
        ...     rows = numpy.random.default_rng(0).normal(size=(300, 32)).astype("float32")
        ...     numpy.save(paths[1], rows)
        ...     rows[40:50] = numpy.random.default_rng(1).normal(size=(10, 32))
        ...     numpy.save(paths[0], rows)
        ...     found = find_mixed(paths[0], expected=paths[1])
        >>> [(group.name, group.rows) for group in found.groups], found.groups[1].ids[:3]
        ([('agrees', 290), ('other', 10)], (40, 41, 42))
    """
    began = time.perf_counter()
    _check_arguments(model, text, expected, pooling, prefix)
    source = open_side(store, None, Recipe(kind=kind, select=select), "store")
    if model is None and expected is None:
        from embedwatch.align.store_alone import groups_alone

        groups, rows, notes = groups_alone(source, progress or silent)
        return Mixed(source.label, rows, groups, notes=notes, seconds=time.perf_counter() - began)
    recipe = Recipe(pooling, prefix)
    wanted = open_side(model if expected is None else expected, text, recipe, "expected")  # type: ignore[arg-type]
    pair = PairedSource(wanted, source, join=join)
    evidence, held, numbers = _gathered(pair, progress or silent)
    threshold = _threshold(evidence)
    kinds = _sorted(evidence, threshold, held)
    candidates = candidates_of(wanted) if expected is None else ()
    groups = tuple(_groups(pair, evidence, kinds, candidates, numbers, threshold))
    agreeing = kinds == NAMES.index("agrees")
    return Mixed(
        source.label,
        len(kinds),
        groups,
        threshold,
        float(evidence.distance[agreeing].median()) if bool(agreeing.any()) else None,
        _false_positives(evidence, threshold, kinds),
        pair.notes,
        time.perf_counter() - began,
    )


def _check_arguments(
    model: str | os.PathLike[str] | None, text: object, expected: object, pooling: object, prefix: object
) -> None:
    if model is not None and expected is not None:
        raise UsageError("`expected` must be left out with `model`, got both; give one of them")
    if (model is None) != (text is None):
        raise UsageError("`model` and `text` must come together, got one of them; name the other")
    for name, value in (("pooling", pooling), ("prefix", prefix)):
        if value is not None and model is None:
            raise UsageError(f"`{name}` must come with `model`, got {value!r} alone; name the model")
    if model is not None and not is_a_model(Path(model)):
        raise InputError(f"{model} must be a model, got something else; name its directory")


NAMES = tuple(TOLD)
UNEXPLAINED = "no pooling, prefix or limit that was tried writes them: fewer bits in its weights, or other weights"


def _gathered(pair: PairedSource, progress: Progress) -> tuple[_Evidence, tuple[Tensor, Tensor] | None, Tensor]:
    """Read all rows once, and return what each tells; both sides themselves where they are few."""
    parts: list[_Evidence] = []
    held: list[tuple[Tensor, Tensor]] | None = []
    numbers: list[Tensor] = []
    mean: Tensor | None = None
    done = size = 0
    with progress(pair.label, pair.rows) as advance:
        for batch in pair.batches(max(pair.batch_rows, 256)):
            left, right = batch.left.float(), batch.right.float()
            if left.shape[1] != right.shape[1]:
                raise InputError(
                    f"{pair.right.label} must have the {left.shape[1]} dimensions that the model writes, got "
                    f"{right.shape[1]}; no row of it is of this model as it is used now"
                )
            if mean is None:
                first = unit(left[(left != 0).any(1)][:MEAN_ROWS])
                mean = first.mean(0) if len(first) > 1 else torch.zeros(left.shape[1], dtype=torch.float64)
            parts.append(_told(left, right, mean))
            numbers.append(torch.arange(done, done + len(left)) if batch.ids is None else batch.ids)
            size += left.numel()
            held = None if held is None or size > HELD_NUMBERS else [*held, (left, right)]
            done += len(batch)
            advance(done)
    if not parts:
        raise InputError(f"{pair.label} must hold rows, got none; give files with rows")
    evidence = _Evidence(*(torch.cat([part[place] for part in parts]) for place in range(len(_Evidence._fields))))
    both = None if held is None else (torch.cat([a for a, _ in held]), torch.cat([b for _, b in held]))
    return evidence, both, torch.cat(numbers)


def _told(left: Tensor, right: Tensor, mean: Tensor) -> _Evidence:
    sound = right.isfinite().all(1) & (right != 0).any(1) & left.isfinite().all(1) & (left != 0).any(1)
    u, v = (unit(torch.where(sound[:, None], rows, torch.ones_like(rows))) for rows in (left, right))
    x, y = unit(u - mean), unit(v - mean)
    ratio = right.double().norm(dim=1) / left.double().norm(dim=1)
    coarser = torch.zeros(len(left), dtype=torch.int64)
    for place, grid in reversed(list(enumerate(GRIDS, 1))):
        new = on_grid(torch.where(sound[:, None], right, 0.1), grid) & ~on_grid(left.nan_to_num(0.1, 0.1, 0.1), grid)
        coarser[new & sound] = place
    centred = torch.nan_to_num((x * y).sum(1))
    strange = torch.nan_to_num((x.roll(1, 0) * y).sum(1))
    return _Evidence((u - v).square().sum(1) / 2, centred, strange, ratio, sound, coarser)


def _threshold(evidence: _Evidence) -> float:
    """Return the distance up to which a row agrees, from the noise of those that agree best."""
    distances = evidence.distance[evidence.sound].sort().values
    if not len(distances):
        return LEAST_FLOOR
    place = min(len(distances) - 1, max(LEAST_LOWEST, int(LOWEST * len(distances))))
    return max(LEAST_FLOOR, SPREAD * float(distances[place])) if float(distances[place]) < 1 / SPREAD else LEAST_FLOOR


def _sorted(evidence: _Evidence, threshold: float, held: tuple[Tensor, Tensor] | None) -> Tensor:
    """Return which kind each row is of, as a place in `NAMES`. Shape: (N,)."""
    distance, sound = evidence.distance, evidence.sound
    kinds = torch.full((len(distance),), NAMES.index("other"))
    limit = UNRELATED * float(evidence.strange[sound].std()) if int(sound.sum()) > 1 else 1.0
    kinds[evidence.centred > max(limit, 0.0) + float(evidence.strange[sound].mean() if bool(sound.any()) else 0)] = (
        NAMES.index("recipe")
    )
    kinds[(distance <= SLIGHT) | ((evidence.coarser > 0) & (distance <= 0.5))] = NAMES.index("rounded")
    near = distance <= threshold
    kinds[near] = NAMES.index("agrees")
    kinds[near & (evidence.coarser > 0) & (distance > LEAST_FLOOR)] = NAMES.index("rounded")
    kinds[near & _other_lengths(evidence.norm, near & sound)] = NAMES.index("norm")
    kinds[~sound] = NAMES.index("broken")
    if held is not None:
        kinds[_swapped(held, kinds, threshold)] = NAMES.index("swapped")
    return kinds


def _other_lengths(norms: Tensor, near: Tensor) -> Tensor:
    """Return which rows have another length than most that agree, beyond their noise. Shape: (N,) bool."""
    if not bool(near.any()):
        return torch.zeros_like(near)
    apart = (norms / norms[near].median() - 1).abs()
    return apart > max(SAME_LENGTH, SPREAD * float(apart[near].median()))


def _swapped(held: tuple[Tensor, Tensor], kinds: Tensor, threshold: float) -> Tensor:
    """Return the places of rows that hold what the model writes for another row. Shape: (S,)."""
    left, right = held
    suspects = ((kinds == NAMES.index("other")) | (kinds == NAMES.index("recipe"))).nonzero()[:, 0]
    sound = left.isfinite().all(1) & (left != 0).any(1)
    gallery = torch.where(sound[:, None], unit(left), 0.0)
    found = []
    for start in range(0, len(suspects), 512):
        part = suspects[start : start + 512]
        best = (unit(right[part]) @ gallery.T).amax(1)
        found.append(part[1 - best <= max(threshold, 1e-6)])
    return torch.cat(found) if found else suspects


def _false_positives(evidence: _Evidence, threshold: float, kinds: Tensor) -> float | None:
    """Return a bound of the share of agreeing rows beyond the threshold: of those just beyond it, all are counted."""
    agreeing = int((kinds == NAMES.index("agrees")).sum())
    if not agreeing:
        return None
    unclear = (evidence.distance > threshold) & (evidence.distance <= GREY * threshold)
    grey = int((unclear & (kinds != NAMES.index("swapped"))).sum())
    from scipy.special import betaincinv

    return float(betaincinv(grey + 1, agreeing, 0.95))  # Clopper & Pearson 1934


def _groups(
    pair: PairedSource,
    evidence: _Evidence,
    kinds: Tensor,
    candidates: Sequence[Candidate],
    numbers: Tensor,
    threshold: float,
) -> list[Group]:
    """Return the groups, the agreeing one first, then the largest."""
    found: list[tuple[str, str | None, Tensor]] = []
    unclear = torch.zeros(len(kinds), dtype=torch.bool)
    if candidates:
        unclear = (kinds == NAMES.index("recipe")) | (kinds == NAMES.index("other"))
    if bool(unclear.any()):
        places = unclear.nonzero()[:, 0]
        named = explained_by(pair, numbers[places], candidates, max(threshold, LEAST_FLOOR))
        found += [("recipe", told, places[chosen]) for told, chosen in named if told is not None]
        for _, _, places in list(found):
            unclear[places] = False
    for kind, name in enumerate(NAMES):
        chosen = kinds == kind
        if candidates and name in ("recipe", "other"):
            chosen = chosen & unclear
        places = chosen.nonzero()[:, 0]
        if len(places):
            told = _grid_of(evidence, places) if name == "rounded" else None
            found.append((name, UNEXPLAINED if name == "recipe" and candidates else told, places))
    found.sort(key=lambda each: (each[0] != "agrees", -len(each[2])))
    return [_group(name, told, places, pair, evidence, numbers) for name, told, places in found]


def _grid_of(evidence: _Evidence, places: Tensor) -> str | None:
    """Return the grid on which most of these rows lie, in words."""
    grids = evidence.coarser[places]
    most = int(grids.mode().values)
    share = float((grids == most).double().mean())
    return None if most == 0 else f"values are {GRIDS[most - 1]} in {share:.0%} of them"


def _group(
    name: str, told: str | None, places: Tensor, pair: PairedSource, evidence: _Evidence, numbers: Tensor
) -> Group:
    ids = tuple(numbers[places].tolist())
    distance = evidence.distance[places][evidence.sound[places]]
    text = TOLD[name] if told is None else f"{TOLD[name]}: {told}"
    shown = tuple(pair.names(ids[:SHOWN_IDS]))
    middle = float(distance.median()) if len(distance) else None
    return Group(name, text, len(ids), ids, shown, middle, GRADES[name])
