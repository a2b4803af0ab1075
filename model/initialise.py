"""Where weights start. Letters: D d_model, L layers."""

from __future__ import annotations

from torch import nn

from .layers import CrossLayer, Layer

__all__ = ["initialise"]


def initialise(model: nn.Module) -> None:
    """Draw the weights of all layers anew: N(0, 1 / fan-in), so that variance is kept, and biases at 0.

    `y = W x` sums fan-in products, so weights of variance 1 / fan-in give y the variance of x (LeCun et al. 1998).

    With pre-norm, each of the n sub-layers adds its variance to a stream that nothing normalises; so the last map of
    each starts smaller by √n, and the stream stays near the size of the embedding (GPT-2, section 2.3).

    Embeddings, positions and norms start as their own classes say.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for stack in model.modules():
        layers = getattr(stack, "layers", None)
        if isinstance(layers, nn.ModuleList):
            _shrink(layers)


def _shrink(layers: nn.ModuleList) -> None:
    for layer in layers:
        if isinstance(layer, Layer) and layer.pre:
            last = [layer.attention.to_output, layer.feed_forward.narrow]
            if isinstance(layer, CrossLayer):
                last.append(layer.cross_attention.to_output)
            for linear in last:
                nn.init.normal_(linear.weight, std=linear.in_features**-0.5 * (len(last) * len(layers)) ** -0.5)
