"""The seam between a watched module and us: a hook that compiled code can carry, and that copies as nothing.

In eager mode a hook calls `see` directly. In compiled code it leaves one opaque operator in the graph, which looks the
hook up when the code runs: no graph break, no recompilation when we are armed, one graph as before. What a hook holds
lives outside the module: in the module's hook table there is only the hook itself.
"""

from __future__ import annotations

import itertools
import weakref
from contextlib import AbstractContextManager, nullcontext
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.boundary import Boundary

__all__ = ["ORDER", "Hook", "leave_alone"]

_keys = itertools.count()
_hooks: weakref.WeakValueDictionary[int, Hook] = weakref.WeakValueDictionary()

_library = torch.library.Library("embedwatch", "DEF")
# `order` is written to in name only: an operator that changes nothing would be removed from the graph, and those that
# change the same tensor keep their order.
_library.define("see(Tensor? first, Tensor? second, Tensor(a!) order, int key, bool grad) -> ()")


def _see(first: Tensor | None, second: Tensor | None, order: Tensor, key: int, grad: bool) -> None:  # noqa: FBT001
    hook = _hooks.get(key)
    if hook is not None:  # it may have been detached after the code was compiled
        with hook.guard():
            if hook.wants(grad=grad):
                hook.see(first, second)


def _see_nothing(first: Tensor | None, second: Tensor | None, order: Tensor, key: int, grad: bool) -> None:  # noqa: FBT001
    """Say to a compiler that nothing is returned."""


_library.impl("see", _see, "CompositeExplicitAutograd")
torch.library.register_fake("embedwatch::see", _see_nothing)

ORDER = torch.zeros((), device="cpu")
"""What all operators of ours write to, so that they run in the order of the code."""


class Hook:
    """A forward hook, or a forward pre-hook, with keyword arguments; a subclass picks tensors and sees them.

    A copy of a watched model, by `deepcopy` or through a pickle, holds a hook that does nothing, made of the standard
    library only: it loads where embedwatch is not installed.

    Args:
        boundary: where exceptions of ours end.
        stage, name: what they are counted by.
    """

    before = False
    """Whether it is a pre-hook."""

    def __init__(self, boundary: Boundary, stage: str, name: str) -> None:
        self._boundary, self._stage, self._name = boundary, stage, name
        self.key = next(_keys)
        _hooks[self.key] = self

    def guard(self) -> AbstractContextManager[None]:
        """Return the block within which whatever is ours must run."""
        return self._boundary.guard(self._stage, self._name)

    @property
    def off(self) -> bool:
        """Whether it failed so often in a row that it is not tried again."""
        return self._boundary.is_off(self._stage, self._name)

    def pick(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return at most two tensors to see. It may be traced by a compiler: no state, no data-dependent branches."""
        raise NotImplementedError

    def see(self, first: Tensor | None, second: Tensor | None) -> None:
        """Look at the tensors. The boundary takes what it raises."""
        raise NotImplementedError

    def wants(self, *, grad: bool) -> bool:
        """Return whether to see now. Asked once in each call, when it runs; compiled code itself runs without grad."""
        raise NotImplementedError

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], *more: Any) -> None:
        """Be called by the module, with keyword arguments and, after its forward, with the output."""
        if len(more) != (1 if self.before else 2):
            return  # hung up or taken away in the middle of a call on another thread: torch forgets the keywords then
        kwargs, output = more[0], None if self.before else more[1]
        if torch.compiler.is_compiling():
            if torch.compiler.is_exporting():  # what is exported is nobody's to watch
                return
            first, second = self.pick(module, args, kwargs, output)
            grad = torch.is_grad_enabled()
            torch.ops.embedwatch.see(_detached(first), _detached(second), ORDER, self.key, grad)
        elif not torch._C._get_tracing_state():
            try:
                wanted = self.wants(grad=torch.is_grad_enabled())
            except Exception as error:  # noqa: BLE001 - a guard around each call would cost more than the call
                wanted = False
                self._failed(error)
            if wanted:
                with self.guard():
                    self.see(*self.pick(module, args, kwargs, output))

    def _failed(self, error: Exception) -> None:
        """Count an exception."""
        with self.guard():
            raise error

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")  # takes anything, returns None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return nullcontext().__exit__


def leave_alone(code: CodeType) -> None:
    """Keep torch from compiling a hook where it is called from code that is not compiled itself.

    So are the hooks of a module that `torch.compile` was given, and of those after a graph break: each would become a
    graph of its own, compiled anew for each hook. Where compiled code calls a hook, it is traced as ever.
    """
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):  # since torch 2.7
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))


leave_alone(Hook.__call__.__code__)


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()
