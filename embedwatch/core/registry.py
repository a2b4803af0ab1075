"""The registry: a plug-in class is registered when it is defined; `scan` imports the files that define them.

Adding a statistic, diagnostic, check, sink or source takes one file in the folder of its kind. Other packages add
theirs through entry points in the group `embedwatch.plugins`, each naming a module or a class.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeVar

from embedwatch.core.errors import RegistrationError, UsageError, did_you_mean

__all__ = ["FOLDERS", "PLUGIN_GROUP", "Plugin", "get", "registered", "scan"]

log = logging.getLogger(__name__)

PLUGIN_GROUP = "embedwatch.plugins"
FOLDERS = {
    "statistic": "embedwatch.stats",
    "diagnostic": "embedwatch.diagnostics",
    "check": "embedwatch.checks",
    "sink": "embedwatch.sinks",
    "source": "embedwatch.sources",
}
"""Kind of plug-in to the package whose modules define ours."""

_classes: dict[str, dict[str, type[Plugin]]] = {kind: {} for kind in FOLDERS}
_scanned: set[str] = set()

PluginT = TypeVar("PluginT", bound="Plugin")


class Plugin:
    """Base of the five kinds. A subclass that sets `name` is registered when it is defined.

    Class keyword arguments:
        register: `False` keeps a class out of the registry (test doubles, configured variants).
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    title: ClassVar[str]

    def __init_subclass__(cls, *, register: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if register and "name" in cls.__dict__:
            _register(cls)

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0]


def _register(cls: type[Plugin]) -> None:
    if not cls.name.isidentifier() or cls.name != cls.name.lower():
        raise RegistrationError(f"`name` of {cls.__qualname__} must be snake case, got {cls.name!r}; use lower case")
    if not cls.summary().endswith("."):
        raise RegistrationError(f"{cls.__qualname__} needs a docstring whose first line is a sentence")
    known = _classes[cls.kind].get(cls.name)
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise RegistrationError(
            f"{cls.kind} {cls.name!r} is defined twice, in {known.__module__} and {cls.__module__}; rename one of them"
        )
    _classes[cls.kind][cls.name] = cls


def scan(kind: str) -> None:
    """Import the modules of the kind's folder and plug-ins of other packages; a broken one is logged and left out."""
    if kind in _scanned:
        return
    _scanned.add(kind)
    try:
        package = importlib.import_module(FOLDERS[kind])
    except ModuleNotFoundError as error:
        if error.name != FOLDERS[kind]:
            raise
        return
    for module in pkgutil.iter_modules(package.__path__, f"{FOLDERS[kind]}."):
        importlib.import_module(module.name)
    for entry in _plugins():
        try:
            entry.load()
        except Exception:
            log.warning(
                "plug-in %r of group %s cannot be loaded and is left out", entry.name, PLUGIN_GROUP, exc_info=True
            )


def _plugins() -> Iterator[EntryPoint]:
    yield from entry_points(group=PLUGIN_GROUP)


def registered(base: type[PluginT]) -> dict[str, type[PluginT]]:
    """Return all classes of the base's kind by name, in alphabetical order, after a scan."""
    scan(base.kind)
    found = _classes[base.kind]
    return {name: found[name] for name in sorted(found)}  # type: ignore[misc]


def get(base: type[PluginT], name: str) -> type[PluginT]:
    """Return one class by name.

    Raises:
        UsageError: if there is none; the message names the nearest.
    """
    found = registered(base)
    if name not in found:
        hint = did_you_mean(name, found)
        words = f'no {base.kind} "{name}";', hint, f"`embedwatch list {base.kind}s` shows all."
        raise UsageError(" ".join(filter(None, words)))
    return found[name]
