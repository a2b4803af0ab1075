"""Suspects: tokens whose rows look as if they had never been trained, with the signs that say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.geometry.copies import Sketch, copy_groups
from embedwatch.geometry.norms import row_norms
from embedwatch.geometry.untrained import KNOWN_AT_LEAST, QUANTILE, Separation, measure_indicators, separate
from embedwatch.loading.examinable import Examinable, Rows
from embedwatch.loading.settings import initial_spread
from embedwatch.loading.vocabulary import Kind, Vocabulary

__all__ = ["IN_USE", "Suspects", "find_suspects"]

CHUNK = 4096
COPY = 0.01
"""Rows nearer to one another than this share of the median norm are copies."""
SHORT = 0.5
"""A row shorter than this share of the median one is short; where surely unused ones are, only as short as nine in ten
of
those."""
AT_MEAN = 0.1
"""A row nearer to the mean row than this share of the median distance from it stands on the mean."""
DRAWN = 0.1
"""A norm within this share of that of rows as they are drawn."""
IN_USE: tuple[Kind, ...] = ("ordinary", "added")
"""Sorts of tokens that texts are made of."""


@dataclass(frozen=True, eq=False)
class Suspects:
    """Rows of a table with what speaks against each.

    Args:
        kinds: what sort of token each row is.
        reached: for tokens in use whether some text leads to them; empty without a tokenizer.
        norms: (V,) of the token table.
        indicator: (V,) what tells unused rows best; small where a row looks unused.
        separation: how well it does, and its limit.
        signs: name of a sign to (V,) bool.
        copies: (V,) number of the group of rows that are alike; -1 for none.
        known: (K,) rows that are surely unused.
    """

    kinds: Sequence[Kind]
    reached: dict[int, bool]
    norms: Tensor
    indicator: Tensor
    separation: Separation
    signs: dict[str, Tensor]
    copies: Tensor
    known: Tensor

    def of_kind(self, *kinds: Kind) -> Tensor:
        """Return which rows are of these sorts. Shape: (V,) bool."""
        return torch.tensor([kind in kinds for kind in self.kinds], dtype=torch.bool)

    @property
    def signed(self) -> Tensor:
        """Which rows have any sign. Shape: (V,) bool."""
        return torch.stack(list(self.signs.values())).any(0)

    def signs_of(self, row: int) -> str:
        """Return the signs of one row, in words."""
        return ", ".join(name for name, found in self.signs.items() if bool(found[row]))

    def ranked(self) -> list[int]:
        """Return the rows of all tokens that are not known to be unused, the most suspicious first.

        Each sign puts rows in an order of its own, and the foremost place counts; rows without a sign follow, by the
        indicator.
        """
        number = len(self.norms)
        place = torch.full((number,), float(number))
        for name, found in self.signs.items():
            order = self.norms if name == "short" else self.indicator
            ranks = torch.zeros(number) if name in ("copy", "mean", "drawn") else _ranks(order)
            place = torch.where(found, torch.minimum(place, ranks), place)
        tie = _ranks(self.indicator) / (2 * number)
        kept = ~self.of_kind("reserved", "beyond")
        order = (place + torch.where(self.signed, tie, number * tie)).argsort(stable=True)
        return [int(row) for row in order if bool(kept[row])]


def _ranks(values: Tensor) -> Tensor:
    filled = torch.where(values.isfinite(), values, torch.inf)
    ranks = torch.empty(len(values))
    ranks[filled.argsort(stable=True)] = torch.arange(len(values), dtype=torch.float32)
    return ranks


def find_suspects(subject: Examinable) -> Suspects:
    """Look for rows that were never trained, in the table of tokens and in that of outputs.

    What is known to be unused are rows that no token has, tokens that their names hold free, bytes that no text holds,
    and special tokens of which three or more have the same row. Among cosine, distance and norm, in both tables,
    the indicator is used that tells those rows best from rows in use, each of them measured without itself.

    Signs: `unused-like` (the indicator is below its limit), `short` (less than half the median norm), `copy` (of
    another row), `mean` (on the mean of the table, where a resize puts new rows), `drawn` (added tokens alone: a norm
    as it is drawn, that others have not).

    Raises:
        InputError: if the model has no token table.
    """
    table = subject.token_table()
    vocabulary = _vocabulary(subject, len(table))
    kinds: list[Kind] = ["ordinary"] * len(table) if vocabulary is None else vocabulary.kinds
    norms, copies, apart = _scanned(table)
    in_use = torch.tensor([kind in IN_USE for kind in kinds])
    known = _known(kinds, copies)
    indicator, separation = _best(_tables(subject, table), known, in_use)
    usual = _median(norms[in_use])
    signs = {
        "unused-like": torch.zeros(len(table), dtype=torch.bool)
        if separation.limit is None
        else indicator <= separation.limit,
        "short": norms <= _short(norms[known], usual),
        "copy": copies >= 0,
        "mean": apart < AT_MEAN * _median(apart[in_use]),
        "drawn": _drawn(subject, norms, usual) & torch.tensor([kind == "added" for kind in kinds]),
    }
    reached = {} if vocabulary is None else vocabulary.reached
    return Suspects(kinds, reached, norms, indicator, separation, signs, copies, known)


def _vocabulary(subject: Examinable, rows: int) -> Vocabulary | None:
    try:
        tokenizer = subject.tokenizer
    except InputError:
        return None
    return Vocabulary(tokenizer, rows) if hasattr(tokenizer, "get_vocab") else None


def _tables(subject: Examinable, table: Rows) -> dict[str, Rows]:
    outputs = subject.output_table()
    return {"": table} if outputs is None or len(outputs) != len(table) else {"": table, "output_": outputs}


def _chunks(table: Rows) -> Iterator[Tensor]:
    return (table.read(start, min(start + CHUNK, len(table))).float() for start in range(0, len(table), CHUNK))


def _scanned(table: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Return norms, groups of copies, and distances from the mean of all finite rows. Shape: (V,) each."""
    sketch = Sketch(table.dimension)
    total, number, found = torch.zeros(table.dimension, dtype=torch.float64), 0, []
    for part in _chunks(table):
        norms = row_norms(part)
        sketch.add(part)
        sound = part[norms.isfinite()].double()
        total, number = total + sound.sum(0), number + len(sound)
        found.append(torch.where(norms.isfinite(), norms, torch.nan))
    norms = torch.cat(found)
    mean = (total / max(1, number)).float()
    apart = torch.cat([row_norms(part - mean) for part in _chunks(table)])
    return norms, copy_groups(sketch.values(), within=COPY * _median(norms)), apart


