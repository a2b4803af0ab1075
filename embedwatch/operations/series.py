"""Series of a rule test, minute by minute, and promtool's notation for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Literal

from embedwatch.operations.alerts import Signal

__all__ = ["STALE", "Played", "notation", "values"]

STALE: Final = "stale"
"""A scrape that failed, or a series that has ended."""
ABSENT: Final = "_"
SECONDS = 60
Played = float | Literal["stale", "_"]


def values(
    signal: Signal,
    is_bad: Callable[[int], bool],
    length: int,
    *,
    gaps: Collection[int] = (),
    end: int | None = None,
) -> list[Played]:
    """Return what a series shows at each minute.

    Args:
        signal: what it is.
        is_bad: whether the fault is there at a minute.
        length: number of minutes.
        gaps: minutes at which it cannot be scraped.
        end: minute from which on it is gone for good.
    """
    found: list[Played] = []
    for minute, value in enumerate(_course(signal, is_bad, length)):
        missing = minute in gaps or (end is not None and minute >= end)
        was_missing = bool(found) and isinstance(found[-1], str)
        found.append((ABSENT if was_missing or not found else STALE) if missing or value is None else value)
    return found


def _course(signal: Signal, is_bad: Callable[[int], bool], length: int) -> Iterator[float | None]:
    count, clock = 0, 0
    moment: float | None = None
    for minute in range(length):
        bad = is_bad(minute)
        count += bad
        clock = clock if bad else minute * SECONDS
        moment = float(minute * SECONDS) if bad else moment
        yield {
            "gauge": signal.faulty if bad else signal.healthy,
            "counter": float(count),
            "clock": float(clock),
            "moment": moment,
        }[signal.shape]


def notation(played: Sequence[Played]) -> str:
    """Return the series as promtool reads it: stretches of equal steps as `start+stepxtimes`.

    Example:
        >>> notation([0, 0, 0, 1, 2, 3, STALE, ABSENT, 7])
        '0+0x2 1+1x2 stale _ 7'
    """
    words, rest = [], list(played)
    while rest:
        run = _run(rest)
        first = rest[0]
        if isinstance(first, str) or run == 1:
            words.append(first if isinstance(first, str) else f"{first:g}")
        else:
            words.append(f"{first:g}+{_step(rest):g}x{run - 1}")
        del rest[:run]
    return " ".join(words)


def _run(played: Sequence[Played]) -> int:
    """Return how many values from the first on go up by the same step; two of them are a stretch only if equal."""
    numbers: list[float] = []
    for value in played:
        if isinstance(value, str):
            break
        numbers.append(value)
    if len(numbers) < 2:
        return 1
    step = numbers[1] - numbers[0]
    run = 2
    while run < len(numbers) and numbers[run] - numbers[run - 1] == step:
        run += 1
    return run if run > 2 or not step else 1


def _step(played: Sequence[Played]) -> float:
    first, second = played[:2]
    return 0.0 if isinstance(first, str) or isinstance(second, str) else second - first
