"""Functions of a process that are replaced while anybody watches: held by each Monitor, put back with the last."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, cast

import torch

__all__ = ["Patch"]

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


class Patch:
    """One attribute of a module or class that stands for a function.

    Args:
        owner: whose attribute it is.
        name: of the attribute. The owner may inherit it, or have none: then it has none of its own again at the end.
        make: takes the function that stands there, returns what to put in its place.
        known: whether torch's compiler knows the function by its name. It looks names up once, when it is imported, and
            must find the original then: it does not read what it knows.

    Example:
        >>> import types
        >>> owner = types.SimpleNamespace(double=lambda x: 2 * x)
        >>> original = owner.double
        >>> patch = Patch(owner, "double", lambda function: lambda x: function(x) + 1)
        >>> patch.hold()
        >>> owner.double(2)
        5
        >>> patch.release()
        >>> owner.double is original
        True
    """

    def __init__(self, owner: Any, name: str, make: Make, *, known: bool = False) -> None:
        self._owner, self._name, self._make, self._known = owner, name, make, known
        self._holders = 0
        self._inherited = False  # whether the owner has it from elsewhere, or not at all: then ours is taken away again
        self._original: Callable[..., Any] | None = None  # kept, as ours is: TorchScript knows both by identity
        self._ours: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Put ours in place, where nobody holds it yet."""
        if self._known:
            importlib.import_module("torch._dynamo")
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                now = getattr(self._owner, self._name, None)
                self._inherited = self._name not in vars(self._owner)
                if self._ours is None or now is not self._original:
                    self._original, self._ours = now, self._make(cast("Callable[..., Any]", now))
                    _let_script(self._ours, now)
                setattr(self._owner, self._name, self._ours)

    def release(self) -> None:
        """Put the original back with the last holder, unless another has replaced ours: then that stays."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and getattr(self._owner, self._name, None) is self._ours:
                if self._inherited:
                    delattr(self._owner, self._name)
                else:
                    setattr(self._owner, self._name, self._original)

    @property
    def held(self) -> bool:
        """Whether anybody holds it."""
        return self._holders > 0

    def replaces(self, function: object) -> Make | None:
        """Return what makes ours of a function, if this is the one that is replaced, or would be."""
        return self._make if self._stands_for(function) else None

    def _stands_for(self, function: object) -> bool:
        original = self._original if self._holders else getattr(self._owner, self._name, None)
        return function is not None and function is original


def _let_script(ours: Callable[..., Any], original: Callable[..., Any] | None) -> None:
    """Let TorchScript take a builtin where it meets ours: a model may be scripted while another is watched."""
    builtin = torch.jit._builtins._find_builtin(original)
    if builtin is not None:
        torch.jit._builtins._register_builtin(ours, builtin)
