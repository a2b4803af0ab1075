"""Two made-up spaces of the same items, as two models would have them: what fails on real models fails here too."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["two_spaces"]

Floats = npt.NDArray[np.float64]
OTHER_MEAN = 0.2
"""Length of the mean of the second space."""


def two_spaces(
    rows: int = 4_000,
    *,
    latent: int = 128,
    left: int = 96,
    right: int = 64,
    mean: float = 0.9,
    noise: float = 0.25,
    decay: float = 0.7,
    seed: int = 0,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the same items in two spaces: one latent space seen through two random projections, each with its noise.

    The latent spectrum falls as `i^-decay`; rows have length 1. With a mean of 0.9 the first space lies in a narrow
    cone as that of E5 does, and a rotation that was fitted without centring fails.

    Args:
        rows: N.
        latent: dimensions of the latent space.
        left: D1.
        right: D2.
        mean: length of the mean of the left space.
        noise: length of the noise of a row, beside 1.
        decay: of the latent spectrum.
        seed: of the items; the two models, projections and means, are always the same.

    Returns:
        Unit rows, (N, D1) and (N, D2) float32.
    """
    draw = np.random.default_rng(seed)
    items = draw.standard_normal((rows, latent)) * (np.arange(1, latent + 1) ** -decay)
    items /= np.sqrt((items**2).sum(1).mean())
    return _seen(items, left, mean, noise, 1).astype(np.float32), _seen(items, right, OTHER_MEAN, noise, 2).astype(
        np.float32
    )


def _seen(items: Floats, dimension: int, mean: float, noise: float, seed: int) -> Floats:
    """Return the items through one random projection, with noise and a mean."""
    draw = np.random.default_rng(seed)
    turn = np.linalg.qr(draw.standard_normal((items.shape[1],) * 2))[0]
    centre = draw.standard_normal(dimension)
    rows = items @ turn[:, :dimension]
    rows /= np.linalg.norm(rows, axis=1).mean()
    rows = _unit(rows + noise * _unit(draw.standard_normal((len(items), dimension))))
    return _unit(np.sqrt(1 - mean**2) * rows + mean * centre / np.linalg.norm(centre))


def _unit(rows: Floats) -> Floats:
    found: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found
