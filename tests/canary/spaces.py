"""Small spaces for tests: texts to vectors by hashed words, and what may happen to a provider of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

from embedwatch.canary.probes import PROBES

__all__ = ["DIMENSION", "TEXTS", "Space", "changed"]

DIMENSION = 48
TEXTS = list(PROBES)
Space = Callable[[list[str]], Tensor]


def letters(texts: list[str], seed: int = 0, mean: float = 0.5) -> Tensor:
    """Return unit rows: the sum of a random vector for each three letters of a text, off the origin."""
    rows = []
    for text in texts:
        row = torch.zeros(DIMENSION)
        for start in range(max(1, len(text) - 2)):
            digest = hashlib.blake2b(text[start : start + 3].encode(), digest_size=4, salt=bytes([seed])).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
            row += torch.randn(DIMENSION, generator=generator)
        rows.append(torch.nn.functional.normalize(row, dim=0) + mean / DIMENSION**0.5)
    return torch.nn.functional.normalize(torch.stack(rows), dim=1)  # (N, D)


def turn(dimension: int = DIMENSION) -> Tensor:
    """Return a rotation."""
    return torch.linalg.qr(torch.randn(dimension, dimension, generator=torch.Generator().manual_seed(5))).Q


def _int8(rows: Tensor) -> Tensor:
    step = rows.abs().amax(1, keepdim=True) / 127
    return (rows / step).round() * step


def _broken(texts: list[str]) -> Tensor:
    rows = letters(texts)
    rows[3, 5] = torch.nan
    return rows


def _some(texts: list[str]) -> Tensor:
    rows = letters(texts)
    for place, text in enumerate(texts):
        if len(text) > 400:
            rows[place] = letters([text[:200]])[0]
    return rows


def _swapped(texts: list[str]) -> Tensor:
    return letters(texts).roll(1, 0)


CHANGES: dict[str, Space] = {
    "unchanged": letters,
    "jitter": lambda texts: letters(texts) * (1 + 1e-7 * torch.randn(len(texts), DIMENSION)),
    "bfloat16": lambda texts: letters(texts).bfloat16(),
    "float16": lambda texts: letters(texts).half(),
    "int8": lambda texts: _int8(letters(texts)),
    "lengths": lambda texts: letters(texts) * torch.tensor([1.0 + len(text) for text in texts])[:, None],
    "cut": lambda texts: torch.nn.functional.normalize(letters(texts)[:, :32], dim=1),
    "padded": lambda texts: torch.nn.functional.pad(letters(texts)[:, :32], (0, DIMENSION - 32)),
    "rotated": lambda texts: letters(texts) @ turn(),
    "other": lambda texts: letters(texts, seed=1),
    "wider": lambda texts: torch.cat([letters(texts, seed=1), letters(texts, seed=2)], 1),
    "some": _some,
    "order": _swapped,
    "nan": _broken,
}


def changed(name: str) -> Space:
    """Return a space after something happened to it."""
    return CHANGES[name]
