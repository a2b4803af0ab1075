"""What seams ask: whether anybody looks at attention now, and whose module this is. Seams are one for the process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from torch import Tensor, nn

from embedwatch.observe.attention.site import AttentionSite

__all__ = ["Watcher", "add", "attending", "mark_of", "named_site", "remove", "sites_of", "sites_with"]


class Watcher(Protocol):
    """What is registered: all sites of one Monitor."""

    key: int

    @property
    def attends(self) -> bool:
        """Whether attention is looked at in this forward pass, on this thread."""

    @property
    def sites(self) -> Sequence[AttentionSite]:
        """All of them."""

    def named(self, name: str) -> AttentionSite:
        """Return the site of this name, a new one where there is none."""


_lock = threading.RLock()  # what is collected as garbage in the middle is forgotten there
_watchers: tuple[weakref.ref[Watcher], ...] = ()
_modules: dict[int, tuple[weakref.ref[AttentionSite], ...]] = {}
_named: weakref.WeakValueDictionary[int, Watcher] = weakref.WeakValueDictionary()


def add(watcher: Watcher) -> None:
    """Let seams find the sites of a Monitor."""
    global _watchers  # noqa: PLW0603
    with _lock:
        _named[watcher.key] = watcher
        if watcher not in _alive():
            _watchers = (*_watchers, weakref.ref(watcher, _forget))
        _renew()


def remove(watcher: Watcher) -> None:
    """Forget them. Calling it again does nothing."""
    global _watchers  # noqa: PLW0603
    with _lock:
        _watchers = tuple(each for each in _watchers if each() not in (None, watcher))
        _named.pop(watcher.key, None)
        _renew()


def _forget(reference: weakref.ref[Watcher]) -> None:
    """Forget a Monitor that is gone without being detached, and its model with it."""
    global _watchers  # noqa: PLW0603
    with _lock:
        _watchers = tuple(each for each in _watchers if each is not reference)
        _renew()


def _alive() -> list[Watcher]:
    return [watcher for reference in _watchers if (watcher := reference()) is not None]


def _renew() -> None:
    global _modules  # noqa: PLW0603
    found: dict[int, tuple[weakref.ref[AttentionSite], ...]] = {}
    for watcher in _alive():
        for site in watcher.sites:
            found[id(site.place.module)] = (*found.get(id(site.place.module), ()), weakref.ref(site))
    _modules = found  # as a whole: whoever reads on another thread sees the old or the new


def attending() -> bool:
    """Return whether anybody looks at attention in this forward pass, on this thread."""
    for reference in _watchers:
        watcher = reference()
        if watcher is not None and watcher.attends:
            return True
    return False


def sites_of(module: int) -> list[AttentionSite]:
    """Return the sites of a module, which is known by its identity."""
    return [site for reference in _modules.get(module, ()) if (site := reference()) is not None]


def mark_of(module: nn.Module) -> Tensor | None:
    """Return the parameter that a module is known by in compiled code: its identity would make one graph for each."""
    return next(module.parameters(), None)


def sites_with(weight: Tensor, kinds: Collection[str] = ("fused",)) -> Iterable[AttentionSite]:
    """Return the sites of these kinds whose first weight lies here; modules are not known where it is used."""
    place = _place_of(weight)
    for watcher in _alive() if place else ():
        if watcher.attends:
            yield from (site for site in watcher.sites if site.kind in kinds and _weight_of(site) == place)


def _weight_of(site: AttentionSite) -> int:
    module = site.place.module
    weight = getattr(module, "in_proj_weight", None)
    weight = getattr(module, "q_proj_weight", None) if weight is None else weight
    weight = mark_of(module) if weight is None else weight
    return _place_of(weight) if isinstance(weight, Tensor) else 0


def _place_of(weight: Tensor) -> int:
    """Return where a weight lies; 0 where it has no place, as inside a function transform."""
    try:
        return weight.data_ptr()
    except RuntimeError:
        return 0


def named_site(watcher: int, name: str) -> AttentionSite | None:
    """Return the site of this name of a Monitor, which is known by its key; `None` where that is gone."""
    found = _named.get(watcher)
    return None if found is None else found.named(name)
