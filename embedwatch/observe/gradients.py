"""Gradients as an optimizer took them: their joint norm, and that of the embedding table alone."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["gradient_norms"]

FLAT = "_is_flat_param"
"""What marks a parameter that holds this process's part of several."""


def gradient_norms(parameters: Iterable[Tensor], table: Tensor | None = None) -> dict[str, Tensor]:
    """Return scalars of a step: the norm of all gradients, and of one table's, after whatever clipped them.

    `gradient_norm_applied = √(Σ ‖g_i‖²)`; `table_gradient_norm = ‖g_table‖`. Both stay on the device of the model;
    nothing waits for it. Nothing is returned where gradients are spread over processes or devices, or sparse: a part of
    a norm is none.

    Example:
        >>> weight = torch.zeros(2, requires_grad=True)
        >>> weight.grad = torch.tensor([3.0, 4.0])
        >>> float(gradient_norms([weight])["gradient_norm_applied"])
        5.0
    """
    learned = [each for each in parameters if each.grad is not None]
    gradients = [each.grad for each in learned if each.grad is not None]
    if not gradients or not all(map(_is_plain, gradients)) or len({each.device for each in gradients}) > 1:
        return {}
    if any(hasattr(each, FLAT) for each in learned):
        return {}
    precise = any(each.dtype == torch.float64 for each in gradients)  # a norm is not narrowed
    norms = torch._foreach_norm([each.detach() for each in gradients], 2, torch.float64 if precise else torch.float32)
    found = {"gradient_norm_applied": torch.linalg.vector_norm(torch.stack(norms))}
    if table is not None and table.grad is not None:
        own = next((norm for norm, each in zip(norms, learned, strict=True) if each is table), None)
        if own is not None:  # else another optimizer has it
            found["table_gradient_norm"] = own
    return found


def _is_plain(gradient: Tensor) -> bool:
    """Return whether all of a gradient is here, in numbers."""
    spread = hasattr(gradient, "to_local") or gradient.layout != torch.strided
    return not spread and gradient.device.type != "meta" and gradient.is_floating_point()
