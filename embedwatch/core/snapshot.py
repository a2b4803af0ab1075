"""Space: what is judged as one. Snapshot: all its measurements at one time, with provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from embedwatch.core.errors import InputError
from embedwatch.core.measurement import Measurement

__all__ = ["OF_MODEL", "ROLES", "SCHEMA", "Provenance", "Snapshot", "Space"]

SCHEMA = 1
"""Version of the JSON that a Snapshot writes. It grows when a field changes its meaning or goes away."""
ROLES = {
    "vectors": "recorded vectors",
    "table": "rows of an embedding table",
    "token": "outputs of the token embedding",
    "embedding": "what enters the first layer: tokens with their positions",
    "hidden": "outputs of a layer inside the model",
    "pooled": "one vector for each text or image",
    "attention": "sampled rows of attention of one layer",
    "tokens": "the rows of a table, token by token, through time",
    "training": "scalars of training steps",
    "watching": "what a Monitor sees, misses and costs",
    "positions": "how a model tells places in a text apart",
    "scale": "the size of what enters a model and of what leaves it",
    "vocabulary": "the tokens of a model, as its tables hold them",
    "meaning": "groups of words in a space: what belongs together, and what does not",
    "layers": "the layers of a model: their weights and normalisations, and what flows through them",
    "generation": "texts that a model wrote",
    "pairs": "the same items in two spaces",
    "index": "an index that vectors are searched in",
}
"""What sort of place a Space is."""
OF_MODEL = ("positions", "scale", "vocabulary", "meaning", "layers", "generation")
"""Roles of places that tell of a model itself, and not of rows: it is examined at its start and at checkpoints."""


@dataclass(frozen=True, slots=True, order=True)
class Space:
    """What is judged as one: a model (or source) × a place in it × a segment.

    Example:
        >>> str(Space("all-MiniLM-L6-v2", "token_table"))
        'all-MiniLM-L6-v2/token_table'
        >>> str(Space("faq", "pooled", segment="de"))
        'faq/pooled/segment=de'
    """

    model: str
    place: str
    segment: str = "all"
    head: str | None = None

    def __str__(self) -> str:
        segment = "" if self.segment == "all" else f"/segment={self.segment}"
        return f"{self.model}/{self.place}{segment}" + ("" if self.head is None else f"/head={self.head}")

    def labels(self) -> dict[str, str]:
        """Return the labels that identify the space; `head` only where it is set."""
        labels = {"model": self.model, "place": self.place, "segment": self.segment}
        return labels if self.head is None else {**labels, "head": self.head}


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a Snapshot comes from.

    Args:
        time: seconds since the epoch at which the window closed.
        rows: rows (or steps) that the measurements rest on.
        dimension: D of the rows, where there is one.
        step: training step, where there is one.
        fingerprint: short hash of the model or source.
        coverage: places expected and seen, or bytes and rows read: what could be observed of what should be.
        versions: of embedwatch and of the libraries that computed.
        notes: sentences that a reader of the numbers must know (how texts were pooled, what was left out).
        role: what sort of place it is, one of `ROLES`; empty where it is not known. Some checks hold for some roles.
        reference: fingerprint of the reference that rows were compared with; empty where there was none.
        serving: whether `step` counts the forward passes of a model that serves, and not the steps of a training.
    """

    time: float
    rows: int
    dimension: int | None = None
    step: int | None = None
    fingerprint: str = ""
    coverage: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    role: str = ""
    reference: str = ""
    serving: bool = False

    @property
    def training_step(self) -> int | None:
        """The step of a training; `None` in serving, and where no step is known."""
        return None if self.serving else self.step

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; the time also as RFC 3339 text."""
        return {
            "time": self.time,
            "time_text": datetime.fromtimestamp(self.time, timezone.utc).isoformat(timespec="seconds"),
            "rows": self.rows,
            "dimension": self.dimension,
            "step": self.step,
            "fingerprint": self.fingerprint,
            "coverage": dict(self.coverage),
            "versions": dict(self.versions),
            "notes": list(self.notes),
            "role": self.role,
            **({"reference": self.reference} if self.reference else {}),
            **({"serving": True} if self.serving else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Provenance:
        """Read what `to_json` wrote."""
        return cls(
            time=_time(data["time"]),
            rows=int(data["rows"]),
            dimension=data["dimension"],
            step=data["step"],
            fingerprint=data["fingerprint"],
            coverage=dict(data["coverage"]),
            versions=dict(data["versions"]),
            notes=tuple(data["notes"]),
            role=str(data.get("role", "")),
            reference=str(data.get("reference", "")),
            serving=bool(data.get("serving", False)),
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All measurements of one Space at one time. Frozen; reads and writes JSON."""

    space: Space
    measurements: tuple[Measurement, ...]
    provenance: Provenance

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    def get(self, name: str, /, **labels: str) -> Measurement | None:
        """Return the measurement of that name and labels, or `None` where there is none."""
        for measurement in self.measurements:
            if measurement.name == name and (not labels or dict(measurement.labels) == labels):
                return measurement
        return None

    def number(self, name: str, /, **labels: str) -> float | None:
        """Return its number, or `None` where it is missing, a histogram, or rests on too little data."""
        measurement = self.get(name, **labels)
        return None if measurement is None else measurement.number

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": SCHEMA,
            "space": self.space.labels(),
            "provenance": self.provenance.to_json(),
            "measurements": [measurement.to_json() for measurement in self.measurements],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str) -> Snapshot:
        """Read what `to_json` wrote, as a mapping or as text.

        Raises:
            InputError: if it is not JSON, not a Snapshot, or of a schema that this version does not know.
        """
        try:
            fields = json.loads(data) if isinstance(data, str) else data
            if fields["schema"] != SCHEMA:
                raise InputError(
                    f"snapshot schema must be {SCHEMA}, got {fields['schema']!r}; use the version that wrote it"
                )
            return cls(
                Space(**fields["space"]),
                tuple(Measurement.from_json(item) for item in fields["measurements"]),
                Provenance.from_json(fields["provenance"]),
            )
        except InputError:
            raise
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise InputError(f"not a snapshot: {error!r}; give the JSON that embedwatch wrote") from error


def _time(seconds: float) -> float:
    """Return seconds since the epoch as they were written, to the last bit, if a calendar can show them."""
    datetime.fromtimestamp(seconds, timezone.utc)
    return float(seconds)
