"""Texts to vectors, by the model's own recipe: prompt, tokens, hidden states, pooling and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.loading.backbone import Backbone
from embedwatch.loading.messages import first_line
from embedwatch.loading.pipeline import Pipeline
from embedwatch.loading.pooling import pool
from embedwatch.loading.quiet import quiet

__all__ = ["Encoding", "TextEncoder"]

MOST_TOKENS = 16_384
"""Tokens of one forward pass, padding included: bounds its memory when texts are long."""

PROBE = 7
LEAK = 1e-5
"""Some models let padding into their texts (convolutions, hashing). Seven pads that move a text's vector by more than
this, relative to its largest entry, show it: such a model is given texts of one length at a time."""


class Encoding(NamedTuple):
    """Vectors (N, D) in float32, and how many texts were cut and how many had no token at all (their rows are zero)."""

    vectors: Tensor
    cut: int
    empty: int


class Tokens(NamedTuple):
    """Tokens of one text, and the segment of each where the tokenizer says."""

    ids: list[int]
    types: list[int] | None


@dataclass(eq=False)
class TextEncoder:
    """A model with the recipe for its texts.

    Args:
        label: name of the model, for messages.
        tokenizer: tokenizer of transformers.
        backbone: turns tokens into hidden states.
        pipeline: turns hidden states into vectors.
        rows: V, the number of tokens that the table holds.
        prefix: stands before every text.
        limit: number of tokens that texts are cut at.
        pad: token that fills up a batch; the mask hides it.
        full: whether every batch is filled up to `limit`, as the model was trained.
        truncate: number of dimensions that are kept.
        width: dimension before that, where it is known.
        notes: how texts become vectors, for a reader of the numbers.
    """

    label: str
    tokenizer: Any
    backbone: Backbone
    pipeline: Pipeline
    rows: int
    prefix: str = ""
    limit: int | None = None
    pad: int = 0
    full: bool = False
    truncate: int | None = None
    width: int | None = None
    notes: tuple[str, ...] = ()
    _leaky: bool | None = field(default=None, init=False)

    @property
    def dimension(self) -> int | None:
        """D of the vectors, where it is known before the first one."""
        known = [size for size in (self.width, self.truncate) if size is not None]
        return None if self.width is None else min(known)

    def encode(self, texts: Sequence[str], *, size: int = 32) -> Encoding:
        """Return the vectors of some texts, in their order.

        Args:
            texts: any number; they are sorted by length, so that a batch holds little padding.
            size: texts in one forward pass, at most.
        """
        if not texts:
            raise InputError("`texts` must hold at least one text, got none; give some")
        tokens, cut = self._tokenise([self.prefix + text for text in texts])
        order = sorted((row for row, known in enumerate(tokens) if known.ids), key=lambda row: len(tokens[row].ids))
        parts = [(rows, self._forward([tokens[row] for row in rows])) for rows in self._batches(order, tokens, size)]
        width = (parts[0][1] if parts else self._forward([Tokens([self.pad], None)])).shape[1]
        vectors = torch.zeros(len(texts), width)  # (N, D)
        for rows, part in parts:
            vectors[rows] = part
        return Encoding(vectors, cut, len(texts) - len(order))

    def _tokenise(self, texts: list[str]) -> tuple[list[Tokens], int]:
        """Return the tokens of each text, and how many texts were cut."""
        tokens = self._call(texts)
        long = [row for row, known in enumerate(tokens) if self.limit is not None and len(known.ids) > self.limit]
        if long:
            for row, known in zip(long, self._call([texts[row] for row in long], cut=True), strict=True):
                tokens[row] = known
        largest = max((max(known.ids) for known in tokens if known.ids), default=0)
        if largest >= self.rows:
            raise InputError(
                f"`{self.label}` must have a row for every token, got token {largest} and {self.rows:,} rows; "
                "the tokenizer is another model's"
            )
        return tokens, len(long)

    def _call(self, texts: list[str], *, cut: bool = False) -> list[Tokens]:
        options = {"truncation": True, "max_length": self.limit} if cut else {}
        try:
            with quiet():
                found = self.tokenizer(texts, return_attention_mask=False, **options)
            ids = found["input_ids"]
        except Exception as error:
            raise InputError(
                f"`{self.label}` must have a tokenizer that cuts plain texts into tokens, got {first_line(error)}; "
                "save it again beside the model"
            ) from error
        return [Tokens(*pair) for pair in zip(ids, found.get("token_type_ids") or [None] * len(ids), strict=True)]

    def _batches(self, order: list[int], tokens: list[Tokens], size: int) -> Iterator[list[int]]:
        """Yield rows that go through together: alike in length, or equal where the model cannot be told of padding."""
        equal = not self.full and self._leaks(tokens[order[0]]) if order else False
        batch: list[int] = []
        for row in order:
            length = len(tokens[row].ids)
            differs = equal and bool(batch) and length != len(tokens[batch[0]].ids)
            if batch and (len(batch) == size or differs or (len(batch) + 1) * length > MOST_TOKENS):
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _leaks(self, tokens: Tokens) -> bool:
        """Return whether padding changes a text's vector: seen once, on the first text."""
        if "attention_mask" not in self.backbone.accepted:
            return True
        room = PROBE if self.limit is None else min(PROBE, self.limit - len(tokens.ids))
        if self._leaky is None and room > 0:
            alone, padded = (self._forward([tokens], extra=extra) for extra in (0, room))
            self._leaky = not bool((alone - padded).abs().max() <= LEAK * alone.abs().max())  # NaN counts as a leak
        return bool(self._leaky)

    def _forward(self, tokens: list[Tokens], *, extra: int = 0) -> Tensor:
        """Return the vectors of one batch. Padding stands on the right, where it moves no position. Shape: (B, D)."""
        width = self.limit if self.full and self.limit else max(len(known.ids) for known in tokens) + extra
        ids = torch.full((len(tokens), width), self.pad)  # (B, T)
        types = torch.zeros_like(ids)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        for row, known in enumerate(tokens):
            stop = len(known.ids)
            ids[row, :stop] = torch.tensor(known.ids)
            mask[row, :stop] = True
            if known.types is not None:
                types[row, :stop] = torch.tensor(known.types)
        inputs = {"input_ids": ids}
        if "attention_mask" in self.backbone.accepted and not self.full:
            inputs["attention_mask"] = mask.long()
        if tokens[0].types is not None and "token_type_ids" in self.backbone.accepted:
            inputs["token_type_ids"] = types
        with torch.inference_mode():
            return self._finish(self._hidden(inputs), mask)

    def _hidden(self, inputs: dict[str, Tensor]) -> Tensor:
        try:
            with quiet():
                return self.backbone(**inputs).float()
        except EmbedwatchError:
            raise
        except Exception as error:
            raise InputError(
                f"`{self.label}` must encode plain texts, got {first_line(error)}; "
                "save the vectors to a file and audit that"
            ) from error

    def _finish(self, states: Tensor, mask: Tensor) -> Tensor:
        vectors = states if self.backbone.features else pool(states, mask, self.pipeline.modes, skip=self._skip)
        for step in self.pipeline.steps:
            vectors = step.apply(vectors)
        return vectors[:, : self.truncate]  # (B, D)

    @cached_property
    def _skip(self) -> int:
        """Number of tokens of the prompt that the pooling leaves out."""
        if not self.prefix or not self.pipeline.skip_prompt:
            return 0
        ids: list[int] = self.tokenizer(self.prefix)["input_ids"]
        return len(ids) - (1 if ids and ids[-1] in self.tokenizer.all_special_ids else 0)
