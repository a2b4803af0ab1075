"""The rules that people ask for by name, bound and in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from . import rules
from .rules import Rule, apply

__all__ = ["usual_rules"]


def usual_rules(
    *,
    repetition_penalty: float | None = None,
    no_repeat_ngram: int | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
) -> list[Rule]:
    """Return the rules that are asked for, in the usual order: penalties, top-k, top-p.

    Raises:
        ModelError: if a value is wrong; here, before the work begins.

    Example:
        >>> [rule.keywords for rule in usual_rules(top_p=0.9, repetition_penalty=1.2)]
        [{'theta': 1.2}, {'p': 0.9}]
    """
    named: list[tuple[Callable[..., Tensor], str, float | None]] = [
        (rules.repetition_penalty, "theta", repetition_penalty),
        (rules.no_repeat_ngram, "n", no_repeat_ngram),
        (rules.top_k, "k", top_k),
        (rules.top_p, "p", top_p),
    ]
    chain: list[Rule] = [partial(rule, **{name: value}) for rule, name, value in named if value is not None]
    apply(chain, torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 2))
    return chain
