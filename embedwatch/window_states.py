"""A closed Window as bytes: the states of its statistics in safetensors, their settings beside them as JSON."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import EmbedwatchError, InputError, MergeError
from embedwatch.core.measurement import Measurement
from embedwatch.core.registry import registered
from embedwatch.core.statistic import Statistic
from embedwatch.core.strict_json import strict_json
from embedwatch.large_bytes import Bytes, tensors_from, tensors_to_bytes
from embedwatch.parcel_fields import is_sound
from embedwatch.window import Window

__all__ = ["MOST_BYTES", "further_measurements", "read_tensors", "unsendable", "window_from", "window_to_bytes"]

MOST_BYTES = 256 << 20
"""Statistics that could grow beyond are not made. The largest by default, at D = 1,536, takes 20 MB."""
MOST_HEADER = 8 << 20
MOST_TIMES = 4
"""A whole number among settings may be so many times the default: time and memory grow with it."""
MOST_MEASUREMENTS = 4_096
NAME = "window"
SCHEMA = 1
AnyStatistic = Statistic[Any]


def unsendable(window: Window) -> list[str]:
    """Return the statistics whose settings are no plain values (frozen arrays), so that they stay where they are."""
    return [name for name, statistic in window.statistics.items() if not _is_plain(statistic.settings())]


def window_to_bytes(window: Window, more: tuple[Measurement, ...] = ()) -> bytes:
    """Return a window's statistics; of one that failed only its settings, since its state may lack rows.

    Args:
        window: closed.
        more: measurements of it that no Statistic delivers.
    """
    tensors: dict[str, Tensor] = {}
    described: dict[str, Any] = {}
    failed = set(window.failed)
    left_out = set(unsendable(window))
    for name, statistic in window.statistics.items():
        if name in left_out:
            continue
        state = {} if name in failed else statistic.state_dict()
        tensors |= {f"{name}/{key}": value.contiguous() for key, value in state.items() if isinstance(value, Tensor)}
        plain = {key: value for key, value in state.items() if not isinstance(value, Tensor)}
        described[name] = {"settings": statistic.settings(), "state": plain}
    content = {
        "schema": SCHEMA,
        "started": window.started,
        "failed": sorted(failed - left_out),
        "statistics": described,
        "more": [measurement.to_json() for measurement in more],
    }
    return tensors_to_bytes(tensors, {NAME: json.dumps(content, allow_nan=False)})


def window_from(
    data: Bytes, boundary: Boundary, *, rows: int, dimension: int | None, ended: float, limit: int = MOST_BYTES
) -> Window:
    """Return the window that `window_to_bytes` wrote.

    Statistics are made only if they are registered, and only after their settings were compared with the defaults;
    states are loaded only if all of them together can never take more than `limit` bytes.

    Raises:
        InputError: if it is anything else.
        MergeError: if a state does not fit its Statistic.
    """
    content, tensors = _content(data), read_tensors(data)
    described = _mapping(content.get("statistics"), "statistics")
    statistics = {name: _made(name, entry) for name, entry in described.items()}
    try:
        memory = sum(statistic.memory(dimension or 1) for statistic in statistics.values())
    except ArithmeticError:
        memory = limit + 1
    if memory > limit:
        raise InputError(
            f"statistics of a window must take at most {limit:,} bytes, got settings for more; use smaller ones"
        )
    failed = content.get("failed")
    if not isinstance(failed, list) or not set(map(repr, failed)) <= set(map(repr, statistics)):
        raise _refusal("a list of failed statistics that are in it", "an entry that is not")
    parts: dict[str, dict[str, Any]] = {name: {} for name in statistics}
    for key, value in tensors.items():
        name, _, entry = key.partition("/")
        if name not in parts:
            raise _refusal("tensors of its statistics alone", "another")
        parts[name][entry] = value
    window = Window(list(statistics.values()), boundary=boundary, started=_number(content.get("started")))
    for name, statistic in statistics.items():
        if name not in failed:
            _load(statistic, {**_mapping(described[name].get("state"), "state"), **parts[name]}, dimension)
    window.failed |= set(failed)
    window.rows, window.dimension, window.ended = rows, dimension, ended
    return window


def further_measurements(data: Bytes) -> tuple[Measurement, ...]:
    """Return the measurements beside those of statistics: what a sender knows of its window, and nobody can merge."""
    found = _content(data).get("more")
    if not isinstance(found, list) or len(found) > MOST_MEASUREMENTS:
        raise _refusal("a list of measurements", "something else")
    try:
        measurements = tuple(Measurement.from_json(item) for item in found)
        sound = all(map(is_sound, measurements))
    except (ArithmeticError, AttributeError, EmbedwatchError, KeyError, RecursionError, TypeError, ValueError):
        sound = False
    if not sound:
        raise _refusal("measurements as embedwatch writes them", "others")
    return measurements


def read_tensors(data: Bytes) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, in memory of their own.

    Raises:
        InputError: if it is damaged or of another kind.
    """
    header = _header(data)
    try:
        return tensors_from(data, header)
    except (RuntimeError, ValueError):
        raise _refusal("safetensors", "bytes that are damaged") from None


