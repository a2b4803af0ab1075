"""Which module attends now, on this thread: told by its hooks, asked by seams that are told no module."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from embedwatch.observe.attention.site import STAGE, AttentionSite
from embedwatch.observe.seam import Hook

__all__ = ["Enter", "Leave", "is_open", "take_open", "waiting"]


@dataclass
class _Frame:
    """A call of a module that attends.

    Args:
        site: whose.
        seen: whether its attention has been seen.
    """

    site: AttentionSite
    seen: bool = False


class _Frames(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Frame] = []


_frames = _Frames()


def waiting() -> bool:
    """Return whether a module attends whose attention has not been seen yet."""
    return bool(_frames.stack) and not _frames.stack[-1].seen


def take_open() -> AttentionSite | None:
    """Return the site that attends now, and count its attention as seen; `None` where it was before."""
    if not waiting():
        return None
    frame = _frames.stack[-1]
    frame.seen = True
    return frame.site


def is_open(site: AttentionSite) -> bool:
    """Return whether a site is to be seen, and count it as seen: not twice in one call of its module."""
    for frame in reversed(_frames.stack):
        if frame.site is site:
            seen, frame.seen = frame.seen, True
            return not seen
    return True


class Enter(Hook):
    """A pre-hook on a module that attends by itself."""

    before = True

    def __init__(self, site: AttentionSite) -> None:
        super().__init__(site.boundary, STAGE, site.name)
        self._site = site

    def pick(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return nothing."""
        return None, None

    def wants(self, *, grad: bool) -> bool:
        """Take note, where attention is looked at; nothing is to be seen."""
        if self._site.attends:
            _frames.stack.append(_Frame(self._site))
        return False


class Leave(Enter):
    """A hook on the same module: it is over, also where it failed."""

    before = False

    def wants(self, *, grad: bool) -> bool:
        """Take note."""
        stack = _frames.stack
        while stack and any(frame.site is self._site for frame in stack):
            if stack.pop().site is self._site:
                break
        return False
