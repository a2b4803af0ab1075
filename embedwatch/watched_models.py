"""Which models are watched now: each by one Monitor, under a name of its own, to the end of the process."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Protocol

from torch import nn

__all__ = ["Watcher", "forget", "free_name", "remember", "watched_by"]

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """What watches a model, as far as is needed here: a Monitor."""

    model: nn.Module
    name: str

    def unwatched(self) -> AbstractContextManager[None]:
        """See nothing of what the model does in the block."""

    def detach(self) -> None:
        """End in good order."""

    def leave(self) -> None:
        """Take every hook away, at once."""


_watchers: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Watcher]] = weakref.WeakKeyDictionary()
_alive: weakref.WeakSet[Watcher] = weakref.WeakSet()


def watched_by(model: nn.Module) -> Watcher | None:
    """Return what watches a model now."""
    reference = _watchers.get(model)
    return None if reference is None else reference()


def remember(watcher: Watcher) -> None:
    """Say that a model is watched from now on; its watcher is detached when the process ends."""
    _watchers[watcher.model] = weakref.ref(watcher)
    _alive.add(watcher)


def forget(watcher: Watcher) -> None:
    """Say that a watcher has ended."""
    if watched_by(watcher.model) is watcher:
        del _watchers[watcher.model]
    _alive.discard(watcher)


def free_name(model: nn.Module) -> str:
    """Return the name of a model, numbered where another one that is watched now has it: sinks would mix the two.

    It is the name that it was loaded by, without its folder, or that of its class.
    """
    given = getattr(getattr(model, "config", None), "_name_or_path", "")
    name = Path(given).name if isinstance(given, str) and Path(given).name else type(model).__name__
    taken = {watcher.name for watcher in list(_alive) if watcher.model is not model}
    numbers = (f"{name}-{number}" for number in count(2))
    return name if name not in taken else next(free for free in numbers if free not in taken)


def _detach_all() -> None:
    for watcher in list(_alive):
        try:
            watcher.detach()
        except Exception:
            log.exception("embedwatch: %s could not be detached", watcher.name)


def _forked() -> None:
    """In a child process there is no evaluator: what was copied there sees nothing, and leaves the model."""
    for watcher in list(_alive):
        watcher.leave()
    _alive.clear()


atexit.register(_detach_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
