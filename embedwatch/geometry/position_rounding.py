"""What rounding does to positions: to their numbers, to frequencies, to cosine and sine.

Rounding a table of codes never makes two rows equal. Rounding the positions themselves does: bfloat16 counts exactly to
256 only, float16 to 2,048, float32 to 16,777,216.
"""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.geometry.positions import sinusoids

__all__ = [
    "angle_error",
    "code_distance",
    "distinct_positions",
    "first_shared_position",
    "frozen_pairs",
    "rounding_phase",
]


def distinct_positions(length: int, dtype: torch.dtype) -> int:
    """Return how many of the positions 0, …, L-1 stay distinct in a type; what overflows counts as none.

    Example:
        >>> distinct_positions(4_096, torch.bfloat16), distinct_positions(32_768, torch.bfloat16)
        (769, 1153)
    """
    if length < 1:
        return 0
    bits = first_shared_position(dtype).bit_length() - 1
    last = min(_rounded(length - 1, bits), int(torch.finfo(dtype).max))
    if last < 1 << bits:
        return last + 1
    octave = last.bit_length() - 1 - bits  # whole ones that lie beyond those that count exactly
    return (1 << bits) + octave * (1 << (bits - 1)) + ((last - (1 << (bits + octave))) >> (octave + 1)) + 1


def _rounded(number: int, bits: int) -> int:
    """Return a whole number with so many significant bits, the nearest one, of two the even one."""
    left_out = max(0, number.bit_length() - bits)
    kept, rest = number >> left_out, number & ((1 << left_out) - 1)
    half = 1 << (left_out - 1) if left_out else 1
    return (kept + (rest > half or (rest == half and kept & 1))) << left_out


def first_shared_position(dtype: torch.dtype) -> int:
    """Return the first position that shares its number with the next: 2 to the number of bits of the significand.

    Example:
        >>> [first_shared_position(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32)]
        [256, 2048, 16777216]
    """
    return round(2 / torch.finfo(dtype).eps)


def rounding_phase(frequencies: Tensor, dtype: torch.dtype, length: int) -> float:
    """Return how far the worst pair is off after `length` positions if only frequencies are rounded, in radians.

    `L max_i |ω_i - round(ω_i)|`, as when `model.bfloat16()` catches a buffer of frequencies.

    Shape: (d/2,).
    """
    exact = frequencies.double()
    return float((exact - exact.to(dtype).double()).abs().max()) * length if len(exact) else 0.0


def code_distance(frequencies: Tensor, lag: int, dtype: torch.dtype, positions: Tensor) -> float:
    """Return how far codes at a lag are apart on average, if they are kept in a type: angles exact, codes rounded.

    Shape: frequencies (d/2,), positions (T,).

    Example:
        >>> from embedwatch.geometry.rope import base_frequencies
        >>> waves, at = base_frequencies(512, 10_000.0), torch.arange(64)
        >>> [round(code_distance(waves, 1, dtype, at), 3) for dtype in (torch.float64, torch.float16)]
        [3.714, 3.714]
    """
    here, there = (sinusoids(positions + shift, frequencies).to(dtype).double() for shift in (0, lag))
    return float((here - there).norm(dim=1).mean())


def frozen_pairs(frequencies: Tensor, dtype: torch.dtype, stop: int, *, start: int = 0) -> int:
    """Return how many pairs have the same cosine and sine at most positions as at the next, after rounding both.

    Shape: (d/2,).
    """
    at = torch.arange(start, stop, dtype=torch.float64)
    angles = torch.outer(at, frequencies.double())
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    same = (cos[1:] == cos[:-1]) & (sin[1:] == sin[:-1])
    return int((same.double().mean(0) > 0.5).sum())


def angle_error(cos: Tensor, sin: Tensor, frequencies: Tensor, positions: Tensor, temperature: float = 1.0) -> Tensor:
    """Return how far cosine and sine are from those of float64 at each position: the largest difference of any pair.

    Shape: cos and sin (T, d/2), frequencies (d/2,), positions (T,) -> (T,) float64.

    Example:
        >>> angles = torch.outer(torch.arange(3.0), torch.tensor([1.0]))
        >>> bool((angle_error(angles.cos(), angles.sin(), torch.tensor([1.0]), torch.arange(3)) < 1e-6).all())
        True
    """
    angles = torch.outer(positions.double(), frequencies.double())  # (T, d/2)
    apart = torch.maximum(
        (cos.double() / temperature - angles.cos()).abs(), (sin.double() / temperature - angles.sin()).abs()
    )
    return torch.nan_to_num(apart, nan=2.0, posinf=2.0).amax(1)
