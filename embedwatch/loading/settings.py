"""What a configuration says of sizes: the factor before the first layer, and what is done to logits."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["initial_spread", "logit_factor", "table_factor"]

NORMALISED = ("gemma",)
"""Families that multiply tokens by √D and have no switch for it: their configurations begin so."""
SHRUNK = ("t5", "mt5", "umt5", "switch_transformers", "longt5", "pop2piano")
"""Families that divide hidden states by √D before a tied table makes logits of them."""


def table_factor(settings: Any) -> float | None:
    """Return the factor that a configuration promises between table and first layer; `None` where it is not known.

    Example:
        >>> from types import SimpleNamespace
        >>> table_factor(SimpleNamespace(model_type="marian", scale_embedding=True, d_model=64))
        8.0
    """
    if settings is None:
        return None
    own: Any = getattr(settings, "model", None)
    if hasattr(own, "scaled"):
        return math.sqrt(own.d_model) if own.scaled else 1.0
    text = _text(settings)
    kind, size = str(getattr(text, "model_type", "")), _width(text)
    for name in ("embedding_multiplier", "scale_emb"):
        value = getattr(text, name, None)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    scaled = getattr(text, "scale_embedding", None)
    if kind.startswith(NORMALISED):
        scaled = True
    if scaled is True:
        return math.sqrt(size) if size else None
    return 1.0


def logit_factor(settings: Any, *, tied: bool) -> float:
    """Return by what logits are multiplied after the table has made them, as far as a configuration says."""
    text = _text(settings)
    if tied and str(getattr(text, "model_type", "")) in SHRUNK and getattr(text, "tie_word_embeddings", True):
        return 1 / math.sqrt(_width(text) or 1)
    scaling, scale = getattr(text, "logits_scaling", None), getattr(text, "logit_scale", None)
    if isinstance(scaling, int | float) and scaling > 0:
        return 1 / float(scaling)
    return float(scale) if isinstance(scale, int | float) and scale > 0 else 1.0


def initial_spread(settings: Any) -> float | None:
    """Return the standard deviation that tables are drawn with, as far as a configuration says."""
    text = _text(settings)
    for name in ("initializer_range", "init_std", "initializer_factor"):
        value = getattr(text, name, None)
        if isinstance(value, int | float) and value > 0:
            return float(value)
    return None


def _text(settings: Any) -> Any:
    getter = getattr(settings, "get_text_config", None)
    return getter() if callable(getter) else settings


def _width(text: Any) -> int:
    for name in ("hidden_size", "d_model", "n_embd", "dim"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 0
