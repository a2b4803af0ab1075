"""From hidden states to logits. Letters: B batch, T positions, D d_model, V vocabulary."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from .config import ModelConfig
from .layers import make_norm

__all__ = ["LanguageHead", "MaskedHead"]


class LanguageHead(nn.Linear):
    """One logit for each token: `logits = E h`, with E the token table itself if tied.

    A logit is the inner product of the hidden state and the token's row: tied weights make the space of inputs and of
    predictions one (Press and Wolf 2016, https://arxiv.org/abs/1608.05859).

    Shape: (B, T, D) -> (B, T, V).
    """

    def __init__(self, config: ModelConfig, *, bias: bool = False) -> None:
        super().__init__(config.d_model, config.vocabulary, bias=bias)

    def reset_parameters(self) -> None:
        """Draw weights anew so that logits of normalised states have unit variance."""
        nn.init.normal_(self.weight, std=self.in_features**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class MaskedHead(nn.Module):
    """Predicts masked tokens: one more non-linear map and a norm, then logits with a bias for each token (BERT).

    `logits = E norm(gelu(W h + b)) + c`.

    Shape: (B, T, D) -> (B, T, V).

    References:
        Devlin et al. 2018, section 3.1 and the authors' code. https://arxiv.org/abs/1810.04805
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.d_model, config.d_model)
        self.norm = make_norm(config)
        self.project = LanguageHead(config, bias=True)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.project(self.norm(functional.gelu(self.transform(hidden))))  # (B, T, V)
        return logits
