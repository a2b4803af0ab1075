"""Seeded 64-bit hashes of row numbers and of row contents: what makes samples and duplicate counts mergeable.

A sample is the k rows with the smallest hash of their identity, so it does not depend on order, split or merge
(bottom-k sampling; Cohen & Kaplan 2007, "Summarizing data using bottom-k sketches"). Tensors hold the 64 bits as int64.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["combine", "hash_integers", "hash_rows", "hash_text"]

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
SHIFT = 29  # brings the sign bits of both floats in a word to places of their own
CHUNK = 1024  # rows hashed at a time, so that the products stay in the cache


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of the 64 bits."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def hash_integers(x: Tensor, seed: int = 0) -> Tensor:
    """Return the splitmix64 finaliser of each int64.

    Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators".

    Shape: any, int64 -> same, int64.
    """
    z = x + _signed(_GOLDEN * (seed + 1))
    z = (z ^ _shift(z, 30)) * _signed(_FIRST)
    z = (z ^ _shift(z, 27)) * _signed(_SECOND)
    return z ^ _shift(z, 31)


def combine(first: Tensor, second: int) -> Tensor:
    """Return the hash of each pair (element, number)."""
    return hash_integers(first ^ _signed(second))


def hash_text(text: str) -> int:
    """Return the first 64 bits of the BLAKE2b hash of a text, signed."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


@lru_cache(maxsize=16)
def _coefficients(words: int, device: torch.device) -> Tensor:
    return hash_integers(torch.arange(words, dtype=torch.int64, device=device), seed=7) | 1


def hash_rows(rows: Tensor) -> Tensor:
    """Return a hash of each row's bits: equal rows, and in practice only they, have equal hashes.

    A multilinear hash over 64-bit words, `h = Σ c_j (w_j + ⌊w_j / 2²⁹⌋) mod 2⁶⁴` with fixed odd `c_j`, then mixed
    (Lemire & Kaser 2014, "Strongly universal string hashing is fast"). The second term brings the upper float of each
    word into the low bits, which the product keeps apart even where floats end in zeros, as upcast half precision
    does.
    Half precision is hashed as float32. -0.0 and 0.0 differ: duplicates are equal bit for bit.

    Shape: (N, D) floating -> (N,) int64.
    """
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.float()
    if rows.dtype == torch.float32 and rows.shape[1] % 2:
        rows = torch.nn.functional.pad(rows, (0, 1))  # (N, D + 1)
    rows = rows.contiguous()
    if rows.storage_offset() % 2:
        rows = rows.clone()  # a view of 64-bit words must start at one
    words = rows.view(torch.int64)  # (N, W)
    coefficients = _coefficients(words.shape[1], words.device)
    parts = [_multilinear(part, coefficients) for part in words.split(CHUNK)]
    return hash_integers(torch.cat(parts) if parts else words.sum(1))  # (N,)


def _multilinear(words: Tensor, coefficients: Tensor) -> Tensor:
    mixed = words >> SHIFT  # the only new memory
    mixed += words
    mixed *= coefficients
    return mixed.sum(1)
