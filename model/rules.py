"""Rules of decoding, each a pure function from (ids, logits) to logits. Letters: B batch, T positions, V vocabulary.

A rule looks at what has been written, `ids` (B, T), prompt included, and at the `logits` (B, V) of the next token, and
returns new logits of the same shape; it changes neither. A token that a rule forbids gets −∞. Negative ids are padding
and count for nothing, so that a row means the same alone and in a batch of longer ones.

Bind the parameter with `functools.partial`, and chain rules with `apply` in the order in which they are to act;
`rule_chain.usual_rules` does both. Penalties, bans and temperature may change places; top-k and top-p depend on what
came before.

Example:
    >>> from functools import partial
    >>> rules = [partial(repetition_penalty, theta=1.3), partial(top_k, k=2)]
    >>> apply(rules, torch.tensor([[0]]), torch.tensor([[1.3, 1.2, 0.5, -1.0]]))
    tensor([[1.0000, 1.2000,   -inf,   -inf]])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from .errors import ModelError

__all__ = [
    "Rule",
    "apply",
    "no_repeat_ngram",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
]

Rule = Callable[[Tensor, Tensor], Tensor]
"""From ids (B, T) and logits (B, V) to logits (B, V)."""

NEVER = -math.inf


def apply(rules: Iterable[Rule], ids: Tensor, logits: Tensor) -> Tensor:
    """Return the logits after all rules, the first one first."""
    for rule in rules:
        logits = rule(ids, logits)
    return logits


def temperature(ids: Tensor, logits: Tensor, *, tau: float) -> Tensor:
    """Sharpen (τ < 1) or flatten (τ > 1) the distribution.

    z'_i = z_i / τ, so that p'_i ∝ p_i^(1/τ): the odds of two tokens are raised to the power 1/τ. At τ = 0 stands the
    limit: all probability on the largest logit, the first of them where several are equal. That is greedy decoding.

    Shape: (B, T), (B, V) -> (B, V).

    References:
        Ackley, Hinton and Sejnowski 1985, "A learning algorithm for Boltzmann machines", Cognitive Science 9.

    Example:
        >>> ids, logits = torch.tensor([[0]]), torch.tensor([[2.0, 1.0]])
        >>> temperature(ids, logits, tau=0.5)
        tensor([[4., 2.]])
        >>> temperature(ids, logits, tau=0)
        tensor([[2., -inf]])
    """
    if not 0 <= tau < math.inf:
        raise ModelError(
            f"`temperature` must be a number from 0 up, got {tau}; 0 is greedy, 1 leaves the model as it is"
        )
    if tau == 0:
        best = logits.argmax(-1, keepdim=True)  # (B, 1)
        return torch.full_like(logits, NEVER).scatter(-1, best, logits.gather(-1, best))
    return logits / tau


def top_k(ids: Tensor, logits: Tensor, *, k: int) -> Tensor:
    """Keep the k most probable tokens, and those that are as probable as the last of them.

    z'_i = z_i if z_i ≥ the k-th largest logit, else −∞.

    Shape: (B, T), (B, V) -> (B, V).

    References:
        Fan, Lewis and Dauphin 2018, "Hierarchical neural story generation". https://arxiv.org/abs/1805.04833

    Example:
        >>> top_k(torch.tensor([[0]]), torch.tensor([[3.0, 1.0, 2.0]]), k=2)
        tensor([[3., -inf, 2.]])
    """
    _check_count("top_k", k, "1 is greedy; leave the rule out to keep all tokens")
    last = logits.topk(min(k, logits.shape[-1])).values[:, -1:]  # (B, 1)
    return logits.masked_fill(logits < last, NEVER)


def top_p(ids: Tensor, logits: Tensor, *, p: float) -> Tensor:
    """Keep the nucleus: the smallest set of most probable tokens that holds the probability p.

    With tokens in order of falling probability, the i-th stays if p_1 + … + p_(i−1) < p. The first always stays.

    Shape: (B, T), (B, V) -> (B, V).

    References:
        Holtzman et al. 2020, "The curious case of neural text degeneration", eq. 2-3. https://arxiv.org/abs/1904.09751

    Example:
        >>> logits = torch.tensor([[0.1, 0.6, 0.3]]).log()
        >>> top_p(torch.tensor([[0]]), logits, p=0.7).exp()
        tensor([[0.0000, 0.6000, 0.3000]])
    """
    if not 0 < p <= 1:
        raise ModelError(
            f"`top_p` must be a probability above 0 and at most 1, got {p}; 0.9 is usual, 1 keeps all tokens"
        )
    if p == 1:  # rounding in the sum would cut the last tokens
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probability = ordered.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    outside = probability.cumsum(-1) - probability >= p  # (B, V) in falling order; the first is 0 >= p
    return logits.masked_fill(outside.scatter(-1, order, outside), NEVER)


def repetition_penalty(ids: Tensor, logits: Tensor, *, theta: float) -> Tensor:
    """Make tokens that have occurred less probable (θ > 1), or more probable (θ < 1), once however often they occurred.

    z'_i = z_i / θ if z_i > 0, else z_i · θ, for every i in ids. The paper only divides, which would make a token with a
    negative logit more probable; every implementation since multiplies there. So the penalty depends on where the zero
    of the logits lies, though softmax does not: it is a heuristic. θ = 1.2 is the paper's choice.

    Shape: (B, T), (B, V) -> (B, V).

    References:
        Keskar et al. 2019, "CTRL: a conditional transformer language model", section 4.1. https://arxiv.org/abs/1909.05858

    Example:
        >>> repetition_penalty(torch.tensor([[0, 1, -1]]), torch.tensor([[2.0, -2.0, 2.0]]), theta=2.0)
        tensor([[ 1., -4.,  2.]])
    """
    if not 0 < theta < math.inf:
        raise ModelError(f"`repetition_penalty` must be a number above 0, got {theta}; 1.2 is usual, 1 changes nothing")
    occurred = _mark(ids, logits.shape[-1])
    return torch.where(occurred, torch.where(logits > 0, logits / theta, logits * theta), logits)


def no_repeat_ngram(ids: Tensor, logits: Tensor, *, n: int) -> Tensor:
    """Forbid every token that would complete a sequence of n tokens that has occurred before.

    z'_i = −∞ if (ids_(T−n+2), …, ids_T, i) equals (ids_(t+1), …, ids_(t+n)) for some t, else z_i. With n = 1 no token
    occurs twice.

    Shape: (B, T), (B, V) -> (B, V).

    References:
        Paulus, Xiong and Socher 2017, "A deep reinforced model for abstractive summarization", section 2.5 (n = 3).
        https://arxiv.org/abs/1705.04304

    Example:
        >>> no_repeat_ngram(torch.tensor([[0, 2, 1, 0]]), torch.zeros(1, 3), n=2)
        tensor([[0., 0., -inf]])
    """
    _check_count("no_repeat_ngram", n, "3 is usual; leave the rule out to allow repetition")
    if ids.shape[1] < n:
        return logits
    grams = ids.unfold(1, n, 1)  # (B, T - n + 1, n)
    beginning = ids[:, ids.shape[1] - n + 1 :]  # (B, n - 1)
    repeats = (grams[..., :-1] == beginning[:, None]).all(-1) & (grams >= 0).all(-1)  # (B, T - n + 1)
    return logits.masked_fill(_mark(grams[..., -1].masked_fill(~repeats, -1), logits.shape[-1]), NEVER)


def _mark(ids: Tensor, vocabulary: int) -> Tensor:
    """Return (B, V) bool: which tokens are among the ids of their row; ids outside the vocabulary are dropped."""
    spare = ids.masked_fill((ids < 0) | (ids >= vocabulary), vocabulary)
    marks = torch.zeros(ids.shape[0], vocabulary + 1, dtype=torch.bool, device=ids.device)
    return marks.scatter(1, spare, torch.ones_like(spare, dtype=torch.bool))[:, :vocabulary]


def _check_count(name: str, value: int, fix: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"`{name}` must be a whole number from 1 up, got {value!r}; {fix}")
