"""What is checked before a forward pass. Letters: B batch, T positions, V vocabulary."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from .cache import Cache
from .config import ModelConfig
from .errors import ModelError
from .memory import Memory

__all__ = ["check_inputs", "check_mask", "check_source", "check_tokens"]


def check_inputs(
    config: ModelConfig,
    ids: Tensor,
    mask: Tensor | None,
    *,
    segments: Tensor | None,
    cache: Cache | None,
    memory: Memory | None,
) -> None:
    """Raise unless all that goes with the tokens fits them and the configuration."""
    check_tokens("ids", ids, config.vocabulary)
    check_mask("mask", mask, ids)
    if segments is not None and not config.segments:
        raise ModelError("`segments` must be None in a model without segments, got a tensor; set it in the config")
    if segments is not None:
        check_tokens("segments", segments, config.segments)
    if cache is not None and config.kind == "encoder":
        raise ModelError('`cache` must be None for kind "encoder", got one; nothing is continued')
    if cache is not None and cache.batch != len(ids):
        raise ModelError(f"`cache` must be for {len(ids)} rows, got one for {cache.batch}; make one for this batch")
    if memory is None:
        return
    if not config.memory:
        raise ModelError("`memory` must be None in a model without memory, got one; set it in the config")
    if cache is not None:
        raise ModelError("`memory` must be None with a cache, got both; the cache holds the past already")
    if len(memory.states) != config.layers or len(memory.states[0]) != len(ids):
        got = f"{len(memory.states)} layers of {len(memory.states[0])} rows"
        raise ModelError(
            f"`memory` must have {config.layers} layers of {len(ids)} rows, got {got}; give the last output's"
        )


def check_source(
    config: ModelConfig,
    rows: int,
    *,
    source: Tensor | None,
    encoded: Tensor | None,
    mask: Tensor | None,
    cache: Cache | None,
) -> None:
    """Raise unless the source fits the batch, in one of its forms: tokens, encoded, or in the cache."""
    if config.kind != "encoder_decoder":
        if source is not None or encoded is not None or mask is not None:
            raise ModelError(f'`source` must be None for kind "{config.kind}", got one; leave it out')
        return
    if source is not None and encoded is not None:
        raise ModelError("`source` must be None with `encoded`, got both; give one of them")
    if source is None and encoded is None:
        if cache is None or not cache.has_source:
            raise ModelError("`source` must be given to an encoder-decoder, got None; give it, or `encoded`")
        return
    if encoded is not None and (encoded.dim() != 3 or encoded.shape[2] != config.d_model):
        shape = f"(B, S, {config.d_model})"
        raise ModelError(f"`encoded` must be a tensor {shape}, got shape {tuple(encoded.shape)}; call `encode`")
    given = cast(Tensor, encoded if source is None else source)
    if len(given) != rows:
        raise ModelError(f"`source` must have {rows} rows, got {len(given)}; give one for each row of `ids`")
    if encoded is not None:
        check_mask("source_mask", mask, encoded[:, :, 0])


def check_tokens(name: str, ids: Tensor, count: int) -> None:
    """Raise unless `ids` is an integer tensor (B, T) with values from 0 to count - 1, T at least 1."""
    if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32):
        got = f"shape {tuple(ids.shape)} of {ids.dtype}"
        raise ModelError(f"`{name}` must be a tensor (B, T) of int64, got {got}; add a batch dimension or convert it")
    if not ids.numel():
        raise ModelError(
            f"`{name}` must have at least one position, got shape {tuple(ids.shape)}; leave empty texts out"
        )
    if ids.device.type == "cpu":  # on a GPU, looking would stop the stream at each step, and the lookup itself asserts
        least, most = int(ids.min()), int(ids.max())
        if least < 0 or most >= count:
            got = f"{least} to {most}"
            raise ModelError(f"`{name}` must be from 0 to {count - 1}, got {got}; use the tokenizer of this model")


def check_mask(name: str, mask: Tensor | None, ids: Tensor) -> None:
    """Raise unless `mask` is None or a boolean tensor of the shape of `ids`."""
    if mask is not None and (mask.shape != ids.shape or mask.dtype != torch.bool):
        got = f"shape {tuple(mask.shape)} of {mask.dtype}"
        raise ModelError(f"`{name}` must be a tensor {tuple(ids.shape)} of bool, got {got}; True marks real tokens")
