"""What a map knows of a space that it was fitted on: enough to tell rows of another model from rows of this one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.geometry.retrieval import directions

__all__ = ["Kinship", "SpaceMark"]

TAIL = 3
"""One in so many directions, those in which rows vary least: other texts fill them hardly, other models do."""
LEAST_ROWS = 64
"""Fewer rows are not judged."""
FOREIGN, STRANGE = 0.2, 0.45
"""Kinship of rows of another model is near 0 or below. Measured on two models and three sources of sentences, each
against each, 300 rows fitted or all: other models up to 0.14; other sources of the same model from 0.27 on."""
ANOTHER_DOMAIN = 0.2
"""Shift of the mean in standard deviations. Measured: other sources of sentences 0.25 to 0.67, the same 0.0."""
LEAST_EMPTINESS = 0.05
"""A space whose tail holds nearly its share of the variance looks alike from everywhere: nothing is told of it."""


class Kinship(NamedTuple):
    """How rows lie beside those that a map was fitted on.

    Args:
        score: 1 where they leave the same directions empty, near 0 or below for another model; `None` for too few rows
            or a space that has no directions of its own.
        shift: distance of the means in standard deviations, sampling noise taken off.
    """

    score: float | None
    shift: float

    @property
    def is_foreign(self) -> bool:
        """Whether they are rows of another model, or of the same one in other coordinates."""
        return self.score is not None and self.score < FOREIGN

    @property
    def is_strange(self) -> bool:
        """Whether they are of another domain, as far as that can be told."""
        return self.shift > ANOTHER_DOMAIN or (self.score is not None and self.score < STRANGE)


@dataclass(frozen=True, eq=False)
class SpaceMark:
    """A space as a map knows it.

    Args:
        label: what people call it.
        model: fingerprint of the model that wrote the rows; empty where it is not known.
        rows: how many were seen.
        mean: of unit rows, (D,).
        variance: mean squared distance of unit rows from it.
        tail: orthonormal directions in which they vary least, (D, D / 3).
        share: share of the variance that lies in these, measured on rows that did not choose them.
        is_unit: whether the rows had length 1 as they were given.
    """

    label: str
    model: str
    rows: int
    mean: Tensor
    variance: float
    tail: Tensor
    share: float
    is_unit: bool

    @classmethod
    def of(
        cls, label: str, model: str, count: int, mean: Tensor, scatter: Tensor, judging: Tensor, *, is_unit: bool
    ) -> SpaceMark:
        """Return the mark of a space, from moments of unit rows and others that judge, (N, D)."""
        width = len(mean) // TAIL
        tail = torch.linalg.eigh(scatter).eigenvectors[:, :width].float()
        variance = float(scatter.trace()) / max(1, count)
        share = _share(judging, mean, tail) if len(judging) else 1 / TAIL
        return cls(label, model, count, mean.float(), variance, tail, share, is_unit)

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.mean)

    @property
    def anisotropy(self) -> float:
        """Length of the mean of unit rows: 0 where they point everywhere, 1 where all point one way."""
        return float(self.mean.norm())

    def kinship(self, rows: Tensor) -> Kinship:
        """Return how rows lie beside those that were fitted on. Rows with NaN and zero rows are left out.

        Shape: (N, D).
        """
        unit = directions(rows.float())
        unit = unit[torch.isfinite(unit).all(1) & (unit != 0).any(1)]
        if not len(unit):
            return Kinship(None, 0.0)
        apart = unit.mean(0) - self.mean
        noise = float((unit - unit.mean(0)).square().sum(1).mean()) / len(unit) + self.variance / max(1, self.rows)
        shift = max(0.0, float(apart @ apart) - noise) / self.variance if self.variance > 0 else 0.0
        emptiness = self.tail.shape[1] / self.dimension - self.share
        known = len(unit) >= LEAST_ROWS and emptiness > LEAST_EMPTINESS and self.rows >= self.dimension // 2
        score = None
        if known:
            found = self.tail.shape[1] / self.dimension - _share(unit, self.mean, self.tail)
            score = found / emptiness
        return Kinship(score, shift**0.5)

    def check(self, rows: Tensor, *, whose: str = "rows") -> Kinship:
        """Refuse rows of another dimension, and rows that another model wrote as far as that can be seen.

        Raises:
            InputError: saying what they are.
        """
        if rows.shape[1] != self.dimension:
            raise InputError(
                f"{whose} must have {self.dimension} dimensions as {self.label} has, got {rows.shape[1]}; "
                "use the map that was fitted for this model"
            )
        found = self.kinship(rows)
        if found.is_foreign:
            raise InputError(
                f"{whose} must come from the model of {self.label}, got a kinship of {found.score:.2f} (1 is the "
                "same, 0 another model); fit a map for this model"
            )
        return found

    def check_model(self, fingerprint: str, *, whose: str = "rows") -> None:
        """Refuse a model that is known and another one.

        Raises:
            InputError: naming both.
        """
        if fingerprint and self.model and fingerprint != self.model:
            raise InputError(
                f"{whose} must come from the model {self.model} of {self.label}, got {fingerprint}; "
                "fit a map for this model"
            )

    def arrays(self) -> dict[str, Tensor]:
        """Return its tensors."""
        return {"mean": self.mean, "tail": self.tail}

    def to_json(self) -> dict[str, Any]:
        """Return everything else."""
        return {
            "label": self.label,
            "model": self.model,
            "rows": self.rows,
            "dimension": self.dimension,
            "variance": self.variance,
            "tail_share": self.share,
            "mean_norm": self.anisotropy,
            "is_unit": self.is_unit,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> SpaceMark:
        """Return what `to_json` and `arrays` gave.

        Raises:
            InputError: if something is missing, or does not fit.
        """
        try:
            label, model, rows, is_unit = (data[name] for name in ("label", "model", "rows", "is_unit"))
            variance, share = float(data["variance"]), float(data["tail_share"])
            mean, tail = arrays["mean"], arrays["tail"]
        except (KeyError, TypeError, ValueError):
            raise InputError("what is known of a space is damaged; fit the map again") from None
        sound = isinstance(label, str) and isinstance(model, str) and type(rows) is int and type(is_unit) is bool
        fits = mean.ndim == 1 and tail.ndim == 2 and len(tail) == len(mean) == data.get("dimension")
        if not (sound and fits and mean.dtype == tail.dtype == torch.float32):
            raise InputError("what is known of a space is damaged; fit the map again")
        return cls(label, model, rows, mean, variance, tail, share, is_unit)


def _share(rows: Tensor, mean: Tensor, tail: Tensor) -> float:
    """Return the share of the squared distance from a mean that lies in some directions."""
    away = rows.float() - mean.float()
    total = float(away.square().sum())
    return float((away @ tail).square().sum()) / total if total > 0 else 0.0
