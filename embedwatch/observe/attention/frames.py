"""Which module attends now, on this thread: told by its hooks, asked by seams that are told no module."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from embedwatch.observe.attention.site import AttentionSite

__all__ = ["Frame", "enter", "is_open", "leave", "take_frame", "take_open", "waiting"]


@dataclass
class Frame:
    """A call of a module that attends.

    Args:
        site: whose.
        shape: of the vectors that went in, (B, T, D), where the module does not say how many heads it has.
        seen: whether its attention has been seen.
    """

    site: AttentionSite
    shape: tuple[int, ...] = ()
    seen: bool = False


class _Frames(threading.local):
    def __init__(self) -> None:
        self.stack: list[Frame] = []


_frames = _Frames()


def waiting() -> bool:
    """Return whether a module attends whose attention has not been seen yet."""
    return bool(_frames.stack) and not _frames.stack[-1].seen


def take_frame() -> Frame | None:
    """Return the call that attends now, and count its attention as seen; `None` where it was before."""
    if not waiting():
        return None
    frame = _frames.stack[-1]
    frame.seen = True
    return frame


def take_open() -> AttentionSite | None:
    """Return the site that attends now, and count its attention as seen; `None` where it was before."""
    frame = take_frame()
    return None if frame is None else frame.site


def is_open(site: AttentionSite) -> bool:
    """Return whether a site is to be seen, and count it as seen: not twice in one call of its module."""
    for frame in reversed(_frames.stack):
        if frame.site is site:
            seen, frame.seen = frame.seen, True
            return not seen
    return True


def enter(site: AttentionSite, shape: tuple[int, ...] = ()) -> None:
    """Take note that a module begins to attend."""
    site.entered = True
    _frames.stack.append(Frame(site, shape))


def leave(site: AttentionSite) -> None:
    """Take note that it is over, also where what it called failed."""
    stack = _frames.stack
    while stack and any(frame.site is site for frame in stack):
        if stack.pop().site is site:
            break