def read_metadata(data: Bytes, name: str) -> dict[str, Any]:
    """Return one JSON text from the metadata of a safetensors file."""
    text = _mapping(_header(data).get("__metadata__"), "metadata").get(name)
    if not isinstance(text, str):
        raise _refusal(f"metadata called {name!r}", "none")
    return _mapping(strict_json(text, "the metadata of a parcel"), "metadata")


def _header(data: Bytes) -> dict[str, Any]:
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    if not 0 < length <= min(MOST_HEADER, len(data) - 8):
        raise _refusal(f"safetensors with a header of at most {MOST_HEADER:,} bytes", "another length")
    return _mapping(strict_json(bytes(data[8 : 8 + length]), "the header of a parcel's tensors"), "header")


def _content(data: Bytes) -> dict[str, Any]:
    content = read_metadata(data, NAME)
    if content.get("schema") != SCHEMA:
        raise _refusal(f"a window of schema {SCHEMA}", "another; use one version of embedwatch on both sides")
    return content


def _made(name: str, entry: Any) -> AnyStatistic:
    """Return an empty Statistic of these settings."""
    kinds = registered(Statistic)
    if name not in kinds:
        raise InputError("statistics of a parcel must be registered here, got another; install the same plug-ins")
    settings = _mapping(_mapping(entry, "statistic").get("settings"), "settings")
    try:
        defaults = kinds[name]().settings()
        if settings != defaults:
            _check_settings(name, settings, defaults)
        return kinds[name](**settings)
    except InputError:
        raise
    except Exception as error:  # a plug-in of anybody's: whatever it says of settings that came over the network
        raise InputError(f"settings of {name} must make one, got others; use those of this version") from error


def _check_settings(name: str, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        default: Any = defaults.get(key)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if key not in defaults or type(value) is not type(default) or isinstance(value, list | dict):
            raise InputError(f"settings of {name} must be of the kinds it has by default; use those of this version")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"settings of {name} must be finite, got others; use those of this version")
        if whole and default and not abs(value) <= MOST_TIMES * abs(default):
            raise InputError(
                f"settings of {name} must be at most {MOST_TIMES} times the default, got more; use smaller ones"
            )


def _load(statistic: AnyStatistic, state: Mapping[str, Any], dimension: int | None) -> None:
    if statistic.consumes == "vectors" and state.get("dimension") not in (None, dimension):
        raise MergeError(f"state of {statistic.name} must have the dimension of its window; it is damaged")
    try:
        statistic.load_state_dict(state)
    except EmbedwatchError as error:
        raise MergeError(f"state of {statistic.name} must be one that it gave; it is damaged") from error
    except Exception as error:  # a plug-in of anybody's, given a state of anybody's
        raise MergeError(f"state of {statistic.name} must be one that it gave; it is damaged") from error


def _is_plain(settings: Mapping[str, Any]) -> bool:
    return all(value is None or isinstance(value, bool | int | float | str) for value in settings.values())


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refusal("a time as a number", "something else")
    return float(value)


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refusal(f"an object as {what}", "something else")
    return value


def _refusal(want: str, got: str) -> InputError:
    return InputError(f"the payload of a parcel must hold {want}, got {got}; send it again")
