"""References of the daemon: which Space's rows are compared with which saved healthy state."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from embedwatch.core.errors import EmbedwatchError, UsageError
from embedwatch.core.snapshot import Space
from embedwatch.daemon.config import ReferenceFolder

if TYPE_CHECKING:
    from embedwatch.references import Reference

__all__ = ["References", "load_references"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Entry:
    model: str
    place: str
    segment: str
    reference: Reference

    def matches(self, space: Space) -> bool:
        pairs = ((space.model, self.model), (space.place, self.place), (space.segment, self.segment))
        return space.head is None and all(fnmatchcase(name, pattern) for name, pattern in pairs)


@dataclass(frozen=True)
class References:
    """References, each with the Spaces that it holds for. Of several for one Space the first counts.

    Example:
        >>> References().of(Space("faq", "pooled")) is None
        True
    """

    entries: Sequence[_Entry] = field(default=())

    def of(self, space: Space) -> Reference | None:
        """Return what the rows of a Space are compared with."""
        return next((entry.reference for entry in self.entries if entry.matches(space)), None)


def load_references(folders: Sequence[ReferenceFolder]) -> References:
    """Read the references that a configuration names.

    Raises:
        UsageError: naming the first that cannot be read.
    """
    return References([entry for number, folder in enumerate(folders) for entry in _entries(number, folder)])


def _entries(number: int, folder: ReferenceFolder) -> Iterator[_Entry]:
    from embedwatch.references.opening import open_references  # with torch, so only where one is named

    key = f"references[{number}]"
    try:
        found = list(open_references(folder.path).values())
        for reference in found:
            log.info("embedwatch: reference %s of %s", reference.fingerprint, reference.origin.space)  # fits it too
    except EmbedwatchError as error:
        raise UsageError(f"`{key}.path`: {error}") from error
    except OSError as error:
        raise UsageError(f"`{key}.path` must be readable, got {folder.path}: {error.strerror}; check it") from error
    if folder.place is not None and len(found) > 1:
        raise UsageError(
            f"`{key}.place` must be left out for a folder of {len(found)} references, each of a place of its own, got "
            f"{folder.place}; name one of them, or leave it out"
        )
    for reference in found:
        own = reference.origin.space
        yield _Entry(folder.model or own.model, folder.place or own.place, folder.segment or own.segment, reference)
