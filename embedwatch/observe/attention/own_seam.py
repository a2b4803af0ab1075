"""Hooks on modules that attend by themselves: seams that are told no module ask which of them attends now."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.observe.attention.crossing import ORDER, compiling, detached, watches
from embedwatch.observe.attention.frames import enter, leave
from embedwatch.observe.attention.registry import mark_of
from embedwatch.observe.attention.site import STAGE, AttentionSite
from embedwatch.observe.attention.sites import heads_of
from embedwatch.observe.outputs import vectors_of
from embedwatch.observe.seam import Hook, leave_alone

__all__ = ["Enter", "Leave"]


class Enter(Hook):
    """A pre-hook on a module that attends by itself.

    In compiled code it tells its module by a parameter, not by itself: layers that are compiled one by one share what
    was compiled, whether they are watched or not. So each has one; that of a layer that is not watched notes nothing.

    Args:
        boundary: where exceptions of ours end.
        module: whose hook it is.
        site: which is watched; `None` where it is not.
    """

    before = True

    def __init__(self, boundary: Boundary, module: nn.Module, site: AttentionSite | None = None) -> None:
        super().__init__(boundary, STAGE, "" if site is None else site.name)
        self._site = site
        self._asks = self.before and not heads_of(module)

    def __call__(self, module: nn.Module, args: tuple[Any, ...], *more: Any) -> None:
        """Be called by the module, with keyword arguments and, after its forward, with the output."""
        if len(more) != (1 if self.before else 2) or not watches():
            return
        if compiling():
            entered = _entered(args, more[0]) if self._asks else None
            torch.ops.embedwatch.attend_within(detached(mark_of(module)), detached(entered), ORDER, self.before)
        elif self._site is not None and self._site.attends:
            self._note(self._site, _entered(args, more[0]) if self._asks else None)

    def _note(self, site: AttentionSite, entered: Tensor | None) -> None:
        enter(site, () if entered is None else tuple(entered.shape))


class Leave(Enter):
    """A hook on the same module: it is over, also where it failed."""

    before = False

    def _note(self, site: AttentionSite, entered: Tensor | None) -> None:
        leave(site)


leave_alone(Enter.__call__.__code__)


def _entered(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the vectors that go in, whose number tells how many heads there are where the module does not."""
    return vectors_of(next(iter((*args, *kwargs.values())), None))
