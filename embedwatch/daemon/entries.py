"""Entries: neighbouring parcels of rows become one, where they are of one sort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from embedwatch.batch import VectorBatch
from embedwatch.daemon.slots import Entry
from embedwatch.parcels import Parcel

__all__ = ["joined"]


def joined(entries: Sequence[Entry]) -> list[Entry]:
    """Join neighbouring rows of one sort: many small updates of statistics cost more than one."""
    found: list[list[Entry]] = []
    for entry in entries:
        if found and _alike(found[-1][-1], entry):
            found[-1].append(entry)
        else:
            found.append([entry])
    return [group[0] if len(group) == 1 else _join(group) for group in found]


def _alike(one: Entry, other: Entry) -> bool:
    """Return whether two parcels can be one batch with one provenance."""
    first, second = one.content, other.content
    if not isinstance(first, VectorBatch) or not isinstance(second, VectorBatch):
        return False
    return _sort(one.parcel, first) == _sort(other.parcel, second)


def _sort(parcel: Parcel, batch: VectorBatch) -> tuple[Any, ...]:
    columns = (batch.ids is None, batch.labels is None, batch.source, batch.segment)
    about = (parcel.step, parcel.fingerprint, parcel.notes, dict(parcel.coverage))
    return batch.rows.dtype, batch.dimension, *columns, *about


def _join(group: Sequence[Entry]) -> Entry:
    batches = [entry.content for entry in group if isinstance(entry.content, VectorBatch)]
    coverage = sum((Counter(entry.parcel.coverage) for entry in group), Counter())
    parcel = replace(group[-1].parcel, coverage=dict(coverage), rows=sum(map(len, batches)), payload=b"")
    return replace(group[-1], parcel=parcel, content=VectorBatch.concat(batches))
