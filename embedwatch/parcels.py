"""Parcels: what one sender has for one Space, as bytes that travel and are stored. No HTTP."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import ROLES, Snapshot, Space
from embedwatch.core.strict_json import strict_json
from embedwatch.large_bytes import Bytes, joined, tensors_to_bytes
from embedwatch.parcel_fields import (
    are_notes,
    is_coverage,
    is_dimension,
    is_label,
    is_sound,
    is_space,
    is_time,
    is_whole,
)
from embedwatch.window import Window
from embedwatch.window_states import (
    MOST_BYTES,
    further_measurements,
    read_metadata,
    read_tensors,
    unsendable,
    window_from,
    window_to_bytes,
)

__all__ = [
    "Parcel",
    "ParcelKind",
    "open_batch",
    "open_more",
    "open_snapshot",
    "open_window",
    "parcel_of_batch",
    "parcel_of_snapshot",
    "parcel_of_window",
]

MAGIC = b"EWPARCEL"
SCHEMA = 1
PREFIX = struct.Struct("<8sI")
"""The magic bytes, and the length of the JSON header that follows."""
MOST_HEADER = 1 << 20
MOST_SNAPSHOT = 4 << 20
"""Bytes of a Snapshot, which has some 11 kB; parsing more would hold all threads up."""
ROWS = "rows"
"""Name of the metadata that describes rows."""

ParcelKind = Literal["rows", "state", "snapshot"]


@dataclass(frozen=True)
class Parcel:
    """What one sender has for one Space: rows, the states of a closed window, or a Snapshot.

    Args:
        space: what it is about.
        role: what sort of place that is, one of `ROLES`; empty where it is not known.
        kind: what the payload is.
        rows: rows (or steps) that it rests on.
        dimension: D of the rows, where there is one.
        sender: who sends; unique for as long as anybody remembers its numbers.
        number: rises with each parcel of a sender, so that a repeated delivery is known and does no harm.
        time: seconds since the epoch at which the window closed, or the rows came.
        step: training step, where there is one.
        fingerprint: short hash of the model or source.
        coverage: what could be observed of what should be.
        notes: sentences that a reader of the numbers must know.
        payload: rows and states as safetensors, a Snapshot as JSON; of a parcel that was read, a view of its bytes.

    Raises:
        InputError: if a field is not what it says here, or longer than anything sensible.

    Example:
        >>> parcel = Parcel(Space("m", "p"), "", "snapshot", 3, None, "host-1", 0, 1.7e9, payload=b"{}")
        >>> Parcel.from_bytes(parcel.to_bytes()) == parcel
        True
    """

    space: Space
    role: str
    kind: ParcelKind
    rows: int
    dimension: int | None
    sender: str
    number: int
    time: float
    step: int | None = None
    fingerprint: str = ""
    coverage: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    reference: str = ""
    payload: Bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        space = self.space
        _require("space", "labels of a few words", all(map(is_label, (space.model, space.place, space.segment))))
        _require("space", "labels of a few words", space.head is None or is_label(space.head))
        _require("role", "a role of a place, or empty", isinstance(self.role, str) and self.role in ("", *ROLES))
        _require("kind", "rows, state or snapshot", isinstance(self.kind, str) and self.kind in get_args(ParcelKind))
        _require("rows", "a whole number from 0", is_whole(self.rows))
        _require("dimension", "a whole number, or null", is_dimension(self.dimension))
        _require("sender", "a word", is_label(self.sender) and bool(self.sender))
        _require("number", "a whole number from 0", is_whole(self.number))
        _require("time", "seconds since the epoch", is_time(self.time))
        _require("step", "a whole number, or null", self.step is None or is_whole(self.step))
        _require("fingerprint", "a short text", is_label(self.fingerprint))
        _require("coverage", "a few whole numbers by name", is_coverage(self.coverage))
        _require("notes", "a few sentences", are_notes(self.notes))
        _require("reference", "a short text", is_label(self.reference))

    def to_bytes(self) -> bytes:
        """Return it as bytes: a JSON header, then the payload, whose length and digest the header tells."""
        header = {
            "schema": SCHEMA,
            "space": self.space.labels(),
            **{name: getattr(self, name) for name in FIELDS},
            "coverage": dict(self.coverage),
            "notes": list(self.notes),
            **({"reference": self.reference} if self.reference else {}),
            "bytes": len(self.payload),
            "digest": _digest(self.payload),
        }
        text = json.dumps(header, allow_nan=False).encode()
        return joined([PREFIX.pack(MAGIC, len(text)), text, self.payload])

    @classmethod
    def from_bytes(cls, data: bytes) -> Parcel:
        """Read what `to_bytes` wrote; the payload is compared with its digest, and not opened.

        Raises:
            InputError: if it is anything else.
        """
        magic, length = PREFIX.unpack_from(data) if len(data) >= PREFIX.size else (b"", 0)
        _require("bytes", f"a parcel of schema {SCHEMA}", magic == MAGIC)
        start = PREFIX.size + length
        _require("header", f"at most {MOST_HEADER:,} bytes, all there", length <= MOST_HEADER and start <= len(data))
        header = strict_json(data[PREFIX.size : start], "the header of a parcel")
        expected = {"schema", "space", *FIELDS, "coverage", "notes", "bytes", "digest"}
        known = isinstance(header, dict) and header.keys() - {"reference"} == expected
        _require("header", f"that of schema {SCHEMA}", known)
        _require("schema", str(SCHEMA), header["schema"] == SCHEMA)
        payload = memoryview(data)[start:]
        _require("payload", "as long as its header says", header["bytes"] == len(payload))
        _require("payload", "that of its digest", header["digest"] == _digest(payload))
        labels, notes = header["space"], header["notes"]
        _require("space", "model, place, segment, and perhaps head", isinstance(labels, dict) and is_space(labels))
        _require("notes", "a few sentences", isinstance(notes, list))
        plain = {name: header[name] for name in FIELDS}
        plain["time"] = float(plain["time"]) if is_time(plain["time"]) else plain["time"]
        mark = header.get("reference", "")
        return cls(
            Space(**labels), **plain, coverage=header["coverage"], notes=tuple(notes), reference=mark, payload=payload
        )


FIELDS = ("role", "kind", "rows", "dimension", "sender", "number", "time", "step", "fingerprint")
"""Fields whose values JSON has itself."""


def parcel_of_window(window: Window, snapshot: Snapshot, *, sender: str, number: int) -> Parcel:
    """Return the states of a closed window, with the provenance of the Snapshot that was made of it.

    Measurements of the Snapshot that no such state delivers travel beside them (`open_more`): those of statistics that
    compare with a reference, too, whose arrays stay where the rows are.
    """
    left_out = unsendable(window)
    travelling = [statistic for name, statistic in window.statistics.items() if name not in left_out]
    delivered = {metric.name for statistic in travelling for metric in statistic.metrics}
    more = tuple(measurement for measurement in snapshot if measurement.name not in delivered)
    parcel = _parcel(snapshot, "state", window_to_bytes(window, more), sender=sender, number=number)
    notes = [f"{', '.join(left_out)} stayed where the rows are: such settings do not travel."] if left_out else []
    return replace(parcel, rows=window.rows, dimension=window.dimension, notes=(*parcel.notes, *notes))


def parcel_of_snapshot(snapshot: Snapshot, *, sender: str, number: int) -> Parcel:
    """Return a Snapshot that no window stands behind: a report, or an audit."""
    payload = json.dumps(snapshot.to_json(), allow_nan=False).encode()
    return _parcel(snapshot, "snapshot", payload, sender=sender, number=number)


def parcel_of_batch(
    batch: VectorBatch,
    space: Space,
    *,
    role: str,
    sender: str,
    number: int,
    time: float,
    step: int | None = None,
    fingerprint: str = "",
    notes: Sequence[str] = (),
) -> Parcel:
    """Return rows, with their ids and groups."""
    columns = {"rows": batch.rows, "ids": batch.ids, "labels": batch.labels}
    tensors = {name: column for name, column in columns.items() if column is not None}
    about = {"groups": list(batch.groups), "source": batch.source, "segment": batch.segment}
    payload = tensors_to_bytes(tensors, {ROWS: json.dumps(about)})
    return Parcel(
        space, role, "rows", len(batch), batch.dimension, sender, number, time, step, fingerprint,
        notes=tuple(notes), payload=payload,
    )  # fmt: skip


def open_window(parcel: Parcel, boundary: Boundary | None = None, *, limit: int = MOST_BYTES) -> Window:
    """Return the window in a parcel: registered statistics alone, that can never take more than `limit` bytes.

    Raises:
        InputError: if it is no window, or one that is not from here.
        MergeError: if a state does not fit its Statistic.
    """
    _require("kind", "state", parcel.kind == "state")
    return window_from(
        parcel.payload,
        boundary or Boundary(),
        rows=parcel.rows,
        dimension=parcel.dimension,
        ended=parcel.time,
        limit=limit,
    )


def open_more(parcel: Parcel) -> tuple[Measurement, ...]:
    """Return the measurements of a window that no Statistic delivers: those of this sender, which do not merge."""
    _require("kind", "state", parcel.kind == "state")
    return further_measurements(parcel.payload)


def open_batch(parcel: Parcel) -> VectorBatch:
    """Return the rows in a parcel.

    Raises:
        InputError: if they are none, or not those that the parcel says.
    """
    _require("kind", "rows", parcel.kind == "rows")
    tensors, about = read_tensors(parcel.payload), read_metadata(parcel.payload, ROWS)
    groups: Any = about.get("groups")
    texts = [about.get("source"), about.get("segment")]
    _require("payload", "rows, perhaps ids and labels", {"rows"} <= tensors.keys() <= {"rows", "ids", "labels"})
    _require("groups", "a list of texts", isinstance(groups, list) and all(isinstance(group, str) for group in groups))
    _require("source", "a text, like the segment", all(isinstance(text, str) for text in texts))
    _require("rows", "float16, bfloat16, float32 or float64", tensors["rows"].dtype in FLOATS)
    try:
        batch = VectorBatch(
            tensors["rows"], tensors.get("ids"), tensors.get("labels"), groups, str(texts[0]), str(texts[1])
        )
    except EmbedwatchError:
        raise _refusal("payload", "rows (N, D), with ids and labels of one length") from None
    _require("rows", "as many as it says", (len(batch), batch.dimension) == (parcel.rows, parcel.dimension))
    _require("labels", "at least -1", batch.labels is None or bool((batch.labels >= -1).all()))
    return batch


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def open_snapshot(parcel: Parcel) -> Snapshot:
    """Return the Snapshot in a parcel.

    Raises:
        InputError: if it is none, or of another Space than the parcel.
    """
    _require("kind", "snapshot", parcel.kind == "snapshot")
    _require("payload", f"at most {MOST_SNAPSHOT:,} bytes of JSON", len(parcel.payload) <= MOST_SNAPSHOT)
    data = strict_json(bytes(parcel.payload), "the payload of a parcel")
    try:
        snapshot = Snapshot.from_json(data)
        again = _parcel(snapshot, "snapshot", parcel.payload, sender=parcel.sender, number=parcel.number)
        sound = all(map(is_sound, snapshot))
    except (EmbedwatchError, TypeError, AttributeError, ValueError):
        raise _refusal("payload", "a Snapshot as embedwatch writes it") from None
    _require("payload", "a Snapshot with the provenance of its parcel", sound and again == parcel)
    return snapshot


def _parcel(snapshot: Snapshot, kind: ParcelKind, payload: Bytes, *, sender: str, number: int) -> Parcel:
    """Return a parcel with the Space and provenance of a Snapshot."""
    about = snapshot.provenance
    return Parcel(
        snapshot.space,
        about.role,
        kind,
        about.rows,
        about.dimension,
        sender,
        number,
        about.time,
        about.step,
        about.fingerprint,
        dict(about.coverage),
        tuple(about.notes),
        about.reference,
        payload,
    )


def _digest(payload: Bytes) -> str:
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


def _require(name: str, what: str, held: object) -> None:
    if not held:
        raise _refusal(name, what)


def _refusal(name: str, what: str) -> InputError:
    return InputError(f"`{name}` of a parcel must be {what}, got something else; send what `to_bytes` gives")
