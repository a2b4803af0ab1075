"""A Transformer in plain PyTorch whose every place of interest can be observed. Imported as `embedwatch_model`.

It is self-contained: it imports torch and its own modules, nothing else.
"""

from .embedding import SinusoidalPositions, TokenEmbedding

__all__ = ["SinusoidalPositions", "TokenEmbedding"]
