"""How tokens and positions become vectors. Letters: B batch, T positions, D d_model, V vocabulary."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["SinusoidalPositions", "TokenEmbedding"]


class TokenEmbedding(nn.Module):
    """Looks tokens up in a table, and multiplies by √D so that a token is as long as a position.

    The table starts from N(0, 1/D): entries of standard deviation D^-½, rows of norm 1. That suits its second use as
    the output projection (tied weights), where D products are summed into one logit of unit variance. As input such
    rows would have an RMS of D^-½, 0.04 at D = 512, beside the 0.71 of sinusoidal positions: positions would drown the
    tokens. The factor √D brings the RMS of a token to 1 and leaves the table as the projection wants it. It belongs in
    exactly one place: left out, or applied twice, it does not crash, it only trains badly.

    Shape: (B, T) int64 -> (B, T, D).

    References:
        Vaswani et al. 2017, "Attention is all you need", section 3.4. https://arxiv.org/abs/1706.03762

    Args:
        vocabulary: V.
        d_model: D.
        scaled: multiply by √D.

    Example:
        >>> TokenEmbedding(10, 4)(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, vocabulary: int, d_model: int, *, scaled: bool = True) -> None:
        super().__init__()
        _check_at_least_one("vocabulary", vocabulary)
        _check_at_least_one("d_model", d_model)
        self.tokens = nn.Embedding(vocabulary, d_model)
        self.scale = math.sqrt(d_model) if scaled else 1.0
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew from N(0, 1/D)."""
        nn.init.normal_(self.tokens.weight, std=self.tokens.embedding_dim**-0.5)

    @property
    def weight(self) -> Tensor:
        """The table (V, D), to be tied to the output projection."""
        return self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Return one vector for each token."""
        vectors: Tensor = self.tokens(ids)  # (B, T, D)
        return vectors * self.scale

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of `repr`."""
        return f"scale={self.scale:.4g}"


class SinusoidalPositions(nn.Module):
    """Adds fixed waves, one pair for each frequency, so that a position can be told and offsets can be learned.

    `PE[p, 2i] = sin(p ω_i)` and `PE[p, 2i+1] = cos(p ω_i)` with `ω_i = base^(-2i/D)`: wavelengths from 2π to 2π·base.

    A step of k is the same linear map from every position: pair i turns by the angle k ω_i,
    `PE[p+k] = R(k) PE[p]` with `R(k)` block-diagonal of rotations `[[cos kω_i, sin kω_i], [-sin kω_i, cos kω_i]]`.
    So `PE[p] · PE[q] = Σ_i cos((p-q) ω_i)` depends on the offset alone, and every row has norm √(D/2).

    The sum is the output of this one module, so that a plain forward hook sees what enters the first layer.

    Shape: (B, T, D) -> (B, T, D).

    References:
        Vaswani et al. 2017, "Attention is all you need", section 3.5. https://arxiv.org/abs/1706.03762

    Args:
        d_model: D, even.
        length: number of positions in the table.
        base: ratio of the longest wavelength to the shortest.

    Example:
        >>> SinusoidalPositions(4, 8)(torch.zeros(1, 1, 4))
        tensor([[[0., 1., 0., 1.]]])
    """

    table: Tensor

    def __init__(self, d_model: int, length: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        _check_at_least_one("d_model", d_model)
        _check_at_least_one("length", length)
        if d_model % 2:
            raise ValueError(f"`d_model` must be even, got {d_model}; sine and cosine come in pairs")
        if base <= 1:
            raise ValueError(f"`base` must be above 1, got {base}; 10000 is usual")
        self.base = base
        self.register_buffer("table", self._waves(d_model, length), persistent=False)  # (T, D)

    def _waves(self, d_model: int, length: int) -> Tensor:
        """Return the table (T, D), computed in float64: at p = 4096 float32 angles are wrong in the fourth decimal."""
        exponents = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model  # (D/2,)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), self.base**-exponents)  # (T, D/2)
        return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).float()  # (T, D)

    def forward(self, vectors: Tensor, offset: int = 0) -> Tensor:
        """Return the vectors with their positions added; the first one stands at position `offset`.

        Raises:
            ValueError: if a position lies outside the table.
        """
        end = offset + vectors.shape[1]
        if offset < 0 or end > len(self.table):
            raise ValueError(
                f"`vectors` must lie within the {len(self.table)} positions of the table, got {offset} to {end}; "
                "cut the sequence or make the table longer"
            )
        return vectors + self.table[offset:end].to(vectors.dtype)  # (B, T, D)

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of `repr`."""
        return f"{self.table.shape[1]}, length={len(self.table)}, base={self.base:g}"


def _check_at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"`{name}` must be at least 1, got {value}; count from one")
