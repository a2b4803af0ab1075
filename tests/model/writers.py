"""Models that write in tests, and plain searches to compare with: no batch, no cache, nothing clever."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from embedwatch_model.config import ModelConfig
from embedwatch_model.transformer import Transformer

END = 2
CACHE = "cache" if "cache" in inspect.signature(GPT2LMHeadModel.forward).parameters else "past_key_values"
"""Transformers renames it on the way from 5.0 to 5.40."""


def random_model(*, seed: int = 0, vocabulary: int = 13, sharp: float = 3.0, **overrides: Any) -> Transformer:
    """Return a small model of random weights in float64 that prefers some tokens clearly."""
    settings = {"d_model": 16, "heads": 2, "layers": 2, "length": 64, "tied": False, **overrides}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Transformer(ModelConfig(vocabulary=vocabulary, **settings)).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3)
            model.projection.weight.mul_(sharp)
    return model.eval()


class HuggingFaceCache:
    """A cache of transformers under the names of ours."""

    def __init__(self) -> None:
        self.store = DynamicCache()
        self.mask: Tensor | None = None

    def reorder(self, index: Tensor) -> None:
        self.store.reorder_cache(index)
        self.mask = None if self.mask is None else self.mask[index]


class HuggingFace(nn.Module):
    """A GPT-2 of transformers under the interface of our Transformer: our search runs on their model."""

    def __init__(self, vocabulary: int, *, seed: int = 0) -> None:
        super().__init__()
        self.config = ModelConfig(vocabulary=vocabulary, positions="learned", length=64)
        settings = GPT2Config(
            vocab_size=vocabulary,
            n_embd=16,
            n_head=2,
            n_layer=2,
            n_positions=64,
            initializer_range=0.6,
            eos_token_id=END,
            bos_token_id=1,
            pad_token_id=0,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = GPT2LMHeadModel(settings).double().eval()

    def cache(self, batch: int) -> HuggingFaceCache:
        return HuggingFaceCache()

    def forward(self, ids: Tensor, *, mask: Tensor | None, cache: HuggingFaceCache, **nothing: Any) -> Any:
        new = torch.ones_like(ids) if mask is None else mask.long()
        cache.mask = new if cache.mask is None else torch.cat([cache.mask, new], dim=1)
        at = (cache.mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        store = {CACHE: cache.store}
        output = self.model(ids, attention_mask=cache.mask, position_ids=at, use_cache=True, **store)
        return SimpleNamespace(logits=output.logits)


def next_logits(model: Transformer, prompt: Sequence[int], written: Sequence[int], **source: Any) -> Tensor:
    """Return the logits (V,) of the next token, computed from nothing."""
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([[*prompt, *written]]), **source).logits[0, -1]
    return logits


LogP = Callable[[tuple[int, ...]], Tensor]
"""From what is written to the log-probabilities (V,) of the next token."""


def every_text(
    log_p: LogP, *, vocabulary: int, longest: int, end: int | None
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield every whole text with its log-probability: those that end early, and those of full length."""
    for length in range(1, longest + 1):
        for ids in product(range(vocabulary), repeat=length):
            if end in ids[:-1] or (length < longest and ids[-1] != end):
                continue
            total = sum(float(log_p(ids[:place])[token]) for place, token in enumerate(ids))
            if total > -torch.inf:
                yield ids, total


def plain_groups(
    log_p: LogP,
    *,
    width: int,
    groups: int,
    diversity: float,
    penalty: Callable[[int], float],
    longest: int,
    end: int,
    ending: bool,
) -> list[list[tuple[float, tuple[int, ...]]]]:
    """Search as the formula says; return the best whole texts of each group.

    With `ending`, a group that cannot find a better text any more takes no tokens, and charges no other group.
    """
    living: list[list[tuple[float, tuple[int, ...]]]] = [[(0.0, ())] for _ in range(groups)]
    whole: list[list[tuple[float, tuple[int, ...]]]] = [[] for _ in range(groups)]
    for length in range(1, longest + 1):
        taken: list[int] = []
        for group in range(groups):
            found = [
                (total + float(step) - diversity * taken.count(token), total + float(step), (*ids, token))
                for total, ids in living[group]
                for token, step in enumerate(log_p(ids))
            ]
            found.sort(key=lambda each: -each[0])
            living[group] = []
            for rank, (_, total, ids) in enumerate(found):
                if ids[-1] == end or length == longest:
                    if rank < width:
                        taken.append(ids[-1])
                        whole[group].append((total / penalty(length), ids))
                elif len(living[group]) < width:
                    taken.append(ids[-1])
                    living[group].append((total, ids))
            whole[group] = sorted(whole[group], reverse=True)[:width]
            if ending and living[group] and len(whole[group]) == width:
                reachable = [total / penalty(n) for total, _ in living[group] for n in range(length + 1, longest + 1)]
                living[group] = living[group] if max(reachable) > whole[group][-1][0] else []
    return whole
