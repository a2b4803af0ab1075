"""Origin: where the rows of a reference come from, and what a window must share with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.core.snapshot import Space
from embedwatch.parcel_fields import is_label, is_time, is_whole

__all__ = ["Origin", "Part"]

MOST_PARTS = 10_000
MOST_NOTES = 100


@dataclass(frozen=True)
class Part:
    """One source whose rows a reference holds.

    Args:
        label: its name.
        rows: how many it had.
        fingerprint: hash of its content.
        start: number that its first row has in the reference.
    """

    label: str
    rows: int
    fingerprint: str
    start: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"label": self.label, "rows": self.rows, "fingerprint": self.fingerprint, "start": self.start}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Part:
        """Read what `to_json` wrote."""
        found = cls(data["label"], data["rows"], data["fingerprint"], data["start"])
        _check(is_label(found.label) and is_label(found.fingerprint) and is_whole(found.rows) and is_whole(found.start))
        return found


@dataclass(frozen=True)
class Origin:
    """Where the rows come from.

    Args:
        space: what the rows are of.
        parts: the sources that were read, in order.
        dimension: D.
        dtype: type of the stored numbers.
        is_unit: whether all rows had length 1.
        role: what sort of place it is.
        model: fingerprint of the model that made the rows, where it is known.
        fitted: rows at the beginning that fitted the maps; the others calibrate.
        created: seconds since the epoch.
        notes: what a reader must know: how texts were pooled, what was put before them.
        versions: of embedwatch and the libraries that computed.
    """

    space: Space
    parts: tuple[Part, ...]
    dimension: int
    dtype: str
    is_unit: bool
    role: str
    fitted: int
    created: float
    model: str = ""
    notes: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all parts together."""
        return sum(part.rows for part in self.parts)

    def merged(self, other: Origin) -> Origin:
        """Return the origin of both.

        Raises:
            InputError: if they cannot be of one state: other dimension, type, length, model, or the same rows twice.
        """
        for name, mine, theirs in (
            ("dimensions", self.dimension, other.dimension),
            ("numbers of type", self.dtype, other.dtype),
            ("model", self.model, other.model),
        ):
            if mine != theirs:
                raise InputError(f"references must have the same {name}, got {mine} and {theirs}; merge like with like")
        if self.is_unit != other.is_unit:
            raise InputError(
                "references must both have rows of length 1 or both not, got one of each; normalise both, or neither"
            )
        twice = {part.fingerprint for part in self.parts} & {part.fingerprint for part in other.parts}
        if twice:
            label = next(part.label for part in other.parts if part.fingerprint in twice)
            raise InputError(f"references must hold different rows, got {label} in both; merge each source once")
        parts = tuple(sorted((*self.parts, *other.parts), key=lambda part: part.start))
        notes = tuple(dict.fromkeys((*self.notes, *other.notes)))
        first, created = max(self.fitted, other.fitted), max(self.created, other.created)
        return replace(self, parts=parts, notes=notes, fitted=first, created=created)

    def row_label(self, number: int) -> tuple[str, int]:
        """Return the source of a row by its number, and the row's place in it."""
        part = max((part for part in self.parts if part.start <= number), key=lambda part: part.start)
        return part.label, number - part.start

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "space": self.space.labels(),
            "parts": [part.to_json() for part in self.parts],
            "rows": self.rows,
            "dimension": self.dimension,
            "dtype": self.dtype,
            "is_unit": self.is_unit,
            "role": self.role,
            "model": self.model,
            "fitted": self.fitted,
            "created": self.created,
            "notes": list(self.notes),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Origin:
        """Read what `to_json` wrote.

        Raises:
            InputError: if it is anything else.
        """
        try:
            parts, notes = data["parts"], data["notes"]
            _check(isinstance(parts, list) and 0 < len(parts) <= MOST_PARTS)
            _check(
                isinstance(notes, list) and len(notes) <= MOST_NOTES and all(isinstance(note, str) for note in notes)
            )
            found = cls(
                space=Space(**data["space"]),
                parts=tuple(Part.from_json(part) for part in parts),
                dimension=data["dimension"],
                dtype=data["dtype"],
                is_unit=data["is_unit"],
                role=data["role"],
                model=data["model"],
                fitted=data["fitted"],
                created=data["created"],
                notes=tuple(notes),
                versions=tuple(sorted((str(name), str(value)) for name, value in data["versions"].items())),
            )
            _check(all(map(is_label, found.space.labels().values())) and is_time(found.created))
            _check(is_whole(found.dimension) and found.dimension > 0 and is_whole(found.fitted))
            _check(isinstance(found.is_unit, bool) and all(isinstance(t, str) for t in (found.dtype, found.role)))
            _check(isinstance(found.model, str))
        except EmbedwatchError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError):
            raise _refusal() from None
        return found


def _check(held: object) -> None:
    if not held:
        raise _refusal()


def _refusal() -> InputError:
    return InputError("the manifest must say where the rows come from, got something else; create the reference again")
