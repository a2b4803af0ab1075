"""Texts that are being written: what a model has read so far, and what it says about the next token.

Letters: B prompts, R rows being written, T positions so far, S source positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .errors import ModelError, check_at_least
from .prompts import NOTHING, Prompts, left_padded
from .transformer import Transformer

__all__ = ["Writing", "evaluating"]


class Writing:
    """Rows of ids that grow by one token at a time, and a model that reads along.

    The cache makes a step cost one position instead of T, and a source is encoded once. Prompts of different lengths
    are padded on the left, so that all rows go on at the same place; a mask and positions that start at the first
    real token make that invisible, and each row is continued as it would be alone.

    Attributes:
        ids: (R, T) int64, all that was read and written; −1 where there is no token.

    Args:
        model: a decoder or an encoder-decoder.
        prompts: B beginnings, at least one token each.
        source: B texts for the encoder of an encoder-decoder.
        copies: rows for each prompt; the prompt is read once all the same.
        room: tokens that will be written at most.
        cached: keep keys and values.
    """

    def __init__(
        self,
        model: Transformer,
        prompts: Prompts,
        *,
        source: Prompts | None = None,
        copies: int = 1,
        room: int = 1,
        cached: bool = True,
    ) -> None:
        check_at_least(1, copies=copies, max_tokens=room)
        _check_kind(model, source)
        vocabulary, device = model.config.vocabulary, next(model.parameters()).device
        self.model = model
        self.ids = left_padded("prompts", prompts, vocabulary).to(device)  # (B, T)
        _check_room(model, self.ids.shape[1], room)
        self.encoded: Tensor | None = None
        self.source_mask: Tensor | None = None
        if source is not None:
            self._read_source(left_padded("source", source, vocabulary).to(device))
        self.cache = model.cache(len(self.ids)) if cached else None
        self._logits = self._read(self.ids)  # (B, V)
        if copies > 1:
            self.select([row for row in range(len(self.ids)) for _ in range(copies)])

    def logits(self) -> Tensor:
        """Return the logits of the next token of each row, (R, V)."""
        return self._logits

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these rows only; a row may be named several times, or never."""
        index = torch.tensor(rows, device=self.ids.device)
        self.ids, self._logits = self.ids[index], self._logits[index]
        self.encoded = None if self.encoded is None else self.encoded[index]
        self.source_mask = None if self.source_mask is None else self.source_mask[index]
        if self.cache is not None:
            self.cache.reorder(index)

    def append(self, tokens: Sequence[int]) -> None:
        """Write one more token in each row, and let the model read it."""
        new = torch.tensor(tokens, device=self.ids.device)[:, None]  # (R, 1)
        self.ids = torch.cat([self.ids, new], dim=1)
        self._logits = self._read(self.ids if self.cache is None else new)

    def _read(self, ids: Tensor) -> Tensor:
        real = ids != NOTHING
        output = self.model(
            ids.clamp(min=0),
            mask=None if bool(real.all()) else real,
            encoded=self.encoded,
            source_mask=self.source_mask,
            cache=self.cache,
        )
        logits: Tensor = output.logits[:, -1]  # (R, V)
        return logits

    def _read_source(self, source: Tensor) -> None:
        if len(source) != len(self.ids):
            raise ModelError(
                f"`source` must have as many rows as `prompts`, {len(self.ids)}, got {len(source)}; give one each"
            )
        real = source != NOTHING
        self.source_mask = None if bool(real.all()) else real
        self.encoded = self.model.encode(source.clamp(min=0), self.source_mask)  # (B, S, D)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off for a while, and leave every module as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _check_kind(model: Transformer, source: Prompts | None) -> None:
    kind = model.config.kind
    if kind == "encoder":
        raise ModelError('`model` must be a decoder or an encoder-decoder to write, got kind "encoder"; it only reads')
    if (source is None) == (kind == "encoder_decoder"):
        got, fix = ("none", "give it") if source is None else ("one", "leave it out")
        raise ModelError(f'`source` must be there for an encoder-decoder alone, got {got} for kind "{kind}"; {fix}')


def _check_room(model: Transformer, read: int, room: int) -> None:
    """Refuse before the work what the positions will refuse at its end."""
    config = model.config
    if config.positions == "learned" and read + room - 1 > config.length:
        left = config.length - read + 1
        raise ModelError(
            f"`max_tokens` must be at most {left} after {read} tokens, got {room}; "
            f"learned positions end at {config.length}"
        )
