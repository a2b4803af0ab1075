"""The registry: a plug-in class is registered when it is defined; `scan` imports the files that define them.

Adding a statistic, diagnostic, check, sink, source or fault takes one file in the folder of its kind. Other packages
add theirs through entry points in the group `embedwatch.plugins`, each naming a module or a class.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import threading
from importlib.metadata import entry_points
from typing import Any, ClassVar, TypeVar

from embedwatch.core.errors import RegistrationError, UsageError, did_you_mean

__all__ = ["FOLDERS", "PLUGIN_GROUP", "Plugin", "PluginT", "get", "registered", "scan"]

log = logging.getLogger(__name__)

PLUGIN_GROUP = "embedwatch.plugins"
FOLDERS = {
    "statistic": "embedwatch.stats",
    "diagnostic": "embedwatch.diagnostics",
    "check": "embedwatch.checks",
    "sink": "embedwatch.sinks",
    "source": "embedwatch.sources",
    "fault": "embedwatch.faults",
}
"""Kind of plug-in to the package whose modules define ours."""

_classes: dict[str, dict[str, type[Plugin]]] = {kind: {} for kind in FOLDERS}
_scanned: set[str] = set()
_lock = threading.RLock()

PluginT = TypeVar("PluginT", bound="Plugin")


class Plugin:
    """Base of all kinds. A subclass that sets `name` is registered when it is defined.

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
        if cls.__module__.startswith(f"{FOLDERS[cls.kind]}."):  # ours stays, whoever came first
            log.warning(
                "%s %r of %s takes the name of one of ours and is left out", cls.kind, cls.name, known.__module__
            )
        else:
            raise RegistrationError(
                f"{cls.kind} {cls.name!r} is defined twice, in {known.__module__} and {cls.__module__}; rename one"
            )
    _classes[cls.kind][cls.name] = cls


def scan(kind: str) -> None:
    """Import the modules of the kind's folder, and once the plug-ins of other packages; a broken one is left out."""
    with _lock:
        if kind not in _scanned:
            try:
                package = importlib.import_module(FOLDERS[kind])
            except ModuleNotFoundError as error:
                if error.name != FOLDERS[kind]:
                    raise
            else:
                for module in pkgutil.iter_modules(package.__path__, f"{FOLDERS[kind]}."):
                    importlib.import_module(module.name)
            _scanned.add(kind)
        if PLUGIN_GROUP not in _scanned:
            _scanned.add(PLUGIN_GROUP)
            for entry in entry_points(group=PLUGIN_GROUP):
                try:
                    entry.load()
                except Exception:
                    log.warning("plug-in %r of group %s is left out", entry.name, PLUGIN_GROUP, exc_info=True)


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
