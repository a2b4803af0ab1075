"""Opening references for live places: one, or a folder of several, each for the place it was made of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from embedwatch.core.errors import InputError, UsageError
from embedwatch.references.folder import is_reference, load_reference
from embedwatch.references.reference import Reference

__all__ = ["open_references"]


def open_references(given: object) -> dict[str, Reference]:
    """Return references by place.

    Args:
        given: a Reference, the folder of one, a folder that holds several, or any of the first two by place.

    Raises:
        InputError: if there is none, or one is damaged.
        UsageError: if it is something else.

    Example:
        >>> open_references(None)
        {}
    """
    if given is None:
        return {}
    if isinstance(given, Reference):
        return {given.origin.space.place: given}
    if isinstance(given, Mapping):
        return {str(place): _one(reference) for place, reference in given.items()}
    if not isinstance(given, str | os.PathLike):
        raise UsageError(
            f"`reference` must be a Reference, a folder or these by place, got {type(given).__name__}; "
            "make one with `embedwatch reference create`"
        )
    path = Path(given)
    if is_reference(path):
        found = load_reference(path)
        return {found.origin.space.place: found}
    below = sorted(each for each in path.iterdir() if is_reference(each)) if path.is_dir() else []
    if not below:
        raise InputError(
            f"{path} must be the folder of a reference, or hold such folders, got neither; create one with "
            "`embedwatch reference create SOURCE -o DIR`, or with `monitor.save_reference`"
        )
    loaded = [load_reference(each) for each in below]
    return {reference.origin.space.place: reference for reference in loaded}


def _one(given: object) -> Reference:
    (found,) = open_references(given).values()
    return found
