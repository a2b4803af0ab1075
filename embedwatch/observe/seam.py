"""The seam between a watched module and us: a hook that compiled code can carry, and that copies as nothing.

In eager mode a hook calls `see` directly. In compiled code it leaves one opaque operator in the graph, which looks the
hook up when the code runs: no graph break, no recompilation when we are armed, one graph as before. What a hook holds
lives outside the module: in the module's hook table there is only the hook itself.
"""

from __future__ import annotations

import itertools
import weakref
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

__all__ = ["Hook"]

_keys = itertools.count()
_hooks: weakref.WeakValueDictionary[int, Hook] = weakref.WeakValueDictionary()

_library = torch.library.Library("embedwatch", "DEF")
# `order` is written to in name only: an operator that changes nothing would be removed from the graph, and those that
# change the same tensor keep their order.
_library.define("see(Tensor? first, Tensor? second, Tensor(a!) order, int key) -> ()")


def _see(first: Tensor | None, second: Tensor | None, order: Tensor, key: int) -> None:
    hook = _hooks.get(key)
    if hook is not None and hook.wants():  # it may have been detached after the code was compiled
        hook.see(first, second)


def _see_nothing(first: Tensor | None, second: Tensor | None, order: Tensor, key: int) -> None:
    """Say to a compiler that nothing is returned."""


_library.impl("see", _see, "CompositeExplicitAutograd")
torch.library.register_fake("embedwatch::see", _see_nothing)

_order = torch.zeros(())


class Hook:
    """A forward hook, or a forward pre-hook, with keyword arguments; a subclass picks tensors and sees them.

    A copy of a watched model, by `deepcopy` or through a pickle, holds a hook that does nothing, made of the standard
    library only: it loads where embedwatch is not installed.
    """

    def __init__(self) -> None:
        self.key = next(_keys)
        _hooks[self.key] = self

    def pick(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return at most two tensors to see. It may be traced by a compiler: no state, no data-dependent branches."""
        raise NotImplementedError

    def see(self, first: Tensor | None, second: Tensor | None) -> None:
        """Look at the tensors. Never raises."""
        raise NotImplementedError

    def wants(self) -> bool:
        """Return whether to see now. Asked once in each call, when it runs."""
        raise NotImplementedError

    def __call__(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None
    ) -> None:
        """Be called by the module."""
        if torch.compiler.is_compiling():
            if torch.compiler.is_exporting():  # what is exported is nobody's to watch
                return
            first, second = self.pick(module, args, kwargs, output)
            torch.ops.embedwatch.see(_detached(first), _detached(second), _order, self.key)
        elif self.wants() and not torch._C._get_tracing_state():
            self.see(*self.pick(module, args, kwargs, output))

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")  # takes anything, returns None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return nullcontext().__exit__


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()
