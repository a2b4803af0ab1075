"""Our own Transformer behind the doors that classes of transformers have, so that it is opened as they are."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch_model.config import ModelConfig
from embedwatch_model.positions import LearnedPositions
from embedwatch_model.transformer import Transformer

__all__ = ["OWN", "EmbedwatchConfig", "EmbedwatchModel"]

OWN = "embedwatch"
"""The `model_type` in its config.json."""


class EmbedwatchConfig:
    """Its configuration, under the names that transformers uses.

    Args:
        model: the configuration itself.
    """

    model_type = OWN
    is_encoder_decoder = False  # `EmbedwatchModel` encodes by itself

    def __init__(self, model: ModelConfig) -> None:
        self.model = model
        self.vocab_size = model.vocabulary
        self.hidden_size = model.d_model
        self.max_position_embeddings = model.length
        self.tie_word_embeddings = model.tied
        self.pad_token_id = model.padding

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EmbedwatchConfig:
        """Return the configuration that a checkpoint's config.json holds."""
        return cls(ModelConfig.from_json(values))

    def get_text_config(self) -> EmbedwatchConfig:
        """Return itself: all of it is about texts."""
        return self


class EmbedwatchModel(Transformer):
    """The Transformer as an encoder of texts: final hidden states of the stack that reads them.

    Args:
        config: its configuration.
    """

    base_model_prefix = ""

    def __init__(self, config: EmbedwatchConfig) -> None:
        super().__init__(config.model)

    @property
    def position_words(self) -> str:
        """How it knows where a token stands, in a few words."""
        config = self.config
        return {
            "sinusoidal": "sinusoidal positions",
            "learned": f"learned positions {config.length}",
            "rope": f"RoPE θ = {config.rope_base:,.0f}",
            "alibi": "ALiBi",
            "relative": "relative positions",
            "none": "no positions",
        }[config.positions]

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:  # type: ignore[override]
        """Return an object with `last_hidden_state`. Shape: (B, T) -> (B, T, D)."""
        mask = None if attention_mask is None else attention_mask.bool()
        if self.encoder is not None:
            return SimpleNamespace(last_hidden_state=self.encode(input_ids, mask))
        return SimpleNamespace(last_hidden_state=super().forward(input_ids, mask=mask).hidden)

    @property
    def position_table(self) -> nn.Embedding | None:
        """Its table of learned positions, where it has one."""
        positions = self.embedding.positions
        return positions.table if isinstance(positions, LearnedPositions) else None

    @classmethod
    def from_pretrained(
        cls, name: None, *, config: EmbedwatchConfig, state_dict: Mapping[str, Tensor], **options: Any
    ) -> tuple[EmbedwatchModel, dict[str, Any]]:
        """Return the model with these weights in float32, and what did not fit; other options are as if given."""
        with torch.random.fork_rng(devices=[]):
            model = cls(config)
        own = model.state_dict()
        wrong = [
            (key, tuple(value.shape), tuple(own[key].shape))
            for key, value in state_dict.items()
            if key in own and value.shape != own[key].shape
        ]
        left_out = {key for key, *_ in wrong}
        fitting = {key: value.float() for key, value in state_dict.items() if key not in left_out}
        loaded = model.load_state_dict(fitting, strict=False)
        return model, {
            "missing_keys": [key for key in loaded.missing_keys if key not in left_out],
            "unexpected_keys": loaded.unexpected_keys,
            "mismatched_keys": wrong,
            "error_msgs": [],
        }
