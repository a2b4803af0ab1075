"""Interventions: what changes a model, and is done only when it is asked for."""

from __future__ import annotations

import logging
import math

import torch
from torch import Tensor, nn

from embedwatch.core.errors import UsageError
from embedwatch.observe.anatomy import is_computed
from embedwatch.observe.places import token_embeddings, unwrapped

__all__ = ["check_max_norm", "renormalize_tokens", "shrink_rows", "token_table"]

log = logging.getLogger(__name__)

CHUNK = 4096
NAMED = 5
"""So many of the longest tokens are named in the log."""
ROUNDING = 1e-6
"""Relative error of a norm in float32: a row that is longer by less is not longer."""


def renormalize_tokens(model: nn.Module, max_norm: float) -> int:
    """Scale rows of the input embedding table that are too long to `max_norm`, in place; return how many there were.

    `x ← x · max_norm / ‖x‖` where `‖x‖ > max_norm`; all other rows keep their bits. A table that several modules share,
    such as a tied output, is scaled once. Rows that hold NaN or infinity are left alone: nothing can be said about
    their length. Calling it again changes nothing.

    The state of the optimizer is not touched: Adam's moments still hold what the gradients were. Call it between steps,
    not between a forward pass and its backward pass. After each step it is the max-norm constraint of Hinton et al.;
    weight decay on the table is the gentler remedy.

    Shape: a table (V, D).
    NaN, Inf, empty: such rows are left alone; 0 for a table without long rows.
    References: Hinton, Srivastava, Krizhevsky, Sutskever & Salakhutdinov 2012, "Improving neural networks by
        preventing co-adaptation of feature detectors" (arXiv:1207.0580, section 2).

    Args:
        model: any module, also compiled or wrapped.
        max_norm: the length that rows may have.

    Raises:
        UsageError: if `max_norm` is no positive number, or the model has no embedding table that lies here in whole.

    Example:
        >>> model = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 4))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[3.0, 4.0], [0.3, 0.4], [torch.nan, 9.0], [0.0, 0.0]]))
        >>> renormalize_tokens(model, 1.0), renormalize_tokens(model, 1.0)
        (1, 0)
        >>> model[0].weight[0].tolist() == torch.tensor([0.6, 0.8]).tolist()
        True
    """
    check_max_norm(max_norm)
    name, weight = token_table(model)
    before = torch.cat([_norms(part) for part in weight.split(CHUNK)]) if log.isEnabledFor(logging.INFO) else None
    number = int(shrink_rows(weight, max_norm))
    if number and before is not None:
        _report(name, before, number, max_norm)
    return number


def shrink_rows(weight: Tensor, max_norm: float) -> Tensor:
    """Scale the rows of a table that are too long, in place; return how many, on its device: nothing waits for it.

    It reads and writes the whole table once, without looking whether that is needed: a device need not answer.

    Shape: (V, D) to ().
    """
    number = torch.zeros((), dtype=torch.int64, device=weight.device)
    longer = max_norm * (1 + max(torch.finfo(weight.dtype).eps, ROUNDING))  # what rounding made longer is not long
    with torch.no_grad():
        for part in weight.split(CHUNK):
            norms = _norms(part)
            long = (norms > longer) & norms.isfinite()
            part.mul_(torch.where(long, max_norm / norms, 1)[:, None])  # times 1 keeps every bit
            number.add_(long.sum())
    return number


def _report(name: str, norms: Tensor, number: int, max_norm: float) -> None:
    longest = torch.where(norms.isfinite(), norms, 0).topk(min(number, NAMED))
    tokens = zip(longest.indices.tolist(), longest.values.tolist(), strict=True)
    log.info(
        "embedwatch: %s of %s rows of %s were longer than %g and are scaled to it; the longest: %s",
        f"{number:,}",
        f"{len(norms):,}",
        name,
        max_norm,
        ", ".join(f"token {token} ({norm:.4g})" for token, norm in tokens),
    )


def _norms(rows: Tensor) -> Tensor:
    """Return the norm of each row in at least float32: a square overflows in less."""
    norms: Tensor = torch.linalg.vector_norm(rows.to(torch.promote_types(rows.dtype, torch.float32)), dim=1)
    return norms


def token_table(model: nn.Module) -> tuple[str, Tensor]:
    """Return the name of the input embedding's weight, and the weight without its history.

    Raises:
        UsageError: if there is none, or it does not lie here in whole.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"`model` must be a torch module, got {type(model).__name__}; pass the model itself")
    name, module = next(iter(token_embeddings(unwrapped(model)).items()), (None, None))
    if name is None or module is None:
        raise UsageError(f"`model` must have an embedding of tokens, got {type(model).__name__} without; leave it out")
    if is_computed(module):
        raise UsageError(
            f"`model` must hold its embedding table as a parameter, got {name}, computed from others; scale those"
        )
    weight = module.weight
    if hasattr(weight, "to_local") or weight.device.type == "meta" or weight.dim() != 2 or not len(weight):
        raise UsageError(
            f"`model` must hold its embedding table in whole, got {type(weight).__name__} on {weight.device.type} with "
            f"shape {tuple(weight.shape)}; gather its parameters first"
        )
    return f"{name}.weight" if name else "weight", weight.detach()


def check_max_norm(max_norm: object) -> None:
    """Refuse what is no length.

    Raises:
        UsageError: if it is not a finite number above 0.
    """
    number = isinstance(max_norm, (int, float)) and not isinstance(max_norm, bool)
    if not number or not 0 < float(max_norm) < math.inf:  # type: ignore[arg-type]
        raise UsageError(f"`max_norm` must be a finite number above 0, got {max_norm!r}; 3 median norms are generous")
