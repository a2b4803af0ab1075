"""What the fields of a parcel may hold: parcels come over networks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from embedwatch.core.measurement import Histogram, Measurement

__all__ = ["are_notes", "is_coverage", "is_dimension", "is_label", "is_sound", "is_space", "is_time", "is_whole"]

MOST_DIMENSION = 1 << 20
MOST_WHOLE = (1 << 63) - 1
MOST_LABEL, MOST_NOTE, MOST_ENTRIES = 512, 4_096, 256
"""Characters of a label, characters of a note, and entries of a list or mapping."""
LATEST = 253_402_300_799.0
"""The end of the year 9999: later times have no text."""


def is_text(value: object, most: int) -> bool:
    """Whether it is a text of at most so many characters, all of which Unicode can write."""
    if not isinstance(value, str) or len(value) > most:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def is_label(value: object) -> bool:
    """Whether it can name something."""
    return is_text(value, MOST_LABEL)


def is_whole(value: object) -> bool:
    """Whether it is a whole number from 0 that an int64 holds."""
    return type(value) is int and 0 <= value <= MOST_WHOLE


def is_dimension(value: object) -> bool:
    """Whether it is D of rows, or nothing."""
    return value is None or (type(value) is int and 0 < value <= MOST_DIMENSION)


def is_time(value: object) -> bool:
    """Whether it is a time in seconds since the epoch that a calendar has."""
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= LATEST  # type: ignore[arg-type, operator]


def is_space(labels: Mapping[str, Any]) -> bool:
    """Whether these are the labels of a Space."""
    return {"model", "place", "segment"} <= labels.keys() <= {"model", "place", "segment", "head"}


def is_coverage(value: object) -> bool:
    """Whether it holds a few whole numbers by name."""
    if not isinstance(value, Mapping) or len(value) > MOST_ENTRIES:
        return False
    return all(is_label(name) and is_whole(number) for name, number in value.items())


def are_notes(notes: object) -> bool:
    """Whether these are a few sentences."""
    if not isinstance(notes, tuple) or len(notes) > MOST_ENTRIES:
        return False
    return all(is_text(note, MOST_NOTE) for note in notes)


def is_sound(measurement: Measurement) -> bool:
    """Whether the texts of a measurement are texts, and its numbers numbers."""
    metric, error = measurement.metric, measurement.error
    texts = (metric.help, metric.unit, metric.healthy, *measurement.labels, *measurement.labels.values())
    numbers = [error] if error is not None else []
    if isinstance(measurement.value, Histogram):
        numbers += [*measurement.value.bounds, measurement.value.sum]
        if not all(map(is_whole, measurement.value.counts)):
            return False
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        return False
    return all(is_text(text, MOST_NOTE) for text in texts) and type(metric.digits) is int
