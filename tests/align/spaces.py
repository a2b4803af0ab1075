"""Maps between two spaces that are known, not fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from embedwatch.align.aligner import Aligner, Side
from embedwatch.align.marks import SpaceMark

Matrix = Any


def unit(rows: Matrix) -> Matrix:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def rotation(dimension: int, seed: int = 0) -> Matrix:
    """A random rotation."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((dimension, dimension)))[0].astype(np.float32)


def mark(label: str, rows: Matrix) -> SpaceMark:
    """What a map knows of a space."""
    x = torch.from_numpy(np.ascontiguousarray(unit(rows), np.float32))
    some, others = x[::2], x[1::2]
    mean = some.mean(0)
    return SpaceMark.of(label, "", len(some), mean, ((some - mean).T @ (some - mean)).double(), others, is_unit=True)


def aligner(
    source: Matrix, target: Matrix, matrix: Matrix, offset: Matrix | None = None, side: Side = "corpus"
) -> Aligner:
    """A map `unit(x) W + b` that nobody fitted. Shapes: (N, D1), (N, D2), (D1, D2), (D2,)."""
    shift: Tensor = torch.zeros(matrix.shape[1]) if offset is None else torch.from_numpy(offset)
    w = torch.from_numpy(np.ascontiguousarray(matrix, np.float32))
    return Aligner("given", side, mark("left", source), mark("right", target), w, shift)


def fitted(source: Matrix, target: Matrix, side: Side = "corpus") -> Aligner:
    """Least squares with an offset, as a map."""
    extended = np.concatenate([source, np.ones((len(source), 1), np.float32)], 1)
    found = np.linalg.lstsq(extended, target, rcond=None)[0].astype(np.float32)
    return aligner(source, target, found[:-1], found[-1].copy(), side=side)
