"""One call of attention, as it was made: queries and keys with what hides and shifts them, or finished scores.

Letters: B batch, H heads of queries, G of keys, T queries, S keys, K head size; I sequences chosen, Q queries of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from embedwatch.observe.attention.masks import HIDDEN, Masking
from embedwatch.observe.attention.queries import Chosen

__all__ = ["AttentionCall", "MaskedCall", "QueryKeyCall", "ScoresCall"]

KEYS = 4096
"""So many keys of one sequence are copied to single precision at once: what is copied does not grow with a context."""


class AttentionCall(ABC):
    """What a look at attention needs of a call."""

    cross: bool
    """Whether keys are other tokens than queries."""
    sinks: Tensor | None = None
    """(H,) logit of a learned sink of each head."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """B, H, T, S."""

    @property
    @abstractmethod
    def head_size(self) -> int:
        """K, 0 where it is not known."""

    @property
    @abstractmethod
    def witness(self) -> Tensor:
        """What shows whether it can be looked at."""

    @property
    def device(self) -> torch.device:
        """Where it takes place."""
        return self.witness.device

    @abstractmethod
    def real_keys(self) -> Tensor | None:
        """Return which keys are no padding, as far as its masks tell. Shape: (B, S) bool."""

    @abstractmethod
    def scores(self, chosen: Chosen) -> tuple[Tensor, Tensor | None]:
        """Return the scores of the chosen queries as the softmax takes them, and which keys they see.

        Shape: (I, H, Q, S) float32, and what broadcasts to it; `None` where they see all.
        """

    @abstractmethod
    def bounds(self) -> Tensor | None:
        """Return what no score of each head exceeds, whatever the query. Shape: (H,) float32."""

    def outputs(self, chosen: Chosen) -> Tensor | None:
        """Return the norm of what each head puts out for the chosen queries. Shape: (I, H, Q) float32."""
        return None


class MaskedCall(AttentionCall):
    """A call whose scores are made here, and what hides keys and shifts scores is told beside them."""

    query: Tensor
    masking: Masking

    @property
    def witness(self) -> Tensor:
        """What shows whether it can be looked at."""
        return self.query

    def real_keys(self) -> Tensor | None:
        """Return which keys are no padding, as far as its masks tell. Shape: (B, S) bool."""
        batch, _, queries, keys = self.shape
        masking = self.masking.cropped(keys)
        return masking.real_keys(batch, queries, keys, cross=self.cross, device=self.device)

    def masked(self, scores: Tensor, chosen: Chosen) -> tuple[Tensor, Tensor | None]:
        """Return scores of the chosen queries with their biases, and which keys they see; see `scores`."""
        _, _, queries, keys = self.shape
        bias, seen = self.masking.cropped(keys).rows(chosen, queries, keys)
        return (scores if bias is None else scores + bias), seen


@dataclass(frozen=True)
class QueryKeyCall(MaskedCall):
    """Queries and keys, as `softmax(softcap(Q Kᵀ · scale) + bias)` takes them.

    Args:
        query: (B, H, T, K).
        key: (B or 1, G, S, K); each serves H / G heads of queries.
        scale: of the products.
        output: (B, H, T, V) what heads put out.
        masking: what hides keys and shifts scores.
        softcap: scores are `softcap · tanh(score / softcap)`; 0 for as they are.
        sinks, cross: see `AttentionCall`.
    """

    query: Tensor
    key: Tensor
    scale: float
    output: Tensor | None = None
    masking: Masking = field(default_factory=Masking)
    softcap: float = 0.0
    sinks: Tensor | None = None
    cross: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """B, H, T, S."""
        batch, heads, queries, _ = self.query.shape
        return batch, heads, queries, self.key.shape[2]

    @property
    def head_size(self) -> int:
        """K."""
        return self.query.shape[3]

    def scores(self, chosen: Chosen) -> tuple[Tensor, Tensor | None]:
        """Return the scores of the chosen queries, and which keys they see."""
        heads, groups = self.query.shape[1], self.key.shape[1]
        query = _at(self.query, chosen).float()  # (I, H, Q, K)
        folded = query.unflatten(1, (groups, heads // groups)).flatten(2, 3)  # (I, G, H / G · Q, K)
        scores = folded.new_empty((*folded.shape[:3], self.key.shape[2]))  # (I, G, H / G · Q, S)
        for place, item in enumerate(chosen.items):
            keys = self.key[item if self.key.shape[0] > 1 else 0]  # (G, S, K)
            for first, part in zip(range(0, keys.shape[1], KEYS), keys.split(KEYS, dim=1), strict=True):
                scores[place, ..., first : first + KEYS] = folded[place] @ part.float().transpose(1, 2)
        scores = (scores * self.scale).unflatten(2, (heads // groups, -1)).flatten(1, 2)  # (I, H, Q, S)
        if self.softcap:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        return self.masked(scores, chosen)

    def bounds(self) -> Tensor | None:
        """Return what no score of each head exceeds: `max ‖q‖ · max ‖k‖ · |scale|`, and the most of the biases."""
        heads, groups = self.query.shape[1], self.key.shape[1]
        longest = _longest(self.query) * _longest(self.key).repeat_interleave(heads // groups) * abs(self.scale)  # (H,)
        if self.softcap:
            longest = longest.clamp(max=self.softcap)
        return (longest + self.masking.cropped(self.key.shape[2]).most()).expand(heads)

    def outputs(self, chosen: Chosen) -> Tensor | None:
        """Return the norm of what each head puts out for the chosen queries. Shape: (I, H, Q) float32."""
        return None if self.output is None else torch.linalg.vector_norm(_at(self.output, chosen).float(), dim=3)


@dataclass(frozen=True)
class ScoresCall(AttentionCall):
    """Scores that a model has made itself, of all queries, masked already.

    Args:
        given: (B, H, T, S).
        size: K, 0 where it is not known.
        cross: whether keys are other tokens than queries.
    """

    given: Tensor
    size: int
    cross: bool = False

    @property
    def head_size(self) -> int:
        """K, 0 where it is not known."""
        return self.size

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """B, H, T, S."""
        batch, heads, queries, keys = self.given.shape
        return batch, heads, queries, keys

    @property
    def witness(self) -> Tensor:
        """What shows whether it can be looked at."""
        return self.given

    def real_keys(self) -> Tensor | None:
        """Return which keys are no padding, as far as scores tell. Shape: (B, S) bool."""
        batch, _, queries, keys = self.shape
        return Masking((self.given[:, :1],)).real_keys(batch, queries, keys, cross=self.cross, device=self.device)

    def scores(self, chosen: Chosen) -> tuple[Tensor, Tensor | None]:
        """Return the scores of the chosen queries, and which keys they see."""
        scores = _at(self.given, chosen).float()  # (I, H, Q, S)
        return scores, ~(scores <= HIDDEN)  # NaN is seen

    def bounds(self) -> Tensor | None:
        """Return the highest score of each head."""
        return self.given.amax(dim=(0, 2, 3)).float()


def _at(tensor: Tensor, chosen: Chosen) -> Tensor:
    """Return what belongs to the chosen queries. Shape: (B, H, T, X) -> (I, H, Q, X)."""
    pairs = zip(chosen.items, chosen.index, strict=True)
    return torch.stack([tensor[item].index_select(1, index) for item, index in pairs])


def _longest(vectors: Tensor) -> Tensor:
    """Return the norm of the longest vector of each head. Shape: (B, H, T, K) -> (H,) float32."""
    if vectors.dtype not in (torch.float16, torch.bfloat16):
        single: Tensor = torch.linalg.vector_norm(vectors, dim=3)  # (B, H, T)
        return single.amax(dim=(0, 2)).float()
    together = max(1, KEYS // vectors.shape[2])  # sequences: a processor copies all that it is given at once
    parts = (part for some in vectors.split(together) for part in some.split(KEYS, dim=2))
    norms = [torch.linalg.vector_norm(part, dim=3, dtype=torch.float32).amax(dim=(0, 2)) for part in parts]
    return torch.stack(norms).amax(0)
