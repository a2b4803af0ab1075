"""Whether anything in a model holds positions: a table, a rotation, a bias on scores."""

from __future__ import annotations

import re

import torch
from torch import nn

from embedwatch.observe.anatomy import Modules
from embedwatch.observe.attention.code import Code, code_of

__all__ = ["holds_positions"]

STATE = re.compile(
    r"posi(?!tion_?wise)|(?:^|_)pos(?:n|_|$)|rotary|rope(?![a-z])|alibi|slopes|freq|sinus|relative|(?:^|_)rel(?:_|$)|(?:^|_)wpe"
    r"|timing|(?:^|_)(?:sin|cos)(?:_|$)",
    re.IGNORECASE,
)
"""Names of what holds them, and of its classes."""
FUNCTIONS = re.compile(
    r"rotary|rope(?![a-z])|alibi|sinusoid|freqs_cis|rel(?:ative)?_(?:pos|att)|position_bias", re.IGNORECASE
)
"""Names of functions that make them anew each time."""


def holds_positions(modules: Modules) -> bool:
    """Return whether a model has anything that tells places, used or not, by the names of what it holds and calls.

    Example:
        >>> class Plain(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.tokens = nn.Embedding(9, 4)
        >>> plain = Plain()
        >>> holds_positions(dict(plain.named_modules()))
        False
        >>> plain.wpe = nn.Embedding(9, 4)
        >>> holds_positions(dict(plain.named_modules()))
        True
    """
    known: dict[type, Code] = {}
    for path, module in modules.items():
        held = _held(module)
        own = f"{path.rpartition('.')[2]} {type(module).__name__}"
        anything = bool(held) or any(True for _ in module.parameters())
        if anything and STATE.search(own):
            return True
        if any(STATE.search(name) for name in held):
            return True
        if any(FUNCTIONS.search(name) for name in code_of(module, known).running):
            return True
    return False


def _held(module: nn.Module) -> list[str]:
    """Return the names of the tensors that a module itself holds."""
    parameters, buffers = module.named_parameters(recurse=False), module.named_buffers(recurse=False)
    plain = (name for name, value in vars(module).items() if isinstance(value, torch.Tensor))
    return [name for name, _ in (*parameters, *buffers)] + list(plain)
