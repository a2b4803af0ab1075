"""The model: a stack with a head, and for translation a second stack as its encoder.

```
              encoder                                    decoder
 source ─ embedding ─ layers ─ norm ──┐     ids ─ embedding ─ layers ─ norm ─ head ─ logits
                                      └──── keys and values ────┘
```

Letters: B batch, T positions (S source positions), D d_model, V vocabulary, L layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .cache import Cache
from .config import ModelConfig
from .errors import ModelError
from .heads import LanguageHead, MaskedHead
from .initialise import initialise
from .inputs import check_inputs, check_mask, check_source, check_tokens
from .layers import Source
from .masks import AttentionMask, attention_mask
from .memory import Memory
from .stack import Encoder, Stack

__all__ = ["Output", "Transformer"]

TABLE = "embedding.tokens.weight"
"""Name of the token table in a state dict."""


@dataclass(frozen=True)
class Output:
    """What a forward pass returns.

    Attributes:
        logits: (B, T, V).
        hidden: what the head read (B, T, D).
        cache: the cache that was given, now longer.
        memory: what to give with the next segment; None without `memory` in the configuration.
    """

    logits: Tensor
    hidden: Tensor
    cache: Cache | None = None
    memory: Memory | None = None


class Transformer(Stack):
    """Decoder, encoder, or encoder and decoder, from one set of blocks.

    As a `Stack` it has `embedding`, `layers` and `norm` of the decoder (or of the encoder, if that is its kind); in an
    encoder-decoder, `encoder` is a second one. Every place to watch and its shape: docs/model.md.

    Args:
        config: the architecture.

    Example:
        >>> import torch
        >>> model = Transformer(ModelConfig(vocabulary=50, d_model=16, layers=2, heads=2))
        >>> model(torch.tensor([[3, 1, 4, 1]])).logits.shape
        torch.Size([1, 4, 50])
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, causal=config.kind != "encoder", cross=config.kind == "encoder_decoder")
        self.encoder = Encoder(config) if config.kind == "encoder_decoder" else None
        self.head = MaskedHead(config) if config.kind == "encoder" else LanguageHead(config)
        initialise(self)
        self.tie()
        self.register_load_state_dict_post_hook(_tie_again)  # type: ignore[no-untyped-call]

    def tie(self) -> None:
        """Make the tables one parameter, if the configuration says so."""
        if self.config.tied:
            self.projection.weight = self.embedding.tokens.weight
            if self.encoder is not None:
                self.encoder.embedding.tokens.weight = self.embedding.tokens.weight

    def tied_names(self) -> list[str]:
        """Return the names in a state dict under which the table of `embedding` is found again."""
        if not self.config.tied:
            return []
        head = "head.project.weight" if isinstance(self.head, MaskedHead) else "head.weight"
        return [head] if self.encoder is None else [head, f"encoder.{TABLE}"]

    @property
    def projection(self) -> LanguageHead:
        """The last linear map, which makes the logits."""
        return self.head.project if isinstance(self.head, MaskedHead) else self.head

    def forward(
        self,
        ids: Tensor,
        *,
        source: Tensor | None = None,
        encoded: Tensor | None = None,
        mask: Tensor | None = None,
        source_mask: Tensor | None = None,
        segments: Tensor | None = None,
        cache: Cache | None = None,
        memory: Memory | None = None,
    ) -> Output:
        """Return logits for each position.

        Args:
            ids: tokens (B, T); with a cache only the new ones.
            source: tokens for the encoder (B, S).
            encoded: what `encode` returned for them (B, S, D), in their place. With a cache needed once only.
            mask: which ids are real tokens (B, T); None: all. With a cache, of the new ones.
            source_mask: which source tokens are real (B, S); None: all. With a cache needed once only.
            segments: the segment of each token (B, T).
            cache: from `cache`; it grows by T positions.
            memory: what the last call returned as memory.
        """
        check_inputs(self.config, ids, mask, segments=segments, cache=cache, memory=memory)
        check_source(self.config, len(ids), source=source, encoded=encoded, mask=source_mask, cache=cache)
        looked_at = self._source(source, encoded, source_mask, cache)
        hidden, inputs = self.run(ids, mask=mask, segments=segments, source=looked_at, cache=cache, memory=memory)
        if self.config.memory and cache is None:
            memory = (memory or Memory.empty(inputs)).updated(inputs, mask, limit=self.config.memory)
        return Output(self.head(hidden), hidden, cache, memory)

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Return the encoded source (B, S, D)."""
        if self.encoder is None:
            raise ModelError(f'`kind` must be "encoder_decoder" to encode, got "{self.config.kind}"; call the model')
        check_tokens("source", source, self.config.vocabulary)
        check_mask("source_mask", source_mask, source)
        encoded: Tensor = self.encoder(source, source_mask)
        return encoded

    def _source(
        self, source: Tensor | None, encoded: Tensor | None, mask: Tensor | None, cache: Cache | None
    ) -> Source | None:
        """Return what cross-attention looks at; from the cache, if it holds that."""
        if self.encoder is None:
            return None
        if cache is not None and cache.has_source:
            encoded, mask = None, cache.source_mask
        elif source is not None:
            encoded = self.encode(source, mask)
        if cache is not None:
            cache.source_mask = mask
        visible = AttentionMask() if mask is None else attention_mask(1, mask.shape[1], causal=False, padding=mask)
        return Source(encoded, visible)

    def cache(self, batch: int) -> Cache:
        """Return an empty cache for a batch of sequences."""
        if self.config.kind == "encoder":
            raise ModelError(
                '`kind` must be "decoder" or "encoder_decoder" for a cache, got "encoder"; nothing is continued'
            )
        return Cache(batch, self.config.layers)


def _tie_again(module: nn.Module, incompatible: Any) -> None:
    """After loading, make tied tables one parameter again; a file that holds the table once misses nothing."""
    if isinstance(module, Transformer) and module.config.tied:
        module.tie()
        copies = module.tied_names()
        if TABLE not in incompatible.missing_keys:
            incompatible.missing_keys[:] = [key for key in incompatible.missing_keys if key not in copies]