def _median(values: Tensor) -> float:
    sound = values[values.isfinite()]
    return float(sound.median()) if len(sound) else 0.0


def _short(unused: Tensor, usual: float) -> float:
    """Return up to which norm a row is short."""
    sound = unused[unused.isfinite()]
    if len(sound) >= KNOWN_AT_LEAST and _median(sound) < SHORT * usual:
        return float(sound.quantile(QUANTILE, interpolation="higher"))
    return SHORT * usual


def _known(kinds: Sequence[Kind], copies: Tensor) -> Tensor:
    """Return the rows that are surely unused."""
    free = [row for row, kind in enumerate(kinds) if kind in ("reserved", "beyond")]
    if len(free) < KNOWN_AT_LEAST:
        special = torch.tensor([row for row, kind in enumerate(kinds) if kind == "special"], dtype=torch.int64)
        groups = copies[special]
        sizes = torch.bincount(groups[groups >= 0], minlength=1)
        free += [int(row) for row, group in zip(special, groups, strict=True) if group >= 0 and sizes[group] >= 3]
    return torch.tensor(sorted(set(free)), dtype=torch.int64)


def _best(tables: dict[str, Rows], known: Tensor, in_use: Tensor) -> tuple[Tensor, Separation]:
    """Return the indicator that tells known rows best, of all tables; the norm where none is known."""
    found: list[tuple[Tensor, Separation]] = []
    for prefix, table in tables.items():
        indicators = measure_indicators(lambda table=table: _chunks(table), len(table), known)  # type: ignore[misc]
        for name, of_known in indicators.known.items():
            rows = indicators.rows[name]
            found.append((rows, separate(rows, of_known, in_use, name=prefix + name)))
        if not indicators.known and not prefix:
            found.append((indicators.rows["norm"], Separation("norm", 0.5, None)))
    return min(found, key=lambda pair: pair[1].below)


def _drawn(subject: Examinable, norms: Tensor, usual: float) -> Tensor:
    """Return which rows have the norm that rows are drawn with, where that is not the usual one."""
    spread = initial_spread(subject.settings)
    length = 0.0 if spread is None else spread * subject.dimension**0.5
    if not length or abs(usual / length - 1) < 2 * DRAWN:
        return torch.zeros(len(norms), dtype=torch.bool)
    return (norms / length - 1).abs() < DRAWN
