"""Random features of the Gaussian kernel: means over all pairs from one sum over rows."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["gaussian_frequencies", "random_features"]


def gaussian_frequencies(dimension: int, count: int, *, precision: float, seed: int) -> Tensor:
    """Return frequencies ω for which `E cos(ω·(x - y)) = exp(-precision ‖x - y‖²)`.

    Rows are orthogonal in blocks of D with the lengths of Gaussian vectors, which lowers the variance of the estimate
    (Rahimi & Recht 2007; Yu et al. 2016, arXiv 1610.09072, "Orthogonal random features").

    Shape: -> (D, count) float32, the same for the same seed.
    """
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    width = min(dimension, count)
    for _ in range(-(-count // dimension)):
        gaussian = torch.randn(dimension, width, generator=generator, dtype=torch.float64)
        orthogonal, upper = torch.linalg.qr(gaussian)
        orthogonal = orthogonal * upper.diagonal().sign()  # uniform over rotations (Mezzadri 2007)
        lengths = torch.randn(dimension, width, generator=generator, dtype=torch.float64).norm(dim=0)
        blocks.append(orthogonal * lengths)  # (D, width), one frequency a column
    scale = (2 * precision) ** 0.5
    frequencies: Tensor = torch.cat(blocks, dim=1)[:, :count] * scale  # (D, count)
    return frequencies.float()


def random_features(rows: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Return `cos(ω·x)` and `sin(ω·x)`.

    Shape: (N, D) and (D, F) -> (N, F), (N, F).
    """
    phase = rows @ frequencies.to(rows)
    sine = phase.sin()
    return phase.cos_(), sine
