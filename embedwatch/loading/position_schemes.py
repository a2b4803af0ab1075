"""The scheme by which a model tells places in a text: what it is, read from its modules and its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from embedwatch.core.errors import InputError, UsageError
from embedwatch.geometry.relative_bias import alibi_slopes, open_bucket
from embedwatch.geometry.rope import SCALINGS, Turning, turning
from embedwatch.loading.configuration import text_config_of
from embedwatch.loading.positions import position_limit, position_module, position_words
from embedwatch.observe.attention.positions import holds_positions
from embedwatch_model.transformer import Transformer

__all__ = [
    "EVERY_LAYER",
    "PositionScheme",
    "RotaryScheme",
    "has_sinusoids",
    "rotary_buffers",
    "scheme_of",
    "text_tower",
]

EVERY_LAYER = "all"
"""Name of the parameters that hold for all layers, where layers do not differ."""
USUAL_BASE = 10_000.0
"""θ where a configuration does not say."""
CLAIMS = (
    "max_source_positions",
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "n_ctx",
    "seq_length",
    "max_sequence_length",
)
"""Names under which configurations state a length."""
STRETCHED = ("linear", "dynamic", "yarn", "llama3", "longrope", "ntk")
LENGTH_DEPENDENT = ("dynamic", "longrope")
TOWER = re.compile(r"(^|\.)(language_model|text_model)$")
OTHER_INPUTS = re.compile(r"visual|vision|audio|image", re.IGNORECASE)
BUCKETS, MOST_DISTANCE = 32, 128
"""Of T5, where a configuration does not say."""


@dataclass(frozen=True)
class RotaryScheme:
    """How queries and keys of some layers are turned.

    Args:
        part: kind of the layers, like `sliding_attention`; `all` where they do not differ.
        base: θ, as the configuration states it.
        kind: one of `embedwatch.geometry.rope.SCALINGS`, or another that is not known here.
        dimensions: of a head, as many as turn; 0 where that cannot be told.
        parameters: what the scaling takes.
        trained: length before it was stretched.
        usable: length that it is meant to reach.
        window: how far these layers see; `None` where they see all.
    """

    part: str
    base: float
    kind: str
    dimensions: int
    trained: int
    usable: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    window: int | None = None

    @property
    def known(self) -> bool:
        """Whether its frequencies can be worked out."""
        return self.kind in SCALINGS and self.dimensions >= 2 and self.base > 1

    @property
    def depends_on_length(self) -> bool:
        """Whether a longer text turns its first tokens otherwise than a shorter one."""
        return self.kind in LENGTH_DEPENDENT

    @property
    def finished(self) -> bool:
        """Whether the checkpoint states a length beyond the one before: then it was trained with the scaling."""
        return self.usable > self.trained and not self.parameters.get("promised", False)

    def turning(self, length: int = 0) -> Turning:
        """Return how pairs turn at a length."""
        return turning(
            self.kind, self.dimensions, self.base, self.parameters, trained=self.trained, length=length or self.trained
        )

    def seen(self) -> tuple[Turning, int]:
        """Return how pairs turned in training, and up to which length."""
        if self.kind in STRETCHED and not self.finished:
            return turning("default", self.dimensions, self.base), self.trained
        return self.turning(self.usable), self.usable


@dataclass(frozen=True)
class PositionScheme:
    """How a model tells places in a text.

    Args:
        kinds: of `sinusoidal`, `learned`, `rope`, `alibi`, `relative`, `disentangled`, `none`; empty where unknown.
        words: the same for people.
        claimed: length that the configuration states.
        usable: length that it is meant for: that of the table, or what the scaling reaches.
        rows: positions beyond which it cannot go; `None` where nothing ends.
        offset: rows of the table before that of the first token.
        rotary: how queries and keys turn, by kind of layer.
        slopes: of ALiBi, steepest first.
        told_apart: distance from which on a relative bias tells none apart.
        causal: whether tokens see only what came before.
    """

    kinds: tuple[str, ...] = ()
    words: str = ""
    claimed: int | None = None
    usable: int | None = None
    rows: int | None = None
    offset: int = 0
    rotary: tuple[RotaryScheme, ...] = ()
    slopes: tuple[float, ...] = ()
    told_apart: int | None = None
    causal: bool = False


def scheme_of(part: nn.Module, settings: Any = None) -> PositionScheme:
    """Return the scheme of a model, or of the part of it that reads texts.

    Args:
        part: the module; it may lie on the meta device.
        settings: its configuration object; that of the module where it is not given.

    Example:
        >>> from embedwatch_model import ModelConfig, Transformer
        >>> made = scheme_of(Transformer(ModelConfig(vocabulary=9, d_model=16, heads=2, layers=1, positions="rope")))
        >>> made.kinds, made.rotary[0].base, made.rotary[0].dimensions
        (('rope',), 10000.0, 8)
    """
    if isinstance(part, Transformer):
        return _own(part)
    config = getattr(part, "config", None) if settings is None else settings
    config = text_config_of(config) if hasattr(config, "get_text_config") else config
    part = text_tower(part)
    claimed = _claimed(config)
    kinds: list[str] = []
    scheme = PositionScheme(words=position_words(part), claimed=claimed, causal=_causal(part, config))
    table = position_module(part)
    if table is not None or has_sinusoids(part):
        rows = position_limit(part)
        kinds.append("sinusoidal" if has_sinusoids(part) else "learned")
        if kinds[0] == "learned" and rows is not None and table is not None:
            scheme = replace(scheme, rows=rows, offset=table.num_embeddings - rows)
    slopes = _slopes(config)
    rotary = () if slopes else _rotary(part, config, claimed)  # Falcon builds both, and turns nothing under ALiBi
    kinds += ["rope"] if rotary else []
    kinds += ["alibi"] if slopes else []
    relative, told_apart = _relative(part, config, causal=scheme.causal)
    kinds += [relative] if relative else []
    usable = scheme.rows or max((each.usable for each in rotary), default=claimed or 0) or None
    if not kinds and not holds_positions(dict(part.named_modules())) and _attends(part):
        kinds.append("none")
    return replace(scheme, kinds=tuple(kinds), usable=usable, rotary=rotary, slopes=slopes, told_apart=told_apart)


def text_tower(part: nn.Module) -> nn.Module:
    """Return what reads texts in a model of several inputs; the model itself where there is nothing else."""
    return next((module for name, module in part.named_modules() if TOWER.search(name)), part)


def has_sinusoids(part: nn.Module) -> bool:
    """Return whether a model adds waves that are fixed, by the name of a class or a switch of the configuration."""
    config = getattr(part, "config", None)
    if getattr(config, "sinusoidal_pos_embds", False) or getattr(config, "sinusoidal_embeddings", False):
        return True
    return any("Sinusoidal" in type(module).__name__ for module in part.modules())


def _own(part: Transformer) -> PositionScheme:
    config = part.config
    kind = "none" if config.positions == "none" else config.positions
    causal = config.kind == "decoder"
    made = PositionScheme((kind,), "", config.length, config.length, causal=causal)
    if kind == "learned":
        return replace(made, words=f"learned positions {config.length}", rows=config.length)
    if kind == "rope":
        scaling = dict(config.rope_scaling or {})
        factor = float(scaling.get("factor", 1.0))
        turned = RotaryScheme(
            EVERY_LAYER,
            config.rope_base,
            str(scaling.get("kind", "default")),
            config.head_size,
            config.length,
            round(config.length * factor),
            {"factor": factor, "promised": True} if scaling else {},
        )
        return replace(made, words=f"RoPE θ = {config.rope_base:,.0f}", rotary=(turned,), usable=turned.usable)
    if kind == "alibi":
        return replace(made, words="ALiBi", slopes=tuple(sorted(alibi_slopes(config.heads), reverse=True)))
    if kind == "relative":
        reach = open_bucket(buckets=BUCKETS, most=MOST_DISTANCE, bidirectional=not causal)
        return replace(made, words="relative positions", told_apart=reach)
    return replace(made, words=f"{kind if kind != 'none' else 'no'} positions")


def _claimed(config: Any) -> int | None:
    for name in CLAIMS:
        value = getattr(config, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _causal(part: nn.Module, config: Any) -> bool:
    """Return whether tokens see only what came before: what writes does, and encoders do not."""
    if getattr(config, "is_encoder_decoder", False):
        return False
    asked = getattr(part, "can_generate", None)
    if callable(asked) and asked():
        return True
    return any(getattr(module, "is_causal", False) is True for module in part.modules())


def _attends(part: nn.Module) -> bool:
    return any("attention" in type(module).__name__.lower() for module in part.modules())


def rotary_buffers(part: nn.Module) -> dict[tuple[str, str], tuple[nn.Module, torch.Tensor]]:
    """Return each tensor of frequencies by the path of its module and the kind of layers that it is for."""
    found: dict[tuple[str, str], tuple[nn.Module, torch.Tensor]] = {}
    for path, module in part.named_modules():
        if OTHER_INPUTS.search(path):
            continue
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.ndim == 1 and name.endswith("inv_freq") and "original" not in name:
                kind = name.removesuffix("inv_freq").removesuffix("_").strip("_") or EVERY_LAYER
                found[path, kind] = (module, buffer)
    return found


def _rotary(part: nn.Module, config: Any, claimed: int | None) -> tuple[RotaryScheme, ...]:
    sizes: dict[str, int] = {}
    for (_, kind), (_, buffer) in rotary_buffers(part).items():
        sizes.setdefault(kind, 2 * len(buffer))
    named = _parameters(config)
    turned = getattr(config, "rotary_dim", None)
    if not sizes and isinstance(turned, int) and turned > 0:  # GPT-J keeps cosines and sines, not frequencies
        sizes[EVERY_LAYER] = turned
    if not sizes and not any(named.values()):
        return ()
    kinds = list(sizes) or list(named)
    return tuple(_turned(kind, sizes.get(kind, 0), named, config, claimed or 0) for kind in kinds)


def _parameters(config: Any) -> dict[str, dict[str, Any]]:
    """Return the parameters of RoPE by kind of layer, under the names of transformers 5."""
    given = getattr(config, "rope_parameters", None)
    if isinstance(given, dict) and given:
        nested = {kind: each for kind, each in given.items() if isinstance(each, dict)}
        if nested and "rope_theta" not in given:
            return nested
        return {EVERY_LAYER: given}
    scaling = getattr(config, "rope_scaling", None)
    theta = getattr(config, "rope_theta", None) or getattr(config, "rotary_emb_base", None)
    if theta is None and not isinstance(scaling, dict):
        return {}
    return {EVERY_LAYER: {**(scaling if isinstance(scaling, dict) else {}), "rope_theta": theta or USUAL_BASE}}


def _turned(part: str, dimensions: int, named: Mapping[str, dict[str, Any]], config: Any, claimed: int) -> RotaryScheme:
    values = dict(named.get(part) or named.get(EVERY_LAYER) or {})
    theta = values.get("rope_theta") or getattr(config, "rope_theta", None) or USUAL_BASE
    kind = str(values.get("rope_type") or values.get("type") or "default")
    if kind == "su":
        kind = "longrope"
    before = values.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
    trained = int(before) if isinstance(before, int) and kind in STRETCHED else claimed
    factor = values.get("factor")
    if factor is None and kind in ("yarn", "longrope") and trained:
        factor = values["factor"] = claimed / trained
    usable = claimed
    if kind in STRETCHED and isinstance(factor, (int, float)) and claimed <= trained:
        usable = round(trained * factor)
        values["promised"] = True  # nothing says that it was trained with the scaling
    window = _window(config) if "sliding" in part else None
    scheme = RotaryScheme(
        part, float(theta), kind, dimensions or _head_size(config, values), trained, usable, values, window
    )
    if scheme.known:
        try:
            scheme.turning(max(1, usable))
        except UsageError as error:  # it came from a file
            raise InputError(str(error)) from error
    return scheme


def _window(config: Any) -> int | None:
    for name in ("sliding_window", "local_attention"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _head_size(config: Any, values: Mapping[str, Any]) -> int:
    size = getattr(config, "qk_rope_head_dim", None) or getattr(config, "head_dim", None)
    if not isinstance(size, int):
        width, heads = getattr(config, "hidden_size", 0), getattr(config, "num_attention_heads", 0)
        size = width // heads if isinstance(width, int) and isinstance(heads, int) and heads else 0
    share = values.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0
    if values.get("rope_type") == "proportional":
        share = 1.0
    return int(size * share) // 2 * 2


def _slopes(config: Any) -> tuple[float, ...]:
    kind = str(getattr(config, "model_type", ""))
    attention = getattr(config, "attn_config", None)
    if not (
        getattr(config, "alibi", False) or kind == "bloom" or (kind == "mpt" and getattr(attention, "alibi", True))
    ):
        return ()
    heads = next((n for name in ("n_head", "num_attention_heads", "n_heads") if (n := getattr(config, name, 0))), 0)
    return tuple(sorted(alibi_slopes(heads), reverse=True)) if heads else ()


def _relative(part: nn.Module, config: Any, *, causal: bool) -> tuple[str, int | None]:
    """Return the kind of relative positions, and the distance from which on they tell nothing apart."""
    if getattr(config, "relative_attention", False):
        most = getattr(config, "max_relative_positions", -1)
        most = most if isinstance(most, int) and most > 0 else getattr(config, "max_position_embeddings", None)
        return "disentangled", most
    if any("relative_attention_bias" in name for name, _ in part.named_modules()):
        buckets = getattr(config, "relative_attention_num_buckets", BUCKETS)
        most = getattr(config, "relative_attention_max_distance", MOST_DISTANCE)
        return "relative", open_bucket(buckets=buckets, most=most, bidirectional=not causal)
    if getattr(config, "model_type", "") in ("xlnet", "transfo-xl", "funnel"):
        return "relative", None
    if str(getattr(config, "position_embedding_type", "")).startswith("relative_key"):
        return "relative", getattr(config, "max_position_embeddings", None)
    return "", None
