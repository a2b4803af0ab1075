"""Rows of a Source go through an Aligner into a file, a part at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embedwatch.align.aligner import Aligner
from embedwatch.align.fitting import model_mark
from embedwatch.align.pair_inputs import Recipe
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.reading import Progress, silent
from embedwatch.sources.row_files import check_output, write_rows

__all__ = ["Applied", "apply_aligner"]

LOOKED_AT = 8_192
"""Rows that are looked at before the first is written: are they of the space that the map was fitted on?"""
PROBED = 8
AT_ONCE = 1 << 17
INDEX = "faiss"
"""Name of the Source whose names of rows are the ids of an index."""
UNNAMED = ("sentences",)
"""Places whose names are texts, shortened."""
NAMING = (".parquet", ".pq")


@dataclass(frozen=True)
class Applied:
    """What was written.

    Args:
        output: where.
        rows: how many.
        dimension: D2.
        unmapped: rows with NaN, Inf or without a direction; they are NaN.
        kinship: 1 for rows like those that fitted, 0 for another model; `None` where it cannot be told.
        shift: of their mean, in standard deviations.
        notes: what to know.
    """

    output: str
    rows: int
    dimension: int
    unmapped: int
    kinship: float | None
    shift: float
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**vars(self), "notes": list(self.notes)}


def apply_aligner(
    aligner: Aligner,
    source: Source,
    output: str | os.PathLike[str],
    *,
    name: str | None = None,
    recipe: Recipe | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> Applied:
    """Map the rows of a Source and write them, in parts, with their numbers or names.

    Args:
        aligner: the map.
        source: rows of the space that it maps from.
        output: ends in `.npy`, `.parquet` or `.safetensors`.
        name: of the model that wrote the rows; must be the one that the map was fitted for.
        recipe: how the source makes vectors, where it encodes texts.
        replace: write over a file that is there.
        progress: shows the rows done.

    Raises:
        InputError: if the rows have another dimension or another model wrote them, if the output is there or cannot be
            written. Nothing is left behind then.
        UsageError: if the output has no known ending, or cannot keep the ids.
    """
    path = Path(output)
    check_output(path)
    read = getattr(source, "path", None)
    if read is not None and path.exists() and Path(read).exists() and path.samefile(read):
        raise UsageError(f"`output` must be another file than the rows, got {path} for both; choose another name")
    if path.exists() and not replace:
        raise InputError(f"{path} must not exist; --replace writes over it")
    aligner.source.check_model(name or model_mark(source, recipe or Recipe()), whose=source.label)
    if source.dimension is not None and source.dimension != aligner.left_dimension:
        aligner.source.check(torch.zeros(0, source.dimension), whose=source.label)
    sample, counted, unmapped = _first_rows(source), 0, 0
    kinship = aligner.source.check(sample, whose=source.label)
    called = _Identities(source)
    with write_rows(path, aligner.right_dimension) as file, (progress or silent)(source.label, source.rows) as advance:
        for batch in source.batches(source.batch_rows):
            mapped = aligner.transform(batch.rows.cpu(), check=False)
            unmapped += int(mapped.isnan().any(1).sum())
            file.add(mapped, *called.of(counted, len(batch)))
            counted += len(batch)
            advance(counted)
    notes = list(source.notes)
    if called.told == "names" and path.suffix.lower() not in NAMING:
        notes.append(f"{path.suffix} keeps no names: row i is row i of {source.label}; .parquet keeps them")
    if unmapped:
        notes.append(f"{unmapped:,} rows hold NaN, Inf or no direction and became rows of NaN")
    if kinship.is_strange:
        notes.append(
            f"the rows lie {kinship.shift:.2f} standard deviations off those that the map was fitted on, as another "
            "domain does: expect less than was measured"
        )
    return Applied(
        str(path), counted, aligner.right_dimension, unmapped, kinship.score, round(kinship.shift, 4), tuple(notes)
    )


def _first_rows(source: Source) -> Tensor:
    """Return the first rows of a Source."""
    parts: list[Tensor] = []
    for batch in source.batches(min(source.batch_rows, LOOKED_AT)):
        parts.append(batch.rows.float().cpu())
        if sum(map(len, parts)) >= min(LOOKED_AT, source.batch_rows):
            break
    if not parts:
        raise InputError(f"{source.label} must hold rows, got none; name a file with vectors")
    return torch.cat(parts)


def _told(source: Source) -> str:
    """Return what the names of a Source are: `ids` of an index, `names`, or nothing but the row numbers."""
    if source.place in UNNAMED or not source.rows:
        return ""
    rows = list(range(min(PROBED, source.rows)))
    if source.names(rows) == [str(row) for row in rows] and source.name != INDEX:
        return ""
    return "ids" if source.name == INDEX else "names"


class _Identities:
    """What the rows of a Source are called, asked for in large parts: some Sources open their file for each."""

    def __init__(self, source: Source) -> None:
        self._source, self.told = source, _told(source)
        self._names: list[str] = []
        self._start = 0

    def of(self, start: int, count: int) -> tuple[Tensor, list[str] | None]:
        """Return ids of rows in their index or row numbers, (N,), and names that are no numbers."""
        numbers = torch.arange(start, start + count)
        if not self.told:
            return numbers, None
        if start + count > self._start + len(self._names):
            end = min(max(start + AT_ONCE, start + count), self._source.rows or start + count)
            self._start, self._names = start, self._source.names(range(start, end))
        names = self._names[start - self._start : start - self._start + count]
        if self.told == "names":
            return numbers, names
        return torch.tensor([int(name) for name in names], dtype=torch.int64), None
