"""How a model knows where a token stands: found in its modules, said in a few words."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from embedwatch.loading.own import EmbedwatchModel

__all__ = ["position_limit", "position_module", "position_words"]

POSITION_NAME = re.compile(r"(^|\.)(w(ord_)?p(os_)?e(mbed)?|embed_positions?|pos(ition)?_emb(ed(ding)?s?)?|pos_embed)$")


def position_module(part: nn.Module) -> nn.Embedding | None:
    """Return the table of positions, learned or frozen, where the model has one."""
    if isinstance(part, EmbedwatchModel):
        return part.position_table
    return next(
        (m for name, m in part.named_modules() if isinstance(m, nn.Embedding) and POSITION_NAME.search(name)), None
    )


def position_limit(part: nn.Module) -> int | None:
    """Return how many positions the table holds: its rows, without those that stand before the first token."""
    table = position_module(part)
    if table is None:
        return None
    offset = getattr(table, "offset", None)  # BART and OPT keep two rows free
    if not isinstance(offset, int):
        offset = 0 if table.padding_idx is None else table.padding_idx + 1  # RoBERTa counts from behind the padding
    return table.num_embeddings - offset


def position_words(part: nn.Module) -> str:
    """Return the scheme in a few words, such as "learned positions 512" or "RoPE θ = 10,000"; empty where unknown."""
    if isinstance(part, EmbedwatchModel):
        return part.position_words
    config = getattr(part, "config", None)
    kinds = {type(module).__name__ for module in part.modules()}
    words = []
    if any("Sinusoidal" in kind for kind in kinds):
        words.append("sinusoidal positions")
    elif position_module(part) is not None:
        words.append(f"learned positions {position_limit(part)}")
    theta = _theta(config)
    if theta or any("Rotary" in kind for kind in kinds) or getattr(config, "rotary_dim", None):
        words.append(f"RoPE θ = {theta:,.0f}" if theta else "RoPE")
    if any("relative_attention_bias" in name for name, _ in part.named_modules()) or _relative(config):
        words.append("relative positions")
    if getattr(config, "alibi", False) or str(getattr(config, "model_type", "")) in {"bloom", "mpt"}:
        words.append("ALiBi")
    return ", ".join(words)


def _theta(config: Any) -> float | None:
    parameters = getattr(config, "rope_parameters", None)
    if not isinstance(parameters, dict):
        return None
    if "rope_theta" not in parameters:  # one set for each kind of layer: name that of the layers that see everything
        nested = parameters.get("full_attention") or next(iter(parameters.values()), None)
        parameters = nested if isinstance(nested, dict) else {}
    theta = parameters.get("rope_theta")
    return float(theta) if isinstance(theta, (int, float)) else None


def _relative(config: Any) -> bool:
    relative = getattr(config, "relative_attention", False) or getattr(config, "model_type", "") == "xlnet"
    return bool(relative or str(getattr(config, "position_embedding_type", "")).startswith("relative_key"))
