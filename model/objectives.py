"""What is learned: cross-entropy with label smoothing, and the three ways to ask for the next or missing token.

Letters: B batch, T positions, S source positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import ModelError
from .text import BEGIN, END, MASK, PADDING, SPECIAL

__all__ = ["IGNORE", "Batch", "Loss", "causal", "cross_entropy", "masked", "translation"]

IGNORE = -100
"""A target that asks for nothing: padding, or a token that was not masked."""

RATE = 0.15
TO_MASK, TO_RANDOM = 0.8, 0.1
"""Of the chosen tokens so many become `<mask>`, so many a random token; the rest stays as it is."""


class Loss(NamedTuple):
    """A sum and the number of targets in it: means over unequal parts would weigh them wrongly.

    Args:
        total: with gradient, smoothed: what is minimised.
        nats: without gradient, not smoothed: what perplexity is made of.
        number: of targets that are not `IGNORE`.
    """

    total: Tensor
    nats: Tensor
    number: int


@dataclass(frozen=True)
class Batch:
    """What goes in and what should come out.

    Args:
        ids: (B, T) int64, the inputs.
        targets: (B, T) int64, the token wanted at each place, or `IGNORE`.
        source: (B, S) int64, of a translation.
        source_mask: (B, S) bool, true for real tokens.
    """

    ids: Tensor
    targets: Tensor
    source: Tensor | None = None
    source_mask: Tensor | None = None

    @property
    def number(self) -> int:
        """Number of targets."""
        return int((self.targets != IGNORE).sum())

    def to(self, device: torch.device) -> Batch:
        """Return the batch on another device."""
        parts = {name: part.to(device) for name, part in vars(self).items() if part is not None}
        return replace(self, **parts)


def cross_entropy(logits: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Loss:
    """Return the cross-entropy of predictions with the truth, in nats, with label smoothing, padding left out.

    The model says `p = softmax(z)`. Maximum likelihood minimises `-log p_y = log Σ_v exp z_v - z_y`: the nats that
    are needed to write token y with a code made for p. Its gradient in z is `p - onehot(y)`.

    Label smoothing asks for `q = (1 - ε) onehot(y) + ε/V` instead of certainty, for with one-hot targets `z_y - z_v`
    must grow without end. The cross-entropy with q is

        -Σ_v q_v log p_v = -(1 - ε) log p_y - ε mean_v(log p_v)

    without a table of q. Its minimum is the entropy of q, not 0; perplexity is worse, accuracy and BLEU better.

    Shape: logits (B, T, V), targets (B, T) -> sums over all places whose target is not `IGNORE`.

    Range: nats, 0 or more. No target at all: total 0 and number 0.

    References:
        Szegedy et al. 2016, "Rethinking the Inception architecture", section 7, https://arxiv.org/abs/1512.00567;
        Vaswani et al. 2017, section 5.4, ε = 0.1, https://arxiv.org/abs/1706.03762

    Args:
        logits: z, of any floating type; the sums are made in float32.
        targets: y.
        smoothing: ε.

    Raises:
        ModelError: if ε is not in [0, 1).

    Example:
        >>> loss = cross_entropy(torch.zeros(1, 2, 8), torch.tensor([[3, IGNORE]]))
        >>> loss.number, round(loss.total.item(), 4)  # knows nothing: log 8
        (1, 2.0794)
    """
    check_smoothing(smoothing)
    wanted = targets != IGNORE  # (B, T)
    y = targets.masked_fill(~wanted, 0)  # (B, T)
    log_p = logits.float().log_softmax(dim=-1)  # (B, T, V)
    nll = -log_p.gather(-1, y[..., None]).squeeze(-1)  # (B, T)
    smooth = nll if smoothing == 0 else (1 - smoothing) * nll - smoothing * log_p.mean(-1)
    total = smooth.masked_fill(~wanted, 0).sum()
    return Loss(total, nll.detach().masked_fill(~wanted, 0).sum(), int(wanted.sum()))


def causal(windows: Tensor) -> Batch:
    """Predict each token from those before it: `Π_t p(x_t | x_<t)`, all T at once thanks to the causal mask.

    Shape: (B, T+1) -> ids (B, T), targets (B, T), one step ahead.

    References:
        Radford et al. 2018, "Improving language understanding by generative pre-training", equation 1.

    Example:
        >>> batch = causal(torch.tensor([[5, 6, 7]]))
        >>> batch.ids.tolist(), batch.targets.tolist()
        ([[5, 6]], [[6, 7]])
    """
    if windows.shape[1] < 2:
        raise ModelError(f"`windows` must hold at least 2 tokens each, got {windows.shape[1]}; one is the first target")
    return Batch(windows[:, :-1], _without_padding(windows[:, 1:]))


def masked(ids: Tensor, *, vocabulary: int, generator: torch.Generator, rate: float = RATE) -> Batch:
    """Hide some tokens and predict them from both sides, as BERT learns.

    Of all tokens but special ones, 15 % are chosen, each by its own coin. Of these 80 % become `<mask>`, 10 % a random
    token, 10 % stay: the mask never appears in use, so the model must not learn that other tokens are always right.

    Shape: (B, T) -> ids (B, T) with changes, targets (B, T), `IGNORE` where nothing was chosen.

    References:
        Devlin et al. 2019, "BERT", section 3.1 and appendix A.1, https://arxiv.org/abs/1810.04805

    Args:
        ids: tokens.
        vocabulary: V, to draw random tokens from.
        generator: the source of all chance here.
        rate: share of tokens that are chosen.
    """
    if not 0 < rate < 1:
        raise ModelError(f"`rate` must be between 0 and 1, got {rate}; {RATE} is usual")
    coins = torch.rand(ids.shape, generator=generator)  # (B, T)
    fates = torch.rand(ids.shape, generator=generator)  # (B, T)
    others = torch.randint(len(SPECIAL), vocabulary, ids.shape, generator=generator)  # (B, T)
    chosen = (coins < rate) & (ids >= len(SPECIAL))
    changed = torch.where(chosen & (fates < TO_MASK), MASK, ids)
    changed = torch.where(chosen & (fates >= TO_MASK) & (fates < TO_MASK + TO_RANDOM), others, changed)
    return Batch(changed, ids.masked_fill(~chosen, IGNORE))


def translation(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> Batch:
    """Predict a translation token by token, each from the source and the true tokens before it: teacher forcing.

    The decoder reads `<bos> y_1 … y_n` and is asked for `y_1 … y_n <eos>`; the source ends with `<eos>`. Learning from
    the truth makes all steps independent given it, so they run at once; the price is that in use the model sees its
    own mistakes, which it never saw in training (exposure bias).

    Shape: B sequences each -> ids, targets (B, T), source and source_mask (B, S), padded on the right.

    References:
        Williams and Zipser 1989, "A learning algorithm for continually running fully recurrent neural networks";
        Vaswani et al. 2017, section 3.1.

    Example:
        >>> batch = translation([torch.tensor([7, 8])], [torch.tensor([9])])
        >>> batch.source.tolist(), batch.ids.tolist(), batch.targets.tolist()
        ([[7, 8, 2]], [[1, 9]], [[9, 2]])
    """
    end, begin = torch.tensor([END]), torch.tensor([BEGIN])
    source = _pad([torch.cat([each, end]) for each in sources])  # (B, S)
    ids = _pad([torch.cat([begin, each]) for each in targets])  # (B, T)
    wanted = _pad([torch.cat([each, end]) for each in targets])  # (B, T)
    return Batch(ids, _without_padding(wanted), source, source != PADDING)


def _pad(rows: Sequence[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=PADDING)


def _without_padding(targets: Tensor) -> Tensor:
    return targets.masked_fill(targets == PADDING, IGNORE)


def check_smoothing(smoothing: float) -> None:
    """Raise unless this share can be taken from the truth."""
    if not 0 <= smoothing < 1:
        raise ModelError(f"`smoothing` must be at least 0 and below 1, got {smoothing}; 0.1 is usual")
