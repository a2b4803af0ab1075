"""Subject: a model opened for examination."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedwatch.core.errors import InputError
from embedwatch.loading.backbone import Backbone, build_backbone, build_writer
from embedwatch.loading.blueprint import draw
from embedwatch.loading.examinable import Entries
from embedwatch.loading.find import CONFIG, find_model, is_model
from embedwatch.loading.heads import is_writer, output_names, saved_class
from embedwatch.loading.messages import printable
from embedwatch.loading.modules import list_modules
from embedwatch.loading.recipe import make_encoder
from embedwatch.loading.tables import Table, find_tensor, guess_tensor
from embedwatch.loading.tokens import open_tokenizer
from embedwatch.loading.weights import DTYPES, SINGLE, Weights

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase

    from embedwatch.loading.encoder import TextEncoder

__all__ = ["Subject", "load_subject"]

FLEETING = frozenset({"transformers_version", "_name_or_path", "name_or_path", "torch_dtype", "dtype", "use_cache"})
"""Keys of config.json that change when a model is only saved again."""


class Subject:
    """A model opened for examination: its tables, its tokenizer, and its way from a text to a vector.

    Opening one reads config.json and the headers of the weights. The weights are read by slices when asked, the whole
    model is built when the first text is encoded. Nothing in the directory is run or unpickled, no hub is asked.

    Args:
        directory: what `save_pretrained` of transformers or sentence-transformers wrote.
        label: short name for people.

    Raises:
        InputError: if it is not such a directory; one line says why and what to do.
    """

    def __init__(self, directory: Path, *, label: str) -> None:
        self.directory = directory
        self.label = label
        self.modules = list_modules(directory)
        self.home = _home(directory, [module.folder for module in self.modules])
        self.weights = Weights(self.home)
        self.blueprint = draw(self.home)
        names, shape = self.blueprint.tables, self.blueprint.table_shape
        tied = bool(getattr(self.blueprint.config, "tie_word_embeddings", False))
        found = find_tensor(self.weights, names, shape)
        self._guessed = found is None
        self._token_name = found or guess_tensor(self.weights, shape, tied=tied)
        self._backbones: dict[bool, Backbone] = {}
        self._encoders: dict[tuple[str | None, str | None], TextEncoder] = {}
        self._writer: list[nn.Module | None] = []

    def __repr__(self) -> str:
        return f"Subject({self.label!r}, {self.architecture}, {self.parameters:,} parameters)"

    @property
    def architecture(self) -> str:
        """Name of the class that the weights were saved from."""
        return self.blueprint.architecture

    @property
    def config(self) -> dict[str, Any]:
        """config.json as it was read."""
        return self.blueprint.raw

    @property
    def parameters(self) -> int:
        """Number of floating-point numbers in the weights; a tensor that two layers share counts once."""
        return self.weights.parameters

    @property
    def settings(self) -> Any:
        """The configuration object of transformers, or ours."""
        return self.blueprint.config

    @cached_property
    def stored_dtype(self) -> torch.dtype:
        """The type of floating-point numbers that holds most of the weights."""
        return self.weights.dtype

    @property
    def dimension(self) -> int:
        """D of the token table, or the hidden size where there is none."""
        if self._token_name is not None:
            return self.weights[self._token_name].shape[1]
        size = getattr(self.blueprint.text_config, "hidden_size", 0)
        return size if isinstance(size, int) else 0

    @property
    def vocabulary(self) -> int:
        """V, the number of rows of the token table; 0 where there is none."""
        return self.weights[self._token_name].shape[0] if self._token_name is not None else 0

    @property
    def positions(self) -> str:
        """How it knows where a token stands, in a few words; empty where unknown."""
        return self.blueprint.positions

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its numbers must know."""
        notes = []
        shape, promised = (self.vocabulary, self.dimension), self.blueprint.table_shape
        if self._token_name is not None and shape != promised:
            notes.append(
                f"the token table is {shape[0]:,} × {shape[1]:,}, "
                f"where config.json says {promised[0]:,} × {promised[1]:,}"
            )
        if self._token_name is not None and self._guessed:
            notes.append(f"the token table was known by its shape, as {printable(self._token_name)}")
        if self.blueprint.custom:
            notes.append(
                f"config.json names code of its own, which was not run; {self.blueprint.model_class.__name__} reads it"
            )
        if (self.home / "adapter_config.json").is_file():
            notes.append("the adapter in the directory was not applied")
        return tuple(notes)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of transformers."""
        return open_tokenizer(self.home, self.blueprint.config, label=self.label)

    def token_table(self) -> Table:
        """Return the matrix that turns tokens into vectors, to be read by rows.

        Raises:
            InputError: if the model has none, or it is quantised.
        """
        if not self.blueprint.tables:
            raise InputError(
                f"`{self.label}` must have a token table, got a {self.architecture}, which has none; "
                "audit vectors that it made, from a file"
            )
        if self._token_name is None:
            raise InputError(
                f"`{self.label}` must hold {self.blueprint.tables[0]}, got {len(self.weights):,} other tensors; "
                "audit one of them with `--select` on the safetensors file"
            )
        return Table(self.weights, self._token_name)

    def position_table(self) -> Table | None:
        """Return the matrix of learned positions, to be read by rows; None where there is none in the weights."""
        name = find_tensor(self.weights, self.blueprint.position_names, self.blueprint.position_shape)
        return None if name is None else Table(self.weights, name)

    @cached_property
    def _output(self) -> tuple[str | None, bool]:
        """The matrix that makes logits, by its name in the files, and whether the token table does that."""
        names, shape, tied = output_names(self.blueprint)
        name = find_tensor(self.weights, names, shape) if names else None
        if name is None or name == self._token_name:
            return None, bool(names) and (tied or name is not None)
        return name, False

    def output_table(self) -> Table | None:
        """Return the matrix that turns vectors into logits of tokens; None where that is the token table, or none."""
        name, _ = self._output
        return None if name is None else Table(self.weights, name)

    @property
    def tied(self) -> bool:
        """Whether the token table turns vectors into logits as well."""
        return self._output[1]

    def every_weight(self) -> Iterator[Entries]:
        """Yield every tensor of floating-point numbers in the files, read by pieces: the model is not built.

        Those of the modules that follow it in modules.json come last, under the names of their folders.
        """
        further = [module.folder for module in self.modules if module.folder not in (self.home, self.directory)]
        parts = [("", self.weights)]
        parts += [(f"{folder.name}/", Weights(folder)) for folder in further if (folder / SINGLE).is_file()]
        for prefix, weights in parts:
            for name in weights:
                stored = weights[name]
                if stored.dtype in DTYPES:
                    pieces = partial(weights.pieces, name)
                    yield Entries(printable(prefix + name), stored.shape, DTYPES[stored.dtype], pieces)

    def module(self) -> nn.Module:
        """Return the part that turns tokens into hidden states, in evaluation mode; see `backbone`."""
        return self.backbone().part

    def writer(self) -> nn.Module | None:
        """Return the model with its language-model head, built once; None where it has none that writes.

        Raises:
            InputError: if a weight is missing, of another shape or quantised.
        """
        if not self._writer:
            saved = saved_class(self.blueprint)
            writes = saved is not None and is_writer(saved, self.settings)
            made = build_writer(saved, self.blueprint, self.weights, label=self.label) if saved and writes else None
            self._writer.append(made)
        return self._writer[0]

    @cached_property
    def _fingerprint(self) -> str:
        kept = {key: value for key, value in self.config.items() if key not in FLEETING}
        digest = hashlib.blake2b(json.dumps(kept, sort_keys=True).encode(), digest_size=8)
        for name in sorted(self.weights):
            digest.update(self.weights.sample(name))
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with the model: BLAKE2b over its configuration and a sample of its weights.

        The sample is eight blocks of 4 KiB, evenly spaced in each tensor, so that a large model costs no more than a
        small one. What changes a few rows of one table only may escape it: `token_table().fingerprint()` reads all.
        """
        return self._fingerprint

    def encoder(self, *, pooling: str | None = None, prefix: str | None = None) -> TextEncoder:
        """Build the model, once, and return its way from texts to vectors.

        Args:
            pooling: `mean`, `cls`, `last` or `max` instead of the model's own.
            prefix: stands before every text, instead of the model's own default prompt.

        Raises:
            InputError: if the model has no tokenizer, lacks weights, or lists a module that is not known.
            UsageError: if there is no such pooling.
        """
        key = pooling, prefix
        if key not in self._encoders:
            self._encoders = {key: make_encoder(self, pooling=pooling, prefix=prefix)}  # the last one is kept
        return self._encoders[key]

    def backbone(self, *, features: bool = False) -> Backbone:
        """Return the model itself, built once: the part that turns tokens into hidden states, or its text features.

        Raises:
            InputError: if a weight that takes part is missing, of another shape or quantised.
        """
        if features not in self._backbones:
            self._backbones[features] = build_backbone(
                self.blueprint, self.weights, label=self.label, features=features
            )
        return self._backbones[features]

    def encode(self, texts: Sequence[str], *, pooling: str | None = None, prefix: str | None = None) -> Tensor:
        """Return the vectors of some texts, by the model's own recipe unless told otherwise. Shape: (N, D) float32."""
        return self.encoder(pooling=pooling, prefix=prefix).encode(texts).vectors


def _home(directory: Path, folders: Sequence[Path]) -> Path:
    """Return the folder of the transformer itself: sentence-transformers once kept it in one of its own."""
    first = folders[0] if folders else directory
    return first if first != directory and is_model(first) else directory


def load_subject(name: str | Path) -> Subject:
    """Open a model.

    Args:
        name: a directory with config.json and safetensors, or the name of a model in the local hub cache.

    Raises:
        InputError: if there is no such model, or it cannot be read; one line says why and what to do.

    Example:
        >>> load_subject("no/such")
        Traceback (most recent call last):
        ...
        embedwatch.core.errors.InputError: `no/such` is neither a file nor a model in the local cache; ...
    """
    directory, label = find_model(name)
    if not (directory / CONFIG).is_file() and not list_modules(directory):
        raise InputError(f"`{directory}` must hold {CONFIG}, got none; give the directory that `save_pretrained` wrote")
    return Subject(directory, label=label)
