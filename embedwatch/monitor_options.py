"""Options of a Monitor: what fits no model is refused before anything is watched."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, get_args

from embedwatch.calibration import Budget
from embedwatch.core.boundary import OnError
from embedwatch.core.errors import UsageError
from embedwatch.core.sink import Sink

__all__ = ["check_options", "listed", "steps_done"]

LONGEST_NAME = 200


def check_options(
    *,
    every: object,
    rows: object,
    window: object,
    budget: object,
    seed: object,
    step: object,
    on_error: object,
    attention: object,
    attention_every: object,
    attention_layers: object,
    alarms: Any,
    name: object = None,
) -> None:
    """Refuse what fits no model.

    Raises:
        UsageError: if one is not what it must be.
    """
    for option, value in (("every", every), ("rows", rows), ("window", window)):
        if not _is_whole(value, 1):
            raise UsageError(
                f"`{option}` must be a whole number of at least 1, got {value!r}; 10, 256 and 100 are usual"
            )
    for option, value in (("seed", seed), ("step", step)):
        if not _is_whole(value, 0):
            raise UsageError(f"`{option}` must be a whole number of at least 0, got {value!r}; 0 is usual")
    for option, value, usual in (("attention_every", attention_every, 50), ("attention_layers", attention_layers, 8)):
        if not _is_whole(value, 1):
            raise UsageError(f"`{option}` must be a whole number of at least 1, got {value!r}; {usual} is usual")
    if not _is_whole(attention, 0):
        raise UsageError(f"`attention` must be a whole number of at least 0, got {attention!r}; 16 is usual, 0 none")
    if on_error not in get_args(OnError):
        raise UsageError(f"`on_error` must be one of {', '.join(get_args(OnError))}, got {on_error!r}; count is usual")
    is_share = isinstance(budget, (int, float)) and not isinstance(budget, bool) and 0 < budget <= 1
    if budget is not None and not is_share:
        raise UsageError(f"`budget` must be above 0 and at most 1, got {budget!r}; 0.01 is one percent")
    Budget.parse(alarms, name="alarms")
    if name is not None and not (isinstance(name, str) and name.isprintable() and len(name) <= LONGEST_NAME):
        raise UsageError(
            f"`name` must be a text of at most {LONGEST_NAME} characters in one line, got {name!r:.60}; shorten it"
        )


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def steps_done(step: Any) -> int:
    """Return a number of steps as an int, or refuse it."""
    try:
        done = operator.index(step)
    except TypeError:
        done = -1
    if done < 0:
        raise UsageError(f"`step` must be a whole number of at least 0, got {step!r}; give the number of steps done")
    return done


def listed(name: str, given: Any) -> list[Any]:
    """Return what is given as a list; one text counts as one."""
    if isinstance(given, (str, Sink)):
        return [given]
    kinds = (str, Sink) if name == "sinks" else (str,)
    found = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(each, kinds) for each in found):
        raise UsageError(f"`{name}` must be a list of names, got {given!r}; `embedwatch list` shows all")
    return found
