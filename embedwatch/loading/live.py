"""LiveSubject: a module at work, opened for examination as a folder is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from embedwatch.core.errors import InputError
from embedwatch.loading.examinable import FLOATING, Entries
from embedwatch.loading.heads import is_writer, outputs_of
from embedwatch.loading.own import EmbedwatchConfig
from embedwatch.loading.positions import position_module
from embedwatch.observe.anatomy import token_embeddings
from embedwatch.observe.resting import check_rest
from embedwatch_model.transformer import Transformer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["LiveSubject", "MatrixRows"]

PIECE = 1 << 20
"""So many entries of a weight are handed on at once, or one row where that is longer."""
SAMPLED = 64
"""A fingerprint reads so many entries of each parameter, evenly spaced."""


@dataclass(frozen=True)
class MatrixRows:
    """A matrix in memory, read by rows.

    Args:
        matrix: (N, D).
    """

    matrix: Tensor

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def dimension(self) -> int:
        """D."""
        return self.matrix.shape[1]

    def read(self, start: int, stop: int) -> Tensor:
        """Return some rows, in their own type, on the CPU and in memory of their own. Shape: (N, D)."""
        if self.matrix.is_meta:
            raise InputError("the token table must hold numbers, got one on the meta device; load the weights first")
        return self.matrix[start:stop].detach().to("cpu", copy=True)


class LiveSubject:
    """A module at work, opened for examination: the same doors as a `Subject` has. It is never changed.

    Args:
        model: any module; those of transformers, ours and sentence-transformers are known from inside.
        tokenizer: of transformers, where texts or names of tokens are wanted.
        label: short name for people; the name of its class by default.
        encode: turns texts into vectors (N, D); by default what the model's own `encode` does.

    Example:
        >>> from embedwatch_model import ModelConfig, Transformer
        >>> subject = LiveSubject(Transformer(ModelConfig(vocabulary=50, d_model=16, layers=2, heads=2)))
        >>> subject.vocabulary, subject.dimension, subject.tied
        (50, 16, True)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        label: str | None = None,
        encode: Callable[[Sequence[str]], Any] | None = None,
    ) -> None:
        self.model = model
        self.label = label or type(model).__name__
        found = tokenizer if tokenizer is not None else getattr(model, "tokenizer", None)
        self._tokenizer = found if hasattr(found, "all_special_ids") else None  # static models have one of tokenizers
        own = getattr(model, "encode", None) if hasattr(model, "get_sentence_embedding_dimension") else None
        self._encode = encode or own

    def __repr__(self) -> str:
        return f"LiveSubject({self.label!r}, {self.architecture}, {self.parameters:,} parameters)"

    @property
    def architecture(self) -> str:
        """Name of its class."""
        return type(self.model).__name__

    @property
    def parameters(self) -> int:
        """Number of its floating-point numbers; what is shared counts once."""
        return sum(weight.numel() for weight in self.model.parameters() if weight.is_floating_point())

    @property
    def dimension(self) -> int:
        """D of the token table, or the hidden size where there is none."""
        if self._tokens is not None:
            return self._tokens.embedding_dim
        size = getattr(self.settings, "hidden_size", 0)
        return size if isinstance(size, int) else 0

    @property
    def vocabulary(self) -> int:
        """V, the number of rows of the token table; 0 where there is none."""
        return self._tokens.num_embeddings if self._tokens is not None else 0

    @cached_property
    def settings(self) -> Any:
        """The configuration object of its library; `None` where there is none."""
        if isinstance(self.model, Transformer):
            return EmbedwatchConfig(self.model.config)
        for part in self.model.modules():
            config = getattr(part, "config", None)
            if hasattr(config, "model_type"):
                return config
        return None

    @property
    def stored_dtype(self) -> torch.dtype:
        """The type of most of its weights."""
        numbers: dict[torch.dtype, int] = {}
        for weight in self.model.parameters():
            if weight.is_floating_point():
                numbers[weight.dtype] = numbers.get(weight.dtype, 0) + weight.numel()
        return max(numbers, key=lambda dtype: numbers[dtype]) if numbers else torch.float32

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of transformers; raises `InputError` where none was given."""
        if self._tokenizer is None:
            raise InputError(f"`{self.label}` must come with its tokenizer to name tokens, got none; give `tokenizer`")
        return self._tokenizer

    def token_table(self) -> MatrixRows:
        """Return the matrix that turns tokens into vectors; raises `InputError` where there is none."""
        if self._tokens is None:
            raise InputError(
                f"`{self.label}` must have a token table, got a {self.architecture} without one; watch its outputs"
            )
        return MatrixRows(self._tokens.weight)

    def output_table(self) -> MatrixRows | None:
        """Return the matrix that turns vectors into logits of tokens; `None` where that is the token table, or none."""
        outputs = self._outputs
        return None if outputs is None or self.tied else MatrixRows(outputs.weight)

    @property
    def tied(self) -> bool:
        """Whether the token table turns vectors into logits as well."""
        outputs = self._outputs
        return outputs is not None and self._tokens is not None and outputs.weight is self._tokens.weight

    def position_table(self) -> MatrixRows | None:
        """Return the matrix of learned positions; `None` where there is none."""
        if isinstance(self.model, Transformer):
            table = getattr(self.model.embedding.positions, "table", None)
        else:
            table = position_module(self.model)
        return MatrixRows(table.weight) if isinstance(table, nn.Embedding) and table.weight.requires_grad else None

    def every_weight(self) -> Iterator[Entries]:
        """Yield every parameter and every buffer that is saved with the model, where they are floating-point numbers.

        What is shared comes once, under its first name; what lies on the meta device holds no numbers. Of a sparse one
        the entries come that it holds.
        """
        for name, weight in (*self.model.named_parameters(), *_saved_buffers(self.model)):
            here = weight.detach()
            here = here if here.layout is torch.strided or here.is_meta else _held(here)
            here = torch.view_as_real(here) if here.is_complex() else here
            if here.dtype in FLOATING and not here.is_meta:
                yield Entries(name, tuple(here.shape), here.dtype, partial(_pieces, here))

    def module(self) -> nn.Module:
        """Return the model itself; it stays in the mode in which it is."""
        return self.model

    def writer(self) -> nn.Module | None:
        """Return the model itself where it has a head that writes texts."""
        return self.model if is_writer(self.model, self.settings) else None

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return the vectors of some texts. Shape: (N, D) float32.

        Raises:
            InputError: if nothing says how, or the model may be at work.
        """
        if self._encode is None:
            raise InputError(
                f"`{self.label}` must know how texts become vectors, got a {self.architecture}; give `encode`"
            )
        check_rest()
        return torch.as_tensor(self._encode(list(texts))).detach().float().cpu()

    def fingerprint(self) -> str:
        """Return 16 hex digits of names, shapes and evenly spaced entries of its parameters."""
        digest = hashlib.blake2b(digest_size=8)
        for name, weight in self.model.named_parameters():
            flat = weight.detach().reshape(-1)
            flat = flat[:0].new_empty(0, device="cpu") if flat.is_meta else flat  # known by its name and shape alone
            taken = flat[:: max(1, flat.numel() // SAMPLED)][:SAMPLED].double().cpu()
            digest.update(f"{name}{tuple(weight.shape)}".encode() + taken.numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def _tokens(self) -> nn.Embedding | None:
        return next(iter(token_embeddings(self.model).values()), None)

    @property
    def _outputs(self) -> Any:
        return outputs_of(self.model)


def _saved_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers that are saved with a model, each once: caches and masks that are made anew are none of it."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set and id(buffer) not in seen:
                seen.add(id(buffer))
                yield f"{path}.{name}" if path else name, buffer


def _held(weight: Tensor) -> Tensor:
    """Return the entries that a sparse tensor holds, dense."""
    return weight._values() if weight.layout is torch.sparse_coo else weight.values()


def _pieces(weight: Tensor) -> Iterator[Tensor]:
    """Yield the entries of a tensor, some rows at a time, on its own device."""
    if weight.dim() == 0:
        yield weight
        return
    rows = max(1, PIECE * len(weight) // max(1, weight.numel()))
    yield from weight.split(rows)
