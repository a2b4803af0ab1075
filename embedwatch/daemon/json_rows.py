"""Vectors out of a JSON text, in pieces: one call that parses all of it would let no other thread run meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embedwatch.core.strict_json import strict_json

__all__ = ["Split", "numbers_of", "split_rows"]

PIECE = 1 << 16
"""Characters that are parsed at once: some 3,000 numbers, in less than a millisecond."""
BLANK = re.compile(r"[ \t\n\r]*")
NUMBERS = {int, float, type(None)}


class Split(NamedTuple):
    """A JSON text, taken apart.

    Args:
        rest: the text, with `[]` in the place of its rows.
        rows: text of each row without its brackets; `None` where they could not be taken out, and the rest is all.
    """

    rest: str
    rows: list[str] | None = None


def split_rows(text: str, name: str) -> Split:
    """Take the rows of a matrix out: those of the list that the text is, or that stands there under a name.

    Only brackets are looked at. What is no JSON, or another object's, stays a mistake in the rest, or in a row.

    Example:
        >>> split_rows('{"ids": [3, 4], "vectors": [[1, 2.5], [3, 4]]}', "vectors")
        Split(rest='{"ids": [3, 4], "vectors": []}', rows=['1, 2.5', '3, 4'])
        >>> split_rows("[[1], {}]", "vectors")
        Split(rest='[[1], {}]', rows=None)
    """
    begin = _begin(text, f'"{name}"')
    if begin is None:
        return Split(text)
    rows: list[str] = []
    place, more = _skip(text, begin + 1), True
    while more and text.startswith("[", place):
        end = text.find("]", place)
        row = text[place + 1 : end]
        if end < 0 or "[" in row or "{" in row or '"' in row:
            return Split(text)
        rows.append(row)
        place = _skip(text, end + 1)
        more = text.startswith(",", place)
        place = _skip(text, place + 1) if more else place
    if more or not text.startswith("]", place):
        return Split(text)
    return Split(f"{text[:begin]}[]{text[place + 1 :]}", rows)


def _begin(text: str, key: str) -> int | None:
    """Return where the list of rows begins."""
    place = _skip(text, 0)
    if text.startswith("[", place):
        return place
    at = text.find(key)
    while at >= 0:
        colon = _skip(text, at + len(key))
        begin = _skip(text, colon + 1)
        if text.startswith(":", colon) and text.startswith("[", begin):
            return begin
        at = text.find(key, at + 1)
    return None


def _skip(text: str, place: int) -> int:
    blank = BLANK.match(text, place)
    return place if blank is None else blank.end()


def numbers_of(rows: Sequence[str], what: str) -> NDArray[np.float64] | None:
    """Return the matrix (N, D) that texts of rows hold, null as NaN; `None` where it is none.

    Raises:
        InputError: if a row is no strict JSON.
    """
    dimension = rows[0].count(",") + 1
    if any(row.count(",") + 1 != dimension for row in rows):
        return None
    found = np.empty(len(rows) * dimension)
    place = 0
    for piece in _pieces(rows):
        values = strict_json(f"[{piece}]", what)
        if len(values) != piece.count(",") + 1 or not set(map(type, values)) <= NUMBERS:
            return None
        found[place : place + len(values)] = values
        place += len(values)
    return found.reshape(len(rows), dimension)


def _pieces(rows: Sequence[str]) -> Iterator[str]:
    """Yield the numbers of all rows with commas between, cut at commas."""
    held: list[str] = []
    size = 0
    for row in rows:
        if size + len(row) > PIECE and held:
            yield ",".join(held)
            held, size = [], 0
        if len(row) <= PIECE:
            held.append(row)
            size += len(row) + 1
        else:
            yield from _cut(row)
    if held:
        yield ",".join(held)


def _cut(row: str) -> Iterator[str]:
    begin = 0
    while len(row) - begin > PIECE:
        comma = row.rfind(",", begin, begin + PIECE)
        if comma < 0:
            break
        yield row[begin:comma]
        begin = comma + 1
    yield row[begin:]
