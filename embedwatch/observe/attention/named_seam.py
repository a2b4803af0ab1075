"""The seam for functions that a model's module knows by a name of its own: `from torch import softmax`.

Such a name holds the function itself, so that what is put in its place elsewhere is not called. While anybody watches,
ours stands behind that name too. A function that is held in any other way, as a default argument, is not found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

from embedwatch.observe.attention.patches import Patch
from embedwatch.observe.attention.sdpa_seam import sdpa_patch
from embedwatch.observe.attention.softmax_seam import softmax_patches

__all__ = ["named_patches"]

_patches: dict[tuple[ModuleType, str], Patch] = {}


def named_patches(bound: Iterable[tuple[str, str]]) -> Iterator[Patch]:
    """Yield a patch for each name that stands for one of the functions that seams replace.

    Args:
        bound: names, by the modules that have them.
    """
    for home, name in bound:
        module = sys.modules.get(home)
        if module is None:
            continue
        known = _patches.get((module, name))
        if known is not None and known.held:
            yield known
            continue
        function = getattr(module, name, None)
        make = next(filter(None, (each.replaces(function) for each in (sdpa_patch, *softmax_patches))), None)
        if make is not None:
            _patches[module, name] = Patch(module, name, make, known=True)
            yield _patches[module, name]
