"""What the laws of statistics are made with: examples, feeding, comparing, refusing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from hypothesis import strategies as st

from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Histogram
from embedwatch.core.statistic import Statistic
from embedwatch.testing.streams import Draw, Stream

__all__ = [
    "AnyStatistic",
    "LawViolation",
    "Stranger",
    "Values",
    "copy_of",
    "example",
    "fail",
    "fed_with",
    "feed",
    "refused",
    "same",
    "size_of",
    "stranger",
    "values_of",
]

AnyStatistic = Statistic[Any]
Values = dict[str, float | Histogram | None]


class LawViolation(AssertionError):
    """A Statistic broke a law."""


def fail(statistic: AnyStatistic, what: str) -> None:
    """Say that a law is broken."""
    raise LawViolation(f"{type(statistic).__name__} ({statistic.settings()}): {what}")


def example(statistic: type[AnyStatistic], draw: Draw) -> tuple[AnyStatistic, Stream]:
    """Draw one empty instance with its stream."""
    seed = draw(st.integers(0, 2**16))
    choices = list(statistic.examples(seed))
    if not choices:
        raise LawViolation(f"{statistic.__name__}.examples({seed}) must yield at least one instance, got none")
    empty, batches = choices[draw(st.integers(0, len(choices) - 1))]
    return empty, Stream(batches)


def feed(statistic: AnyStatistic, stream: Stream) -> None:
    """Let a Statistic see a stream."""
    for batch in stream.batches:
        statistic.update(batch)


def fed_with(empty: AnyStatistic, streams: Iterable[Stream]) -> AnyStatistic:
    """Return a fresh Statistic that saw some streams, one after another."""
    fed = empty.fresh()
    for stream in streams:
        feed(fed, stream)
    return fed


def values_of(statistic: AnyStatistic) -> Values:
    """Return what a Statistic measures, by key."""
    found: Values = {}
    for measurement in statistic.compute():
        if measurement.key in found:
            fail(statistic, f"{measurement.key} is delivered twice")
        value = measurement.value
        if isinstance(value, float) and not math.isfinite(value):
            fail(statistic, f"{measurement.key} is {value}; not enough data is None")
        found[measurement.key] = value
    return found


def same(
    statistic: AnyStatistic, found: Values, wanted: Mapping[str, Any], tolerance: Callable[[str], float], law: str
) -> None:
    """Require the same values within a tolerance."""
    for key, want in wanted.items():
        if key not in found:
            fail(statistic, f"{law}: {key} is missing")
        have = found[key]
        if isinstance(want, Histogram) and isinstance(have, Histogram):
            agree = have.counts == want.counts and math.isclose(have.sum, want.sum, rel_tol=1e-6, abs_tol=1e-6)
        elif want is None or have is None or isinstance(want, Histogram) or isinstance(have, Histogram):
            agree = want is have is None
        else:
            agree = abs(have - want) <= tolerance(key) * max(1.0, abs(want))
        if not agree:
            fail(statistic, f"{law}: {key} is {have!r}, must be {want!r}")


class Stranger:
    """Nothing that any Statistic could merge with."""


def stranger() -> Any:
    """Return what is no Statistic of this class."""
    return Stranger()


def refused(statistic: AnyStatistic, what: str, act: Callable[[], None], *words: str) -> None:
    """Require that something is refused, in words that name these."""
    try:
        act()
    except MergeError as error:
        if any(word not in str(error) for word in words):
            fail(statistic, f"refusal: {what} must name {words}, says {str(error)!r}")
        return
    fail(statistic, f"refusal: {what} must raise MergeError")


def copy_of(statistic: AnyStatistic) -> AnyStatistic:
    """Return a Statistic with the same state."""
    copy = statistic.fresh()
    copy.load_state_dict(statistic.state_dict())
    return copy


def size_of(value: Any) -> int:
    """Return the bytes that a value of a state takes."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(size_of(item) for item in value)
    return len(value) if isinstance(value, str) else 8
