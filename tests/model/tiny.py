"""Tiny models for tests, with no weight at a value that hides a mistake."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from embedwatch_model import ModelConfig, Transformer

VOCABULARY = 37
POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "relative", "none")
KINDS = ("decoder", "encoder", "encoder_decoder")
SOURCES = 7
"""Length of the source that `source` makes."""


def config(**overrides: Any) -> ModelConfig:
    values = {"d_model": 16, "layers": 2, "heads": 4, "kv_heads": 2, "length": 32, "dropout": 0.0, **overrides}
    return ModelConfig(vocabulary=VOCABULARY, **values)


def model(seed: int = 0, **overrides: Any) -> Transformer:
    """Return a model in evaluation whose biases, norms and relative biases are not at their start of 0 or 1."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = Transformer(config(**overrides)).eval()
    stir(made, seed)
    return made


def stir(module: torch.nn.Module, seed: int = 0, size: float = 0.1) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * size)


def ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def source(rows: int, seed: int = 1) -> dict[str, Tensor]:
    """Return a source of which the last row ends early."""
    mask = torch.ones(rows, SOURCES, dtype=torch.bool)
    mask[-1, 4:] = False
    return {"source": ids(rows, SOURCES, seed), "source_mask": mask}


def inputs(kind: str, rows: int) -> dict[str, Tensor]:
    return source(rows) if kind == "encoder_decoder" else {}


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).detach().abs().max())
