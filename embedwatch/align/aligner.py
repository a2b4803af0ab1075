"""Aligner: a map from one space into another, with what is known of both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from embedwatch.align.folder import read_folder, write_folder
from embedwatch.align.marks import SpaceMark
from embedwatch.core.errors import InputError, UsageError
from embedwatch.geometry.alignment import orthogonal
from embedwatch.geometry.retrieval import directions

__all__ = ["SIDES", "AffineParts", "Aligner", "Side", "load_aligner"]

Side = Literal["query", "corpus"]
SIDES: tuple[Side, ...] = ("query", "corpus")
Rows = TypeVar("Rows", Tensor, "np.ndarray[Any, Any]")
HIDDEN = ("hidden_in", "hidden_bias", "hidden_out")
CHUNK = 8192


class AffineParts(NamedTuple):
    """A map as an index can hold it: `y = A x + b` between rows that are scaled to norm 1 or not.

    Args:
        matrix: A, (D2, D1).
        offset: b, (D2,).
        input_unit: whether x is scaled to norm 1 first.
        output_unit: whether y is scaled to norm 1.
        orthogonal: whether it only turns the space: D1 = D2, `A Aᵀ = I` and b = 0.
    """

    matrix: Tensor
    offset: Tensor
    input_unit: bool
    output_unit: bool
    orthogonal: bool


@dataclass(frozen=True, eq=False)
class Aligner:
    """A fitted map from one space into another: `y = unit(unit(x) W + b)`, and a small net where that won.

    It is a bridge: what it costs was measured on pairs that it was not fitted on, and stands in `report`. Rows that
    another model wrote are refused as far as that can be seen.

    Args:
        method: name of the way it was fitted.
        side: `query` where mapped rows search among rows of the target space, `corpus` where they are searched.
        source: the space that it maps from.
        target: the space that it maps into.
        matrix: W, (D1, D2) float32.
        offset: b, (D2,) float32.
        hidden: weights of the net that is added, empty for an affine map.
        anchors: hash of the pairs that it was fitted on.
        report: what was measured, as JSON.

    NaN: rows with NaN, Inf or without a direction become rows of NaN.

    Example:
        >>> import numpy
        >>> from embedwatch import fit_aligner
        >>> new = numpy.random.default_rng(0).standard_normal((400, 8)).astype("float32")
        >>> turned = new[:, ::-1].copy()
        >>> aligner = fit_aligner(new, turned)
        >>> aligner.method, bool(numpy.allclose(aligner.transform(new[:1]), turned[:1] / numpy.linalg.norm(turned[:1]),
        ...     atol=1e-5))
        ('rotation', True)
    """

    method: str
    side: Side
    source: SpaceMark
    target: SpaceMark
    matrix: Tensor
    offset: Tensor
    hidden: Mapping[str, Tensor] = field(default_factory=dict)
    anchors: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wanted = (self.source.dimension, self.target.dimension)
        if self.side not in SIDES:
            raise UsageError(f"`side` must be query or corpus, got {self.side!r}; choose one")
        if tuple(self.matrix.shape) != wanted or tuple(self.offset.shape) != wanted[1:]:
            shapes = f"{tuple(self.matrix.shape)} and {tuple(self.offset.shape)}"
            raise InputError(f"the map must go from {wanted[0]} to {wanted[1]} dimensions, got {shapes}; fit it again")
        if self.hidden:
            width = len(self.hidden.get("hidden_bias", ()))
            shapes_wanted = {"hidden_in": (wanted[0], width), "hidden_bias": (width,), "hidden_out": (width, wanted[1])}
            if {name: tuple(array.shape) for name, array in self.hidden.items()} != shapes_wanted:
                raise InputError("the net of the map must fit its spaces, it does not; fit it again")
        if not all(bool(torch.isfinite(array).all()) for array in self.arrays().values()):
            raise InputError("the map must hold finite numbers, got others; fit it again")

    def __repr__(self) -> str:
        return (
            f"Aligner({self.method}, {self.source.label} {self.source.dimension}-d -> "
            f"{self.target.label} {self.target.dimension}-d, side={self.side})"
        )

    @property
    def left_dimension(self) -> int:
        """D1, of the rows that are mapped."""
        return self.source.dimension

    @property
    def right_dimension(self) -> int:
        """D2, of the mapped rows."""
        return self.target.dimension

    def transform(self, rows: Rows, *, check: bool = True) -> Rows:
        """Return rows of the source space in the target space, each scaled to norm 1, in float32.

        Args:
            rows: (N, D1), a tensor or a numpy array; what is given comes back as the same kind.
            check: refuse rows that another model wrote; seen from 64 rows on.

        Shape: (N, D1) -> (N, D2).

        Raises:
            InputError: if they have another dimension, or another model wrote them.
            UsageError: if they are no matrix of numbers.
        """
        given = torch.from_numpy(np.ascontiguousarray(rows)) if isinstance(rows, np.ndarray) else rows
        if not isinstance(given, Tensor) or given.ndim != 2 or not given.is_floating_point():
            what = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
            raise UsageError(f"`rows` must be a matrix (N, D) of floats, got {what}; one row is rows[None]")
        if check or given.shape[1] != self.source.dimension:
            self.source.check(given.detach().cpu(), whose="`rows`")
        parts = [self._map(part) for part in given.split(CHUNK)]
        mapped = torch.cat(parts) if parts else given.new_zeros((0, self.target.dimension), dtype=torch.float32)
        return mapped.cpu().numpy() if isinstance(rows, np.ndarray) else mapped

    def _map(self, rows: Tensor) -> Tensor:
        at = rows.device
        unit = directions(rows.float())
        mapped = unit @ self.matrix.to(at) + self.offset.to(at)
        if self.hidden:
            into, bias, out = (self.hidden[name].to(at) for name in HIDDEN)
            mapped = mapped + torch.nn.functional.gelu((unit - self.source.mean.to(at)) @ into + bias) @ out
        mapped = directions(mapped)
        sound = torch.isfinite(unit).all(1, keepdim=True) & (unit != 0).any(1, keepdim=True)
        return torch.where(sound, mapped, torch.nan)

    def affine(self) -> AffineParts | None:
        """Return the map as `A x + b`; `None` where a net is added."""
        if self.hidden:
            return None
        turns = orthogonal(self.matrix) and not bool(self.offset.any())
        return AffineParts(self.matrix.T.contiguous(), self.offset, input_unit=True, output_unit=True, orthogonal=turns)

    def arrays(self) -> dict[str, Tensor]:
        """Return its tensors."""
        marks = {"source": self.source, "target": self.target}
        sides = {f"{side}/{name}": each for side, mark in marks.items() for name, each in mark.arrays().items()}
        return {"matrix": self.matrix, "offset": self.offset, **self.hidden, **sides}

    def to_json(self) -> dict[str, Any]:
        """Return everything else."""
        return {
            "method": self.method,
            "side": self.side,
            "anchors": self.anchors,
            "source": self.source.to_json(),
            "target": self.target.to_json(),
            "report": dict(self.report),
        }

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write a folder of `aligner.json` and `aligner.safetensors`, whole or not at all.

        Raises:
            InputError: if something is there; an Aligner is replaced where that is asked for.
        """
        write_folder(Path(path), self.to_json(), self.arrays(), replace=replace)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Aligner:
        """Read a folder that `save` wrote.

        Raises:
            InputError: in one line, if it is none or damaged.
        """
        about, arrays = read_folder(Path(path))
        try:
            marks = [
                SpaceMark.from_json(
                    about[side],
                    {
                        name.removeprefix(f"{side}/"): each
                        for name, each in arrays.items()
                        if name.startswith(f"{side}/")
                    },
                )
                for side in ("source", "target")
            ]
            hidden = {name: arrays[name] for name in HIDDEN if name in arrays}
            made = cls(
                str(about["method"]), about["side"], marks[0], marks[1], arrays["matrix"], arrays["offset"], hidden,
                str(about["anchors"]), about["report"],
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{path} is damaged: something is missing; copy it again, or fit it again") from None
        except (InputError, UsageError) as error:
            raise InputError(f"{path} is damaged: {error}") from error
        return made


def load_aligner(path: str | os.PathLike[str]) -> Aligner:
    """Read an Aligner that `embedwatch align fit` or `Aligner.save` wrote.

    Raises:
        InputError: in one line, if it is none or damaged.
    """
    return Aligner.load(path)
