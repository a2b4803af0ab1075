"""Vectors in which the words of a lexicon mean something, or nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.lexicons import Lexicon

DIMENSION = 48


def planted(lexicon: Lexicon, *, noise: float = 1.0, cone: float = 0.0, seed: int = 0) -> Tensor:
    """Return vectors (N, D) of its words: each is the sum of directions of its groups, and noise; all lean one way."""
    generator = torch.Generator().manual_seed(seed)
    place = {word: row for row, word in enumerate(lexicon.words)}
    rows = noise * torch.randn(len(place), DIMENSION, generator=generator)
    for group in lexicon.groups:
        direction = torch.randn(DIMENSION, generator=generator)
        rows[[place[word] for word in group.words]] += direction
    return rows + cone * torch.ones(DIMENSION)


def fresh(lexicon: Lexicon, *, seed: int = 0) -> Tensor:
    """Return vectors as a table is initialised."""
    return 0.02 * torch.randn(len(lexicon.words), DIMENSION, generator=torch.Generator().manual_seed(seed))


def shuffled(rows: Tensor, *, share: float = 1.0, seed: int = 0) -> Tensor:
    """Return the rows with this share of them dealt among each other."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(rows), generator=generator)[: round(share * len(rows))]
    dealt = rows.clone()
    dealt[chosen] = rows[chosen[torch.randperm(len(chosen), generator=generator)]]
    return dealt
