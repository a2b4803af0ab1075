"""How a model knows the order of its tokens: one interface, and the schemes that add a vector to each token.

| scheme | where it acts | beyond the trained length |
| --- | --- | --- |
| `NoPositions` | nowhere; the causal mask alone gives an order | goes on |
| `SinusoidalPositions` | added to the embedding | goes on |
| `LearnedPositions` | added to the embedding | refuses |
| `rotary.RotaryPositions` | turns queries and keys | goes on; scaling makes it good |
| `position_bias.AlibiPositions` | added to attention scores | goes on, its purpose |
| `position_bias.RelativePositions` | added to attention scores | goes on: the last bucket is open |

Letters: B batch, T and S positions, D d_model, H heads, K head size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .errors import ModelError, check_at_least

__all__ = ["LearnedPositions", "NoPositions", "Positions", "SinusoidalPositions"]


class Positions(nn.Module):
    """One interface for every scheme: each overrides what it needs, and the rest does nothing.

    `at` is always a tensor of positions, (T,), (1, T) or (B, T): rows that are padded on the left start later.
    """

    def reserve(self, end: int) -> None:
        """Prepare for positions below `end`.

        Raises:
            ModelError: if the scheme does not reach so far.
        """

    def forward(self, vectors: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the embeddings (B, T, D) with positions added; `at` None means 0, 1, …, T-1."""
        return vectors

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        """Return queries or keys (B, H, T, K) with positions worked in."""
        return heads

    def bias(self, at: Tensor, key_at: Tensor) -> Tensor | None:
        """Return what is added to the attention scores, (1 or B, H, T, S), or None."""
        return None


class NoPositions(Positions):
    """No positions at all. In a decoder the causal mask still gives an order: position t sees t others.

    References:
        Kazemnejad et al. 2023, "The impact of positional encoding on length generalization".
        https://arxiv.org/abs/2305.19466
    """


class SinusoidalPositions(Positions):
    """Adds fixed waves, one pair for each frequency, so that a position can be told and offsets can be learned.

    `PE[p, 2i] = sin(p ω_i)` and `PE[p, 2i+1] = cos(p ω_i)` with `ω_i = base^(-2i/D)`: wavelengths from 2π to 2π·base.

    A step of k is the same linear map from every position: pair i turns by the angle k ω_i,
    `PE[p+k] = R(k) PE[p]` with `R(k)` block-diagonal of rotations `[[cos kω_i, sin kω_i], [-sin kω_i, cos kω_i]]`.
    So `PE[p] · PE[q] = Σ_i cos((p-q) ω_i)` depends on the offset alone, and every row has norm √(D/2).

    Waves have no end: beyond `length` the table grows. Whether a model makes sense of it there is another question.

    Shape: (B, T, D) -> (B, T, D).

    References:
        Vaswani et al. 2017, "Attention is all you need", section 3.5. https://arxiv.org/abs/1706.03762

    Args:
        d_model: D, even.
        length: number of positions in the table at first.
        base: ratio of the longest wavelength to the shortest.

    Example:
        >>> SinusoidalPositions(4, 8)(torch.zeros(1, 1, 4))
        tensor([[[0., 1., 0., 1.]]])
    """

    table: Tensor

    def __init__(self, d_model: int, length: int, *, base: float = 10_000.0) -> None:
        super().__init__()
        check_at_least(1, d_model=d_model, length=length)
        if d_model % 2:
            raise ModelError(f"`d_model` must be even, got {d_model}; sine and cosine come in pairs")
        if base <= 1:
            raise ModelError(f"`base` must be above 1, got {base}; 10000 is usual")
        self.base = base
        self.register_buffer("table", self._waves(d_model, length), persistent=False)  # (T, D)

    def _waves(self, d_model: int, length: int) -> Tensor:
        """Return the table (T, D), computed in float64: at p = 4096 float32 angles are wrong in the fourth decimal."""
        exponents = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model  # (D/2,)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), self.base**-exponents)  # (T, D/2)
        return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1).float()  # (T, D)

    def reserve(self, end: int) -> None:
        """Make the table long enough for positions below `end`."""
        length, d_model = self.table.shape
        if end > length:
            self.table = self._waves(d_model, max(end, 2 * length)).to(self.table)  # (2 T, D)

    def forward(self, vectors: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the vectors with their positions added."""
        if at is None:
            self.reserve(vectors.shape[1])
            at = torch.arange(vectors.shape[1], device=vectors.device)  # (T,)
        return vectors + self.table[at].to(vectors.dtype)  # (B, T, D)

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of `repr`."""
        return f"{self.table.shape[1]}, length={len(self.table)}, base={self.base:g}"


class LearnedPositions(Positions):
    """Adds one learned vector for each position up to the trained length, and refuses to go beyond it.

    There is no vector for a position that was never trained, so that longer sequences are an error, not a guess.

    Shape: (B, T, D) -> (B, T, D).

    References:
        Gehring et al. 2017, "Convolutional sequence to sequence learning". https://arxiv.org/abs/1705.03122
        Radford et al. 2019 (GPT-2); its code starts positions at half the spread of tokens, and so does this.

    Args:
        d_model: D.
        length: number of positions.
        std: of the normal distribution that the vectors start from.
    """

    def __init__(self, d_model: int, length: int, *, std: float = 0.01) -> None:
        super().__init__()
        check_at_least(1, d_model=d_model, length=length)
        self.std = std
        self.table = nn.Embedding(length, d_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all vectors anew."""
        nn.init.normal_(self.table.weight, std=self.std)

    def reserve(self, end: int) -> None:
        """Refuse positions that were never trained."""
        length = self.table.num_embeddings
        if end > length:
            fix = f"cut the sequence to {length}, or train with positions that extrapolate (rope, alibi, …)"
            raise ModelError(f"`ids` must have at most {length} positions (learned), got {end}; {fix}")

    def forward(self, vectors: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the vectors with their positions added."""
        if at is None:
            self.reserve(vectors.shape[1])
            at = torch.arange(vectors.shape[1], device=vectors.device)  # (T,)
        added: Tensor = self.table(at)  # (1 or B, T, D)
        return vectors + added
