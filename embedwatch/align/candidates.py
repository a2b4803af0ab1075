"""The ways to fit a map, simplest first, each from moments and a sample of pairs of unit rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from embedwatch.align.aligner import Side
from embedwatch.align.kept_pairs import Pairs
from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.geometry.alignment import Affine, PairMoments, low_rank_ridge, norm_ratio, procrustes, ridge
from embedwatch.geometry.retrieval import directions

__all__ = ["DEFAULT", "METHODS", "RESIDUAL", "ROTATION", "FittedMap", "Training", "fit_map", "methods"]

ROTATION = "rotation"
"""Procrustes without centring: all that turns a space and nothing else, and a trap where a space has a mean."""
DEFAULT = "procrustes"
RESIDUAL = "residual_net"
RANK_SHARES = (3, 6)
"""Low-rank maps have so small a part of the smaller dimension."""


@dataclass(frozen=True)
class FittedMap:
    """A map before it has a name and a place: an affine one, and the net that is added to it."""

    affine: Affine
    hidden: Mapping[str, Tensor] = field(default_factory=dict)
    mean: Tensor | None = None

    def apply(self, rows: Tensor) -> Tensor:
        """Return unit rows mapped, of norm 1. Shape: (N, D1) -> (N, D2)."""
        if not self.hidden:
            return self.affine.apply(rows)
        unit = directions(rows)
        matrix, offset = self.affine.matrix.to(unit.dtype), self.affine.offset.to(unit.dtype)
        mean = torch.zeros(1) if self.mean is None else self.mean
        inner = torch.nn.functional.gelu(
            (unit - mean.to(unit.dtype)) @ self.hidden["hidden_in"] + self.hidden["hidden_bias"]
        )
        return directions(unit @ matrix + offset + inner @ self.hidden["hidden_out"])


@dataclass(frozen=True)
class Training:
    """What maps are fitted on: moments of all pairs that fit, and a sample of them.

    Args:
        moments: of unit rows.
        kept: the sample.
        side: which side is mapped.
        seed: of the net.
    """

    moments: PairMoments
    kept: Pairs
    side: Side
    seed: int = 0

    def affine(self, matrix: Tensor, *, target_mean: bool = False) -> Affine:
        """Return a map of centred rows.

        A mapped query keeps its place among scores of one query without the mean of the target, which is a bonus for
        hubs; a mapped document stands beside others, and must have the mean and the length that those have.
        """
        offset = -(self.moments.left_mean @ matrix)
        if target_mean or self.side == "corpus":
            offset = offset + self.moments.right_mean
        return Affine(matrix, offset)

    @property
    def scale(self) -> float:
        """What makes mapped rows as long as those of the target, where that matters."""
        return norm_ratio(self.moments) if self.side == "corpus" else 1.0


def _rotation(training: Training) -> Affine:
    matrix = procrustes(training.moments.uncentred)
    return Affine(matrix, torch.zeros(matrix.shape[1], dtype=matrix.dtype))


def _procrustes(training: Training) -> Affine:
    """Unit rows, centred, scaled to norm 1 again: each pair counts alike (VecMap; Artetxe et al. 2018)."""
    kept, moments = training.kept, training.moments
    left = directions(kept.left.double() - moments.left_mean)
    right = directions(kept.right.double() - moments.right_mean)
    return training.affine(training.scale * procrustes(left.T @ right))


def _centred(training: Training) -> Affine:
    return training.affine(training.scale * procrustes(training.moments.cross), target_mean=True)


def _anchored(strength: float) -> Callable[[Training], Affine]:
    def fit(training: Training) -> Affine:
        moments = training.moments
        return training.affine(ridge(moments, strength, norm_ratio(moments) * procrustes(moments.cross)))

    return fit


def _ridge(strength: float) -> Callable[[Training], Affine]:
    return lambda training: training.affine(ridge(training.moments, strength))


def _low_rank(part: int) -> Callable[[Training], Affine]:
    def fit(training: Training) -> Affine:
        rank = max(1, min(training.moments.cross.shape) // part)
        return training.affine(low_rank_ridge(training.moments, 1.0, rank))

    return fit


AFFINE: dict[str, Callable[[Training], Affine]] = {
    ROTATION: _rotation,
    DEFAULT: _procrustes,
    "centred_procrustes": _centred,
    "anchored_ridge_10": _anchored(10.0),
    "anchored_ridge_3": _anchored(3.0),
    "ridge_1": _ridge(1.0),
    "ridge_0.1": _ridge(0.1),
    **{f"low_rank_1/{part}": _low_rank(part) for part in RANK_SHARES},
}
METHODS = (*AFFINE, RESIDUAL)
"""Names of all ways, in the order in which they are preferred; `rotation` only where none is better at all."""


def methods(wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the ways that are tried.

    Raises:
        UsageError: if there is no such way.
    """
    for name in wanted or ():
        if name not in METHODS:
            hint = did_you_mean(name, METHODS)
            raise UsageError(f"`method` must be one of {', '.join(METHODS)}, got {name!r}; {hint or 'choose one'}")
    return METHODS if not wanted else tuple(name for name in METHODS if name in wanted)


def fit_map(name: str, training: Training) -> FittedMap:
    """Return the map that one way gives."""
    if name == RESIDUAL:
        from embedwatch.align.residual_net import fit_residual_net

        base = AFFINE["anchored_ridge_3"](training)
        mean = training.moments.left_mean.float()
        return FittedMap(base, fit_residual_net(base, mean, training.kept, seed=training.seed), mean)
    return FittedMap(AFFINE[name](training))
