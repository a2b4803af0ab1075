"""What a Transformer is made of: one frozen value that is saved beside the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .errors import ModelError, check_at_least, check_number, check_one_of

__all__ = ["ModelConfig"]

KINDS = ("decoder", "encoder", "encoder_decoder")
POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "relative", "none")
OFFSETS_ONLY = ("rope", "alibi", "relative", "none")
"""Schemes that know offsets, not absolute positions. Only these can tell a memory from the present (`Memory`)."""
ROPE_SCALINGS = ("linear", "ntk", "yarn")
NORMS = ("pre", "post")
NORM_KINDS = ("layer", "rms")
ACTIVATIONS = ("relu", "gelu", "swiglu")
SIZES = {"tiny": 2, "small": 6, "base": 12}
"""Shorthands for a depth."""
WIDTH_PER_LAYER = 64
"""D grows with depth, as in the series of GPT-2 and of nanochat."""
HEAD_SIZE = 64


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """All choices of an architecture. Paper means Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.

    Args:
        vocabulary: V, the number of tokens.
        kind: "decoder" (GPT), "encoder" (BERT) or "encoder_decoder" (the paper).
        d_model: D, the width of the stream.
        layers: L; an encoder-decoder has L of each.
        heads: H, number of query heads; D / H is the head size K.
        kv_heads: number of key and value heads that groups of query heads share; None: H.
        d_ff: inner width of the feed-forward; None: 4 D.
        length: number of positions it is trained for.
        positions: "sinusoidal", "learned", "rope", "alibi", "relative" (T5) or "none".
        rope_base: ratio of the longest wavelength of RoPE to the shortest.
        rope_scaling: None, or how RoPE reaches beyond `length`: `{"kind": "linear" | "ntk" | "yarn", "factor": 4.0}`.
        norm: "pre" (before each sub-layer) or "post" (after each sum, as in the paper).
        norm_kind: "layer" (LayerNorm) or "rms" (RMSNorm: neither mean nor bias, as in T5 and Llama).
        norm_epsilon: added to the variance.
        activation: of the feed-forward: "relu", "gelu", or "swiglu" (gated, three matrices, as in Llama).
        dropout: rate on the embedding sum and on each sub-layer's output, as in the paper, section 5.4.
        attention_dropout: rate on attention weights: not in the paper's text, but in its code, and in BERT.
        scaled: multiply token embeddings by √D.
        tied: one table for the input, the output and, in an encoder-decoder, both inputs.
        embedding_norm: normalise the embedding sum, as BERT does.
        segments: number of segment embeddings (BERT has 2); 0: none. Encoders only.
        window: sliding window: a position sees itself and the `window - 1` before it (in an encoder: on both sides).
        memory: number of earlier positions whose states are kept from segment to segment; 0: none. Decoders only.
        padding: id of the padding token, for those who make batches. The model itself looks at masks only.

    Example:
        >>> config = ModelConfig(vocabulary=100, d_model=32, heads=4, positions="rope")
        >>> config.head_size, ModelConfig.from_json(config.to_json()) == config
        (8, True)
    """

    vocabulary: int
    kind: str = "decoder"
    d_model: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int | None = None
    d_ff: int | None = None
    length: int = 256
    positions: str = "sinusoidal"
    rope_base: float = 10_000.0
    rope_scaling: Mapping[str, Any] | None = field(default=None, hash=False)
    norm: str = "pre"
    norm_kind: str = "layer"
    norm_epsilon: float = 1e-5
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    scaled: bool = True
    tied: bool = True
    embedding_norm: bool = False
    segments: int = 0
    window: int | None = None
    memory: int = 0
    padding: int | None = None

    def __post_init__(self) -> None:
        check_one_of("kind", self.kind, KINDS)
        check_one_of("positions", self.positions, POSITIONS)
        check_one_of("norm", self.norm, NORMS)
        check_one_of("norm_kind", self.norm_kind, NORM_KINDS)
        check_one_of("activation", self.activation, ACTIVATIONS)
        check_at_least(1, vocabulary=self.vocabulary, d_model=self.d_model, layers=self.layers, heads=self.heads)
        check_at_least(1, kv_heads=self.kv_heads, d_ff=self.d_ff, length=self.length, window=self.window)
        for name in ("scaled", "tied", "embedding_norm"):
            if not isinstance(getattr(self, name), bool):
                raise ModelError(f"`{name}` must be True or False, got {getattr(self, name)!r}; choose one of them")
        check_at_least(0, segments=self.segments, memory=self.memory, padding=self.padding)
        self._check_rates()
        self._check_widths()
        self._check_kind()
        self._check_rope_scaling()

    def _check_rates(self) -> None:
        check_number("dropout", self.dropout, least=0.0, below=1.0, usual=0.1)
        check_number("attention_dropout", self.attention_dropout, least=0.0, below=1.0, usual=0.1)
        check_number("norm_epsilon", self.norm_epsilon, least=1e-12, below=1.0, usual=1e-5)
        check_number("rope_base", self.rope_base, least=1.01, usual=10_000)

    def _check_widths(self) -> None:
        if self.d_model % self.heads:
            fix = "every head gets D / H dimensions"
            raise ModelError(f"`d_model` must be a multiple of `heads` {self.heads}, got {self.d_model}; {fix}")
        if self.heads % self.groups:
            fix = "every key head serves as many query heads"
            raise ModelError(f"`kv_heads` must be a divisor of `heads` {self.heads}, got {self.groups}; {fix}")
        even = {"sinusoidal": self.d_model, "rope": self.head_size}.get(self.positions, 0)
        if even % 2:
            what = "`d_model`" if self.positions == "sinusoidal" else "`d_model` / `heads`"
            raise ModelError(f"{what} must be even, got {even}; sine and cosine come in pairs")
        if self.padding is not None and self.padding >= self.vocabulary:
            fix = "it is one of the tokens"
            raise ModelError(f"`padding` must be below `vocabulary` {self.vocabulary}, got {self.padding}; {fix}")

    def _check_kind(self) -> None:
        kind = f'for kind "{self.kind}"'
        if self.segments and self.kind != "encoder":
            raise ModelError(f"`segments` must be 0 {kind}, got {self.segments}; only encoders have them")
        if self.memory and self.kind != "decoder":
            raise ModelError(f"`memory` must be 0 {kind}, got {self.memory}; only decoders have one")
        if self.memory and self.positions not in OFFSETS_ONLY:
            names = ", ".join(OFFSETS_ONLY)
            fix = "absolute positions cannot tell the memory from the present"
            raise ModelError(f"`positions` must be one of {names} with a memory, got {self.positions!r}; {fix}")

    def _check_rope_scaling(self) -> None:
        scaling = self.rope_scaling
        if scaling is None:
            return
        if self.positions != "rope":
            raise ModelError(f'`rope_scaling` must be None with positions "{self.positions}", got {scaling}; drop it')
        if not isinstance(scaling, Mapping) or set(scaling) != {"kind", "factor"}:
            raise ModelError(f'`rope_scaling` must have "kind" and "factor", got {scaling}; give both, and no more')
        check_one_of("rope_scaling kind", scaling["kind"], ROPE_SCALINGS)
        check_number("rope_scaling factor", scaling["factor"], least=1.0, usual=4.0)
        object.__setattr__(self, "rope_scaling", dict(scaling))  # nobody else can change it

    @property
    def head_size(self) -> int:
        """K, the width of one head."""
        return self.d_model // self.heads

    @property
    def groups(self) -> int:
        """Number of key and value heads."""
        return self.kv_heads or self.heads

    @property
    def width(self) -> int:
        """Inner width of the feed-forward."""
        return self.d_ff or 4 * self.d_model

    def to_json(self) -> dict[str, Any]:
        """Return all fields, ready for `json.dumps`."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ModelConfig:
        """Return the configuration that `to_json` described; `model_type` may stand beside it.

        Raises:
            ModelError: if a field is unknown or does not fit, or `vocabulary` is missing.
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known - {"model_type"})
        if unknown:
            fix = "it was written by another version, or is no configuration of this model"
            raise ModelError(f"`values` must have known fields only, got {', '.join(unknown)}; {fix}")
        if "vocabulary" not in values:
            raise ModelError("`values` must have a vocabulary, got none; is this the configuration of another model?")
        return cls(**{name: value for name, value in values.items() if name in known})

    @classmethod
    def sized(cls, size: str | int, *, vocabulary: int, **overrides: Any) -> ModelConfig:
        """Return a model of a given depth whose widths follow: D = 64 L in heads of 64.

        Args:
            size: number of layers, or "tiny" (2), "small" (6) or "base" (12).
            vocabulary: V.
            overrides: any other field.

        Example:
            >>> config = ModelConfig.sized("small", vocabulary=8_000)
            >>> config.layers, config.d_model, config.heads
            (6, 384, 6)
        """
        if isinstance(size, str):
            check_one_of("size", size, tuple(SIZES))
            size = SIZES[size]
        check_at_least(1, size=size)
        d_model = WIDTH_PER_LAYER * size
        widths = {"layers": size, "d_model": d_model, "heads": d_model // HEAD_SIZE}
        return cls(vocabulary=vocabulary, **{**widths, **overrides})
