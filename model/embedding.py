"""How tokens become vectors, and the one place where tokens, positions and segments are summed.

Letters: B batch, T positions, D d_model, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .errors import check_at_least
from .positions import Positions

__all__ = ["InputEmbedding", "TokenEmbedding"]


class TokenEmbedding(nn.Embedding):
    """Looks tokens up in a table, and multiplies by √D so that a token is as long as a position.

    The table starts from N(0, 1/D): entries of standard deviation D^-½, rows of norm 1. That suits its second use as
    the output projection (tied weights), where D products are summed into one logit of unit variance. As input such
    rows would have an RMS of D^-½, 0.04 at D = 512, beside the 0.71 of sinusoidal positions: positions would drown the
    tokens. The factor √D brings the RMS of a token to 1 and leaves the table as the projection wants it. It belongs in
    exactly one place: left out, or applied twice, it does not crash, it only trains badly.

    Its price: at the start a pre-norm stream is mostly the token itself, and `norm(√D E_t) · E_t` is near √D. So a tied
    and scaled model begins by repeating its input, with a loss above ln V, and unlearns that in its first steps.

    Which start fits otherwise:

    | tied | scaled | std | why |
    | --- | --- | --- | --- |
    | yes | yes | D^-½ | logits of unit variance, input of RMS 1: both wishes met |
    | yes | no | D^-½ | the projection decides (GPT-2: 0.02); positions should be as small, that is, learned |
    | no | yes | D^-½ | input of RMS 1 |
    | no | no | 1 | input of RMS 1; the projection has a table of its own |

    Shape: (B, T) int64 -> (B, T, D).

    References:
        Vaswani et al. 2017, "Attention is all you need", section 3.4. https://arxiv.org/abs/1706.03762
        Press and Wolf 2016 (tying), https://arxiv.org/abs/1608.05859

    Args:
        vocabulary: V.
        d_model: D.
        scaled: multiply by √D.
        tied: the table is also the output projection.

    Example:
        >>> TokenEmbedding(10, 4)(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, vocabulary: int, d_model: int, *, scaled: bool = True, tied: bool = True) -> None:
        check_at_least(1, vocabulary=vocabulary, d_model=d_model)
        self.std = d_model**-0.5 if scaled or tied else 1.0
        self.scale = math.sqrt(d_model) if scaled else 1.0
        super().__init__(vocabulary, d_model)

    def reset_parameters(self) -> None:
        """Draw the table anew from a normal distribution."""
        nn.init.normal_(self.weight, std=self.std)

    def forward(self, ids: Tensor) -> Tensor:
        """Return one vector for each token."""
        return super().forward(ids) * self.scale  # (B, T, D)

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of `repr`."""
        return f"{super().extra_repr()}, scale={self.scale:.4g}"


class InputEmbedding(nn.Module):
    """Sums scaled tokens, positions and segments: what enters the first layer is the output of this one module.

    `x = √D · E[token] + P[position] + S[segment]`, normalised at the end if asked for (BERT). Dropout comes after it
    (`Stack.dropout`), so that what a hook sees here is the same in training.

    Shape: (B, T) int64 -> (B, T, D).

    References:
        Vaswani et al. 2017, section 3.4; Devlin et al. 2018 (segments), https://arxiv.org/abs/1810.04805

    Args:
        tokens: the token embedding.
        positions: any scheme; those that act in attention add nothing here.
        segments: number of segment embeddings; 0: none.
        norm: normalises the sum; None: nothing does.
    """

    def __init__(
        self, tokens: TokenEmbedding, positions: Positions, *, segments: int = 0, norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.tokens, self.positions, self.norm = tokens, positions, norm
        self.segments = nn.Embedding(segments, tokens.embedding_dim) if segments else None
        if self.segments is not None:
            nn.init.normal_(self.segments.weight, std=tokens.std * tokens.scale / 2)

    def forward(self, ids: Tensor, at: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return the sum; `segments` None means that all tokens belong to segment 0."""
        x: Tensor = self.positions(self.tokens(ids), at)  # (B, T, D)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        return x if self.norm is None else self.norm(x)
