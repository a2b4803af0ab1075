"""What generation returns. Letters: R texts, N tokens of the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Generated", "Text"]


@dataclass(frozen=True)
class Text:
    """One text.

    Args:
        ids: the new tokens, without the prompt, with the token that ended it.
        log_probabilities: log P(token | all before) under the model itself, before any rule.
        score: what the search ranks by; where nothing is ranked, the sum of the log-probabilities.
        finished: ended by itself, not because there was no more room.
    """

    ids: tuple[int, ...] = ()
    log_probabilities: tuple[float, ...] = ()
    score: float = float("-inf")
    finished: bool = False


@dataclass(frozen=True)
class Generated:
    """Texts in the order of their prompts, `count` for each.

    Args:
        texts: R of them.
    """

    texts: tuple[Text, ...]

    @property
    def ids(self) -> Tensor:
        """The new tokens, (R, N) int64, −1 past the end of a text."""
        return _padded([text.ids for text in self.texts], -1, torch.int64)

    @property
    def log_probabilities(self) -> Tensor:
        """Log-probabilities of the new tokens under the model itself, (R, N), 0 past the end of a text."""
        return _padded([text.log_probabilities for text in self.texts], 0.0, torch.float32)

    @property
    def finished(self) -> Tensor:
        """Which texts ended by themselves, (R,) bool."""
        return torch.tensor([text.finished for text in self.texts])

    @property
    def scores(self) -> Tensor:
        """What the texts are ranked by, (R,)."""
        return torch.tensor([text.score for text in self.texts])


def _padded(rows: Sequence[Sequence[float]], filler: float, dtype: torch.dtype) -> Tensor:
    longest = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[filler] * (longest - len(row))] for row in rows], dtype=dtype).view(
        len(rows), longest
    )
