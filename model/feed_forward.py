"""The position-wise feed-forward. Letters: B batch, T positions, D d_model."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from .errors import check_at_least, check_one_of

__all__ = ["FeedForward"]


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between, the same at every position and blind to all others.

    `FFN(x) = W₂ f(W₁ x + b₁) + b₂`, f = ReLU (the paper) or GELU `x Φ(x)`; gated (SwiGLU):
    `FFN(x) = W₂ (silu(W₃ x + b₃) ⊙ (W₁ x + b₁)) + b₂` with `silu(x) = x σ(x)`.

    Rows of W₁ can be read as keys and columns of W₂ as the values that are added where a key answers (Geva et al. 2020,
    https://arxiv.org/abs/2012.14913).

    Shape: (B, T, D) -> (B, T, D).

    References:
        Vaswani et al. 2017, section 3.3. https://arxiv.org/abs/1706.03762
        Hendrycks and Gimpel 2016 (GELU), https://arxiv.org/abs/1606.08415; Shazeer 2020 (SwiGLU),
        https://arxiv.org/abs/2002.05202

    Args:
        d_model: D.
        width: inner width; 4 D is usual, 8/3 D if gated.
        activation: "relu", "gelu" or "swiglu".

    Example:
        >>> import torch
        >>> FeedForward(8, 32)(torch.zeros(1, 3, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(self, d_model: int, width: int, *, activation: str = "gelu") -> None:
        super().__init__()
        check_at_least(1, d_model=d_model, width=width)
        check_one_of("activation", activation, ("relu", "gelu", "swiglu"))
        self.activation = activation
        self.widen = nn.Linear(d_model, width)
        self.gate = nn.Linear(d_model, width) if activation == "swiglu" else None
        self.narrow = nn.Linear(width, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added to the stream."""
        inner = self.widen(x)  # (B, T, width)
        if self.gate is not None:
            inner = functional.silu(self.gate(x)) * inner
        else:
            inner = functional.relu(inner) if self.activation == "relu" else functional.gelu(inner)
        output: Tensor = self.narrow(inner)  # (B, T, D)
        return output

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of `repr`."""
        return f"activation={self.activation}"
