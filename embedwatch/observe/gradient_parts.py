"""Gradients that lie on several ranks in parts: what one rank knows of their norm, and how all together know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["OF_PARTS", "norms_of_parts", "squares_of_parts"]

OF_PARTS = "_square_of_parts"
"""What follows the name of a scalar that is the part of this rank in the square of a norm."""


def squares_of_parts(parameters: Iterable[Tensor], table: Tensor | None = None) -> dict[str, Tensor]:
    """Return this rank's part in the squares of two norms: of all gradients, and of one table's. Runs no collective.

    `Σ_ranks square = ‖g‖²`: what lies on several ranks in copies counts on each as a share. Nothing is returned where a
    gradient is a sum that was not reduced, or sparse. The names end in `OF_PARTS`, so that nobody takes a part of a
    norm for the norm.
    """
    learned: list[Any] = [each for each in parameters if each.grad is not None]
    if not learned or not all(map(_has_parts, (each.grad for each in learned))):
        return {}
    squares = [_square(each.grad) for each in learned]
    found = {f"gradient_norm_applied{OF_PARTS}": torch.stack(squares).sum()}
    own = [square for square, each in zip(squares, learned, strict=True) if each is table]
    return {**found, **{f"table_gradient_norm{OF_PARTS}": square for square in own}}


def norms_of_parts(totals: Mapping[str, float]) -> dict[str, float]:
    """Return the scalars of a step with norms in place of the squares, which are sums over all ranks by now.

    Example:
        >>> norms_of_parts({"loss": 2.0, "gradient_norm_applied_square_of_parts": 25.0})
        {'loss': 2.0, 'gradient_norm_applied': 5.0}
    """
    return {
        name.removesuffix(OF_PARTS): value**0.5 if name.endswith(OF_PARTS) else value for name, value in totals.items()
    }


def _has_parts(gradient: Any) -> bool:
    """Return whether it is spread over ranks in parts or copies."""
    if not hasattr(gradient, "to_local") or gradient.to_local().layout != torch.strided:
        return False
    return not any(placement.is_partial() for placement in gradient.placements)


def _square(gradient: Any) -> Tensor:
    mesh, copies = gradient.device_mesh, 1
    for dim, placement in enumerate(gradient.placements):
        copies *= mesh.size(dim) if placement.is_replicate() else 1
    local: Tensor = gradient.to_local().detach()
    length: Tensor = torch.linalg.vector_norm(local.float())
    return length.square() / copies
