"""The drill as one call: faults into a copy of somebody's vectors, and which check fires after how many rows."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor

from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.registry import get, registered
from embedwatch.core.snapshot import Space
from embedwatch.drills.examining import LEAST_LEVEL, Examiner, Look, Subject, looks_at
from embedwatch.drills.fault import Fault, generator_of
from embedwatch.drills.results import CONTROL, Drill, Outcome, Trial, TrialStatus
from embedwatch.drills.splitting import Pool, Split, read_pool, split
from embedwatch.reading import Given, Progress, RowReader, check_dimensions, open_rows
from embedwatch.references.fitting import LEAST_ROWS

__all__ = ["LEVEL", "WINDOW", "drill"]

WINDOW = 1_000
LEVEL = 0.001
LEAST_WINDOW = LEAST_ROWS
MOST_WINDOW = 100_000
MOST_REPEATS = 10_000
Chosen = list[tuple[type[Fault], float]]
HALF = (torch.float16, torch.bfloat16)


def drill(
    source: Given,
    *,
    faults: Sequence[str] = (),
    strengths: Sequence[float] | Literal["all"] = (),
    window: int = WINDOW,
    level: float = LEVEL,
    repeats: int = 1,
    seed: int = 0,
    shuffle: bool = False,
    other: Given | None = None,
    model: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    select: str | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    progress: Progress | None = None,
    on_error: OnError = "count",
) -> Drill:
    """Put known faults into a copy of healthy vectors, and say which check fires after how many rows.

    The rows are dealt in blocks, longer than they keep to a topic, to a reference and a fresh window. The window as it
    is comes first: nothing may fire. Then each fault is put into it, and looked at after 100 rows, 200, 500, and so on,
    until a check fires that should. What fires on healthy rows counts for no fault.

    Args:
        source: healthy vectors: a path that `audit` takes, or a Source.
        faults: names of faults; all by default.
        strengths: how strong, for the faults that are named; the usual one of each by default, `"all"` for those that
            each fault lists.
        window: rows that are looked at, at most.
        level: share of healthy looks at which a check may fire.
        repeats: how often all is done, each time with rows dealt anew.
        seed: of everything that is drawn; repeats count on from it.
        shuffle: take rows in any order: for a store whose order means nothing.
        other: a second source of this dimension, whose rows are those of the fault `other_model`.
        model: a model that encodes the sources, which are then files with one text a line.
        kind: kind of the sources, where a path is ambiguous.
        select: array, tensor or column to read, where a file holds several.
        pooling: how token vectors become one, with `model`; the model's own by default.
        prefix: put before each text, with `model`; the model's own by default.
        progress: shows rows read, then trials done.
        on_error: what happens to exceptions of a Statistic or Check.

    Raises:
        InputError: if an input cannot be read or has too few rows, or two dimensions.
        UsageError: if an argument does not fit.

    Example:
        >>> import numpy, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "faq.npy")
        ...     numpy.save(path, numpy.random.default_rng(0).normal(size=(2_000, 8)).astype("float32"))
        ...     found = drill(path, faults=["nan_rows"], window=500)
        >>> found.control.status, found.trials[0].status, found.trials[0].rows_of("nonfinite_rows")
        ('ok', 'found', 100)
    """
    started = time.perf_counter()
    chosen = _chosen(faults, strengths)
    _check_numbers(window, level, repeats)
    given = [source] if other is None else [source, other]
    opened = open_rows(given, model=model, kind=kind, select=select, pooling=pooling, prefix=prefix)
    readers = [RowReader(name, each, progress) for name, each in opened]
    check_dimensions(readers)
    reader = readers[0]
    pool = read_pool(reader, window=window, seed=seed, shuffle=shuffle)
    foreign = None if other is None else _foreign(readers[1], window, seed)
    subject = Subject(Space(reader.name, reader.source.place), reader.source.role, reader.source.fingerprint())
    boundary = Boundary(on_error=on_error)
    control: list[Outcome] = []
    found: list[list[Outcome]] = [[] for _ in chosen]
    checks: tuple[str, ...] = ()
    pairing: tuple[str, ...] = ()
    shown = nullcontext(lambda _: None) if progress is None else progress("trials", repeats * (1 + len(chosen)))
    with shown as advance:
        for number in range(repeats):
            parts = split(pool, window=window, seed=seed + number, other=foreign)
            examiner = Examiner(parts.reference, subject, level=level, seed=seed + number, boundary=boundary)
            run = _Run(parts, examiner, seed=seed + number)
            control.append(run.control())
            for place, (fault, strength) in enumerate(chosen):
                advance(number * (1 + len(chosen)) + 1 + place)
                found[place].append(run.trial(fault, strength, reader.dtype))
            advance((number + 1) * (1 + len(chosen)))
            checks, pairing = examiner.checks, examiner.pairing
    trials = [
        Trial(kind.name, kind.title, value, kind.told(value), kind.found_by, tuple(outcomes), kind.unseen)
        for (kind, value), outcomes in zip(chosen, found, strict=True)
    ]
    return Drill(
        label=reader.name,
        fingerprint=subject.fingerprint,
        dimension=pool.rows.shape[1],
        source_rows=reader.count(),
        reference_rows=len(parts.reference),
        window=window,
        block=pool.block,
        length=pool.length,
        level=level,
        control=Trial(CONTROL, "healthy rows", 0.0, "", (), tuple(control)),
        trials=tuple(trials),
        checks=checks,
        pairing=pairing,
        notes=(*_remarks(pool, parts, reader), *reader.source.notes),
        seconds=time.perf_counter() - started,
        errors=tuple((stage, name, count) for (stage, name), count in boundary.errors.items()),
    )


class _Run:
    """One repeat: rows dealt anew, the reference fitted once."""

    def __init__(self, parts: Split, examiner: Examiner, *, seed: int) -> None:
        self.parts, self.examiner = parts, examiner
        self._seed, self._sizes = seed, looks_at(len(parts.window))
        self._alarming: frozenset[str] = frozenset()

    def control(self) -> Outcome:
        """Return what is said of healthy rows, after all looks."""
        rows = self.parts.window
        looks = list(self.examiner.looks(rows, rows, self._sizes))
        fired = _first(looks, frozenset())
        self._alarming = frozenset(fired)
        if fired:
            said = [verdict.reason for look in looks for verdict in look.verdicts if verdict.check in look.fired]
            return Outcome(
                self._seed, min(fired.values()), tuple(fired.items()), rightly=False, status="fired", reason=said[0]
            )
        noticed = _noticed(looks, frozenset(self.examiner.checks))
        comparing = [each for each in looks[-1].verdicts if each.check in self.examiner.comparing]
        judged = any(verdict.status == "ok" for verdict in comparing)
        reason = "" if judged else next((verdict.reason for verdict in comparing), "Nothing compares with a reference.")
        status: TrialStatus = "ok" if judged else "unknown"
        return Outcome(
            self._seed,
            len(rows),
            (),
            rightly=False,
            status=status,
            noticed=noticed,
            told=looks[-1].named,
            reason=reason,
        )

    def trial(self, kind: type[Fault], strength: float, dtype: torch.dtype | None) -> Outcome:
        """Return what is said of rows with a fault, looked at until a check fires that should."""
        rows = self.parts.window
        fault = kind(self.parts.stock)
        if reason := fault.impossible(len(rows), strength):
            return Outcome(self._seed, 0, (), rightly=False, status="impossible", reason=reason)
        changed = _as_stored(fault.apply(rows, generator_of(kind.name, self._seed), strength), dtype)
        expected = frozenset(kind.found_by) - self._alarming
        able = expected & set(self.examiner.checks)
        enough = able - set(self.examiner.pairing) or able  # a canary is not all that people have
        looks: list[Look] = []

        def found(look: Look) -> bool:
            return bool(enough & set(look.fired))

        before = rows if fault.paired else None
        for look in self.examiner.looks(changed, before, self._sizes, enough=found):
            looks.append(look)
            if found(look) and not kind.names:
                break
        fired, noticed = _first(looks, self._alarming), _noticed(looks, able)
        judged = (self._seed, min(fired.values(), default=len(changed)), tuple(fired.items()))
        told = looks[-1].named
        if able & fired.keys():
            return Outcome(*judged, rightly=True, status="found", noticed=noticed, told=told)
        said = [verdict.reason for verdict in looks[-1].verdicts if verdict.check in able]
        reason = said[0] if said else f"It takes {' or '.join(kind.found_by)}, and none of these is asked here."
        status: TrialStatus = "found" if fired else "noticed" if noticed else "missed" if able else "blind"
        return Outcome(*judged, rightly=False, status=status, noticed=noticed, told=told, reason=reason)


def _noticed(looks: Sequence[Look], able: frozenset[str]) -> tuple[tuple[str, int], ...]:
    """Return the checks that were sure of a difference they called small, with the rows at which each first was."""
    found: dict[str, int] = {}
    for look in looks:
        for check in look.noticed:
            if check in able:
                found.setdefault(check, look.rows)
    return tuple(found.items())


def _first(looks: Sequence[Look], without: frozenset[str]) -> dict[str, int]:
    """Return the checks that fired, with the rows at which each first did."""
    found: dict[str, int] = {}
    for look in looks:
        for check in look.fired:
            if check not in without:
                found.setdefault(check, look.rows)
    return found


def _chosen(faults: Sequence[str], strengths: Sequence[float] | Literal["all"]) -> Chosen:
    """Return the faults that are asked for, each at each strength."""
    if isinstance(faults, str):
        raise UsageError(f"`faults` must be a list of names, got the text {faults!r}; put it into a list")
    if isinstance(strengths, str) and strengths != "all":
        raise UsageError(f'`strengths` must be numbers or "all", got {strengths!r}; "all" takes those of each fault')
    kinds = [get(Fault, name) for name in dict.fromkeys(faults)] if faults else list(registered(Fault).values())
    found: Chosen = []
    for kind in kinds:
        if strengths == "all":
            found += [(kind, strength) for strength in kind.strengths]
            continue
        if strengths and not faults:
            raise UsageError(
                f"`strengths` must come with the names of faults, got {', '.join(f'{each:g}' for each in strengths)} "
                "alone; name the faults they are for"
            )
        for strength in strengths or (kind.strength,):
            kind.check_strength(strength)
            found.append((kind, float(strength)))
    return found


def _check_numbers(window: int, level: float, repeats: int) -> None:
    if not LEAST_WINDOW <= window <= MOST_WINDOW:
        raise UsageError(
            f"`window` must be from {LEAST_WINDOW} to {MOST_WINDOW:,} rows, got {window:,}; {WINDOW:,} is usual"
        )
    if not (math.isfinite(level) and LEAST_LEVEL <= level < 1):
        raise UsageError(f"`level` must be from {LEAST_LEVEL:g} to 1, got {level:g}; {LEVEL:g} is usual")
    if not 1 <= repeats <= MOST_REPEATS:
        raise UsageError(f"`repeats` must be from 1 to {MOST_REPEATS:,}, got {repeats:,}; 20 tells chance from rule")


def _foreign(reader: RowReader, window: int, seed: int) -> Tensor:
    """Return rows of the other source, from everywhere in it."""
    total = reader.count()
    is_drawn = torch.zeros(total, dtype=torch.bool)
    is_drawn[torch.randperm(total, generator=generator_of("other", seed))[:window]] = True
    rows: list[Tensor] = []
    start = 0
    for batch in reader.batches():
        kept = is_drawn[start : start + len(batch)] & batch.finite.cpu()
        rows.append(batch.rows.cpu()[kept].float())
        start += len(batch)
    every = torch.cat(rows) if rows else torch.zeros(0, 1)
    if not len(every):
        raise InputError(f"`other` must have finite rows, got none in {reader.name}; name another source")
    return every[torch.randperm(len(every), generator=generator_of("order of other", seed))]


def _as_stored(rows: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return rows as the source would store them: a fault in half precision is rounded to it."""
    return rows.to(dtype).to(rows.dtype) if dtype in HALF else rows


def _remarks(pool: Pool, parts: Split, reader: RowReader) -> Iterator[str]:
    """Yield what a reader of the results must know."""
    if pool.nonfinite:
        yield f"{pool.nonfinite:,} rows with NaN or Inf are left out"
    if reader.count() > len(pool.rows) + pool.nonfinite:
        yield f"{len(pool.rows):,} of {reader.count():,} rows take part, drawn in blocks from everywhere"
    if len(parts.stock.spare) < len(parts.window):
        wanted = len(parts.window) - len(parts.stock.spare)
        yield f"{wanted:,} more rows would let all faults be tried that take rows away"
