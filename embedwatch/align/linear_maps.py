"""An Aligner as a matrix and an offset, for those who bake or rotate; and how arrays go through any of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embedwatch.align.aligner import Aligner

__all__ = ["LinearMap", "blank_note", "digest_of", "linear_map", "mapped", "undirected"]

Matrix = npt.NDArray[np.float32]
PROBES = 8


@dataclass(frozen=True)
class LinearMap:
    """`y = A x + b`, with rows scaled to length 1 before, after, or both.

    Args:
        matrix: A, (D2, D1).
        offset: b, (D2,).
        input_unit, output_unit: whether rows are scaled before and after.
        orthogonal: whether A is a rotation.

    Example:
        >>> turn = LinearMap(np.array([[0, -1], [1, 0]], np.float32), np.zeros(2, np.float32), True, False, True)
        >>> turn.apply(np.array([[3, 0]], np.float32)).tolist()
        [[0.0, 1.0]]
    """

    matrix: Matrix
    offset: Matrix
    input_unit: bool
    output_unit: bool
    orthogonal: bool

    def turn(self, rows: Matrix) -> Matrix:
        """Return rows turned, their lengths kept. Shape: (N, D1) -> (N, D2)."""
        out: Matrix = (rows @ self.matrix.T + self.offset).astype(np.float32)
        return out

    def apply(self, rows: Matrix) -> Matrix:
        """Return rows mapped as an index that has this baked in maps them. Shape: (N, D1) -> (N, D2)."""
        rows = _unit(rows) if self.input_unit else rows
        out = self.turn(rows)
        return _unit(out) if self.output_unit else out


def linear_map(aligner: Aligner) -> LinearMap | None:
    """Return an Aligner as one linear map; `None` where it is not one."""
    found = aligner.affine()
    if found is None:
        return None
    matrix, offset, input_unit, output_unit, orthogonal = found
    return LinearMap(_array(matrix), _array(offset), bool(input_unit), bool(output_unit), bool(orthogonal))


def mapped(aligner: Aligner, rows: Matrix) -> Matrix:
    """Return rows mapped by any Aligner, those without a direction as zeros. Shape: (N, D1) -> (N, D2) float32."""
    found: Matrix = np.nan_to_num(aligner.transform(np.ascontiguousarray(rows, np.float32), check=False))
    return found


def undirected(rows: Matrix) -> int:
    """Return how many rows hold NaN, Inf or nothing but zeros."""
    return int((~np.isfinite(rows).all(1) | ~rows.any(1)).sum())


def blank_note(count: int, rows: int) -> str:
    """Return what to say of rows that have no direction."""
    told = f"{count:,} of {rows:,} vectors hold NaN, Inf or nothing but zeros"
    return f"{told}: they keep their ids, as zeros, and should be embedded again"


def digest_of(aligner: Aligner) -> str:
    """Return 16 hex digits that change with what an Aligner does to rows."""
    probes = np.random.default_rng(0).standard_normal((PROBES, aligner.source.dimension)).astype(np.float32)
    return hashlib.blake2b(mapped(aligner, probes).tobytes(), digest_size=8).hexdigest()


def _array(values: Any) -> Matrix:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    found: Matrix = np.ascontiguousarray(values, np.float32)
    return found


def _unit(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Matrix = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return found
