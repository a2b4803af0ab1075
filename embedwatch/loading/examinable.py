"""Examinable: what a diagnostic may ask of a model, whether it lies on a disk or is at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

__all__ = ["FLOATING", "Entries", "Examinable", "Rows"]

FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Types that weights are kept in as numbers; others are quantised, and mean something only together with a scale."""


@dataclass(frozen=True)
class Entries:
    """A floating-point tensor of a model, read piece by piece.

    Args:
        name: dotted path.
        shape: of the whole.
        dtype: one of `FLOATING`.
        pieces: yields all entries, some millions at a time, each once.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    pieces: Callable[[], Iterator[Tensor]]


class Rows(Protocol):
    """A matrix that is read by rows."""

    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    def dimension(self) -> int:
        """D."""

    def read(self, start: int, stop: int) -> Tensor:
        """Return some rows, in the type in which they are kept. Shape: (N, D)."""


class Examinable(Protocol):
    """A model that can be examined: a `Subject` opened from a folder, or a `LiveSubject` around a module.

    Nothing here changes the model. What is costly is made when it is first asked for.
    """

    @property
    def label(self) -> str:
        """Short name for people."""

    @property
    def architecture(self) -> str:
        """Name of its class."""

    @property
    def parameters(self) -> int:
        """Number of its floating-point numbers; what is shared counts once."""

    @property
    def dimension(self) -> int:
        """D of the token table, or the hidden size where there is none."""

    @property
    def vocabulary(self) -> int:
        """V, the number of rows of the token table; 0 where there is none."""

    @property
    def settings(self) -> Any:
        """The configuration object of its library; `None` where there is none."""

    @property
    def stored_dtype(self) -> torch.dtype:
        """The type in which its weights are kept, and in which it is meant to run."""

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers; raises `InputError` where there is none."""

    def token_table(self) -> Rows:
        """Return the matrix that turns tokens into vectors; raises `InputError` where there is none."""

    def output_table(self) -> Rows | None:
        """Return the matrix that turns vectors into logits of tokens; `None` where that is the token table, or none."""

    @property
    def tied(self) -> bool:
        """Whether the token table turns vectors into logits as well."""

    def position_table(self) -> Rows | None:
        """Return the matrix of learned positions; `None` where there is none."""

    def every_weight(self) -> Iterator[Entries]:
        """Yield every tensor of floating-point numbers, once; what is quantised or holds no numbers yet is left out."""

    def module(self) -> nn.Module:
        """Return the part that turns tokens into hidden states.

        Raises:
            InputError: if it cannot be built.
        """

    def writer(self) -> nn.Module | None:
        """Return the model with its language-model head, which writes texts; `None` where there is no such head."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return the vectors of some texts, by the model's own recipe. Shape: (N, D) float32."""

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with the model."""
