"""Tables of fixed waves: which waves they hold, in whatever layout, and where they are wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.geometry.positions import sinusoids
from embedwatch.geometry.rope import base_frequencies, fitted_base

__all__ = ["Waves", "read_waves"]

READ = 64
"""Waves are told by the first rows, whose positions no type rounds."""
FITS = 0.05
"""An entry may be so far from its wave."""


@dataclass(frozen=True)
class Waves:
    """The waves of a table.

    Args:
        frequencies: (d/2,).
        halves: whether all sines stand in the first half.
        base: of the frequencies.
    """

    frequencies: Tensor
    halves: bool
    base: float


def read_waves(rows: Tensor, base: float) -> Waves | None:
    """Return the waves that a table holds, those of `base` where they fit; `None` where it holds none.

    Row r is the code of position r. Known are sines and cosines in turn or in halves, with `base^(-2i/d)` (Vaswani et
    al. 2017) or `base^(-i/(d/2 - 1))` (tensor2tensor, fairseq).

    Shape: (N, d), d even.

    Example:
        >>> read_waves(sinusoids(torch.arange(32), base_frequencies(16, 500.0), halves=True), 10_000.0).base
        500.0
    """
    dimensions = rows.shape[1]
    if dimensions < 4 or dimensions % 2 or len(rows) < 3:
        return None
    first = rows[:READ].double()
    used = first.norm(dim=1) > 0  # a row of zeros is for padding
    best: tuple[float, Waves] | None = None
    for halves in (True, False):
        for candidate, frequencies in _candidates(first, base, halves=halves):
            codes = sinusoids(torch.arange(len(first)), frequencies, halves=halves)
            error = float((codes - first)[used].abs().amax(1).median()) if bool(used.any()) else 1.0
            if best is None or error < best[0] - 1e-6:
                best = (error, Waves(frequencies, halves, candidate))
    return best[1] if best is not None and best[0] < FITS else None


def _candidates(rows: Tensor, base: float, *, halves: bool) -> list[tuple[float, Tensor]]:
    pairs = rows.shape[1] // 2
    bases = [base]
    sines, cosines = (rows[:, :pairs], rows[:, pairs:]) if halves else (rows[:, ::2], rows[:, 1::2])
    steps = torch.atan2(sines[2], cosines[2]) - torch.atan2(sines[1], cosines[1])
    read = fitted_base(torch.remainder(steps, 2 * torch.pi))
    if read is not None and read > 1:
        bases.append(float(f"{read:.3g}"))
    found = []
    for each in bases:
        found.append((each, base_frequencies(2 * pairs, each)))
        if pairs > 1:
            found.append((each, each ** -(torch.arange(pairs, dtype=torch.float64) / (pairs - 1))))
    return found
