"""How the next token is chosen from its logits. Letters: B batch, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import ModelError

__all__ = ["greedy", "log_probabilities", "sample"]


def greedy(logits: Tensor) -> Tensor:
    """Return the most probable token, the first of them where several are equally probable.

    argmax_i z_i. It takes the best step, not the way to the best whole: a probable sequence may begin with an
    improbable token. `beam_search` looks further ahead.

    Shape: (B, V) -> (B,) int64.

    Example:
        >>> greedy(torch.tensor([[0.1, 2.0, 0.3]]))
        tensor([1])
    """
    check_choosable(logits)
    return logits.argmax(-1)


def sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a token from softmax(z), with the randomness of the generator alone.

    P(i) = e^(z_i) / Σ_j e^(z_j). The same logits and the same state of the generator give the same token; torch's
    global generator is neither read nor moved. Logits of −∞ are never drawn.

    Shape: (B, V) -> (B,) int64.

    Example:
        >>> sample(torch.tensor([[0.0, -torch.inf]]), torch.Generator().manual_seed(0))
        tensor([0])
    """
    check_choosable(logits)
    return torch.multinomial(logits.softmax(-1, dtype=torch.float32), 1, generator=generator)[:, 0]


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log softmax(z) in float32 at least: z_i − log Σ_j e^(z_j).

    Shape: (B, V) -> (B, V).

    Example:
        >>> log_probabilities(torch.zeros(1, 2)).exp()
        tensor([[0.5000, 0.5000]])
    """
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def check_choosable(logits: Tensor) -> None:
    """Refuse rows without a token to choose: NaN or infinite logits, or nothing left by the rules.

    Raises:
        ModelError: with the row, and what to do.
    """
    best = logits.max(-1).values  # (B,); NaN where a row holds one
    if bool(best.isfinite().all()):
        return
    row = int((~best.isfinite()).nonzero()[0])
    if bool(best[row] == -torch.inf):
        raise ModelError(
            f"`rules` must leave a token to choose, got none in row {row}; loosen no_repeat_ngram, or end sooner"
        )
    raise ModelError(
        f"`logits` must be finite numbers, got {best[row].item()} in row {row}; the weights may be damaged"
    )
