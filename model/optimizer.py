"""AdamW: which parameters decay and which do not, how gradients are clipped, and a proof that none was forgotten."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .errors import ModelError

__all__ = ["Clip", "adamw", "check_groups", "clip_by_global_norm", "parameter_groups"]

BETAS = (0.9, 0.95)
EPSILON = 1e-8


class Clip(NamedTuple):
    """Global norm before clipping, and whether it was above the limit."""

    norm: float
    clipped: bool


def parameter_groups(model: nn.Module, *, decay: float = 0.1, decay_embeddings: bool = False) -> list[dict[str, Any]]:
    """Sort parameters into three explicit groups: matrices, which decay, tables of embeddings, and all the rest.

    Biases and LayerNorm gains have no reason to be small: their zero is no simpler model. Tables are a choice of their
    own, hence a group of their own: an embedding row gets a gradient only when its token occurs, but decay on every
    step, so that rare tokens shrink towards zero; without decay, norms of frequent tokens may grow without bound. A
    tied table is also the output projection; it counts once, as a table.

    Args:
        model: any module.
        decay: λ of matrices.
        decay_embeddings: whether tables decay too.

    Returns:
        Groups for a torch optimizer, with `name` and, in the order of `params`, `names`.

    Raises:
        ModelError: if a parameter was forgotten or counted twice; see `check_groups`.

    Example:
        >>> model = nn.ModuleDict({"table": nn.Embedding(5, 2), "map": nn.Linear(2, 2), "norm": nn.LayerNorm(2)})
        >>> for group in parameter_groups(model):
        ...     print(group["name"], group["weight_decay"], group["names"])
        matrices 0.1 ['map.weight']
        embeddings 0.0 ['table.weight']
        vectors 0.0 ['map.bias', 'norm.weight', 'norm.bias']
    """
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters(recurse=False)}
    decays = {"matrices": decay, "embeddings": decay if decay_embeddings else 0.0, "vectors": 0.0}
    groups: dict[str, dict[str, Any]] = {
        name: {"name": name, "params": [], "names": [], "weight_decay": value} for name, value in decays.items()
    }
    for name, parameter in model.named_parameters():  # one that is tied comes once
        if parameter.requires_grad:
            kind = "embeddings" if id(parameter) in tables else "matrices" if parameter.ndim >= 2 else "vectors"
            groups[kind]["params"].append(parameter)
            groups[kind]["names"].append(name)
    found = [group for group in groups.values() if group["params"]]
    check_groups(model, found)
    return found


def check_groups(model: nn.Module, groups: Iterable[dict[str, Any]]) -> None:
    """Prove that the groups hold every parameter that is trained, each exactly once, and nothing else.

    Raises:
        ModelError: naming those that were forgotten, counted twice, or belong to no such model.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters() if parameter.requires_grad}
    counts = dict.fromkeys(names, 0)
    strangers = 0
    for group in groups:
        for parameter in group["params"]:
            if id(parameter) in counts:
                counts[id(parameter)] += 1
            else:
                strangers += 1
    wrong = [f"{names[key]} {count} times" for key, count in counts.items() if count != 1]
    if strangers:
        wrong.append(f"{strangers} that the model does not train")
    if wrong:
        raise ModelError(
            f"`groups` must hold each parameter exactly once, got {', '.join(wrong[:3])}"
            f"{f' and {len(wrong) - 3} more' if len(wrong) > 3 else ''}; start from `parameter_groups`"
        )


def adamw(
    model: nn.Module,
    *,
    rate: float,
    decay: float = 0.1,
    decay_embeddings: bool = False,
    betas: tuple[float, float] = BETAS,
) -> torch.optim.AdamW:
    """Return AdamW with decoupled weight decay over the groups of `parameter_groups`.

    With gradient g_t both Adam and AdamW keep running means and correct them for their start at zero:

        m_t = β₁ m_{t-1} + (1 - β₁) g_t        m̂_t = m_t / (1 - β₁ᵗ)
        v_t = β₂ v_{t-1} + (1 - β₂) g_t²       v̂_t = v_t / (1 - β₂ᵗ)

    Adam with L2 regularisation puts the decay into the gradient, `g_t = ∇f + λθ`, so it is divided by √v̂ like the
    rest: parameters with large gradients hardly decay, and λ and the rate cannot be tuned apart. AdamW takes it out
    of the gradient and shrinks every parameter alike:

        θ_t = θ_{t-1} - η_t m̂_t / (√v̂_t + ε) - η_t λ θ_{t-1}

    References:
        Kingma and Ba 2015, "Adam", algorithm 1, https://arxiv.org/abs/1412.6980;
        Loshchilov and Hutter 2019, "Decoupled weight decay regularization", algorithm 2,
        https://arxiv.org/abs/1711.05101

    Args:
        model: what is trained.
        rate: η, before the schedule.
        decay: λ of matrices.
        decay_embeddings: whether tables of embeddings decay too.
        betas: β₁ and β₂. A smaller β₂ than Adam's 0.999 forgets a spike of gradients sooner.

    Raises:
        ModelError: if a number is out of range.
    """
    check_adamw(rate, decay, betas)
    groups = parameter_groups(model, decay=decay, decay_embeddings=decay_embeddings)
    fused = all(parameter.device.type in ("cpu", "cuda") for group in groups for parameter in group["params"])
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=EPSILON, weight_decay=0.0, fused=fused)


def clip_by_global_norm(parameters: Iterable[nn.Parameter], limit: float) -> Clip:
    """Scale all gradients by one factor so that their joint norm is at most `limit`.

    With `‖g‖ = √(Σ_i ‖g_i‖²)` over all parameters, `g_i ← g_i · min(1, limit / ‖g‖)`: a long step becomes a shorter one
    in the same direction, which clipping each entry would turn. That bounds what one strange batch can do. A limit
    that cuts most steps is a smaller learning rate in disguise, so the count belongs in the log.

    NaN, Inf: the norm is returned as it is and nothing is scaled; the caller skips the step.

    References:
        Pascanu et al. 2013, "On the difficulty of training recurrent neural networks", algorithm 1,
        https://arxiv.org/abs/1211.5063

    Raises:
        ModelError: if the limit is not above 0.

    Example:
        >>> weight = nn.Parameter(torch.zeros(2))
        >>> weight.grad = torch.tensor([3.0, 4.0])
        >>> clip_by_global_norm([weight], 1.0)
        Clip(norm=5.0, clipped=True)
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    check_clip(limit)
    gradients: list[Tensor] = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return Clip(0.0, clipped=False)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g, dtype=torch.float32) for g in gradients]))
    length = norm.item()
    clipped = limit < length < math.inf
    if clipped:
        for gradient in gradients:
            gradient.mul_(limit / length)
    return Clip(length, clipped)


def check_adamw(rate: float, decay: float, betas: tuple[float, float]) -> None:
    """Raise unless AdamW can work with these numbers."""
    if not 0 < rate < math.inf:
        raise ModelError(f"`rate` must be above 0, got {rate}; 1e-3 suits small models")
    if not 0 <= decay < math.inf:
        raise ModelError(f"`decay` must be 0 or more, got {decay}; 0.1 is usual for language models")
    if not all(0 <= beta < 1 for beta in betas):
        raise ModelError(f"`betas` must be at least 0 and below 1, got {betas}; {BETAS} is usual")


def check_clip(limit: float) -> None:
    """Raise unless a norm can be clipped to this limit."""
    if not limit > 0:
        raise ModelError(f"`clip` must be above 0, got {limit}; 1.0 is usual, infinity only measures")
