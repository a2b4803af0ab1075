"""A reference as a folder: a manifest in JSON, arrays in safetensors, each file with its hash. Never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.hashed_folder import MOST_BYTES, HashedFolder
from embedwatch.large_bytes import tensors_to_bytes
from embedwatch.references.fitting import compared_statistics
from embedwatch.references.kept_rows import KeptRows
from embedwatch.references.origin import Origin
from embedwatch.references.reference import Reference
from embedwatch.sketches import ComparedStatistic, Frozen
from embedwatch.window_states import read_metadata, read_tensors, window_from, window_to_bytes

__all__ = ["FOLDER", "MANIFEST", "is_reference", "load_reference", "save_reference"]

MANIFEST = "reference.json"
MAPS, CALIBRATING, WHOLE, ROWS = "maps.safetensors", "calibrating.safetensors", "whole.safetensors", "rows.safetensors"
FILES = (MAPS, CALIBRATING, WHOLE)
STATES, NAMES = "states", "names"
FOLDER = HashedFolder(
    manifest=MANIFEST,
    noun="a reference",
    command="embedwatch reference create",
    usage="embedwatch reference create SOURCE -o DIR",
    again="create it again",
)


def is_reference(path: Path) -> bool:
    """Return whether there is a reference."""
    return FOLDER.is_there(path)


def save_reference(reference: Reference, path: Path, *, replace: bool = False) -> None:
    """Write a reference under another name, then rename it."""
    FOLDER.check_target(path, replace=replace)
    content = {
        MAPS: _pack({name: dict(arrays) for name, arrays in reference.maps.items()}, {}),
        CALIBRATING: _states(reference.calibrating, with_rows=reference.kept is not None),
        WHOLE: window_to_bytes(reference.whole),
    }
    if reference.kept is not None:
        kept = reference.kept
        arrays = {"keys": kept.keys, "numbers": kept.numbers, "rows": kept.rows}
        content[ROWS] = tensors_to_bytes(
            {name: array.cpu().contiguous() for name, array in arrays.items()},
            {NAMES: json.dumps({str(number): name for number, name in kept.names.items()})},
        )
    about = {
        "origin": reference.origin.to_json(),
        "whole": {"rows": reference.whole.rows, "ended": reference.whole.ended},
    }
    FOLDER.write(path, about, content, replace=replace)


def load_reference(path: Path) -> Reference:
    """Read a reference; nothing in it is believed before it is checked."""
    FOLDER.check_source(path)
    try:
        return _load(path)
    except EmbedwatchError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path} must be readable, got {error.strerror}; check the folder") from error


def _load(path: Path) -> Reference:
    manifest, data = FOLDER.read(path, needed=FILES, known=(ROWS,))
    origin = Origin.from_json(_mapping(manifest, "origin"))
    maps = {name: Frozen(arrays) for name, arrays in _unpack(read_tensors(data[MAPS])).items()}
    kinds = compared_statistics()
    states = read_metadata(data[CALIBRATING], STATES)
    tensors = _unpack(read_tensors(data[CALIBRATING]))
    calibrating: dict[str, ComparedStatistic] = {}
    for name in sorted(maps.keys() & kinds.keys()):
        calibrating[name] = _calibrating(kinds[name], maps[name], {**_mapping(states, name), **tensors.get(name, {})})
    kept = _kept(data[ROWS], origin) if ROWS in data else None
    whole = _mapping(manifest, "whole")
    window = window_from(
        data[WHOLE],
        Boundary(),
        rows=_whole_number(whole, "rows"),
        dimension=origin.dimension,
        ended=_number(whole, "ended"),
        limit=MOST_BYTES,
    )
    left_out = tuple(sorted(maps.keys() - kinds.keys()))
    found = {name: maps[name] for name in calibrating}
    if not found:
        raise _damaged("no statistic that is known here")
    return Reference(origin, found, calibrating, window, kept, left_out)


def _calibrating(kind: type[ComparedStatistic], arrays: Frozen, state: Mapping[str, Any]) -> ComparedStatistic:
    try:
        statistic = kind(frozen=arrays)
        statistic.load_state_dict(state)
        statistic.as_reference()
    except EmbedwatchError:
        raise
    except Exception as error:  # arrays of anybody's
        raise InputError(f"the arrays of {kind.name} must fit one another, got others; create it again") from error
    return statistic


def _kept(data: bytes, origin: Origin) -> KeptRows:
    arrays, names = read_tensors(data), read_metadata(data, NAMES)
    if arrays.keys() != {"keys", "numbers", "rows"} or not all(isinstance(name, str) for name in names.values()):
        raise _damaged(ROWS)
    try:
        known = {int(number): name for number, name in names.items()}
    except ValueError:
        raise _damaged(ROWS) from None
    kept = KeptRows(arrays["keys"], arrays["numbers"], arrays["rows"], known)
    if kept.rows.shape[1] != origin.dimension:
        raise _damaged(ROWS)
    return kept


def _states(calibrating: Mapping[str, ComparedStatistic], *, with_rows: bool) -> bytes:
    tensors: dict[str, dict[str, Tensor]] = {}
    plain: dict[str, dict[str, Any]] = {}
    for name, statistic in calibrating.items():
        state = statistic.state_dict() if with_rows else statistic.state_without_rows()
        tensors[name] = {key: value for key, value in state.items() if isinstance(value, Tensor)}
        plain[name] = {key: value for key, value in state.items() if not isinstance(value, Tensor)}
    return _pack(tensors, {STATES: json.dumps(plain, allow_nan=False)})


def _pack(groups: Mapping[str, Mapping[str, Tensor]], metadata: Mapping[str, str]) -> bytes:
    flat = {f"{group}/{name}": array.contiguous() for group, arrays in groups.items() for name, array in arrays.items()}
    return tensors_to_bytes(flat, metadata)


def _unpack(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for key, array in tensors.items():
        group, _, name = key.partition("/")
        found.setdefault(group, {})[name] = array
    return found


def _mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    if not isinstance(found, dict):
        raise _damaged(name)
    return found


def _whole_number(data: Mapping[str, Any], name: str) -> int:
    found = data.get(name)
    if type(found) is not int or found < 0:
        raise _damaged(name)
    return found


def _number(data: Mapping[str, Any], name: str) -> float:
    found = data.get(name)
    if type(found) not in (int, float):
        raise _damaged(name)
    return float(found)  # type: ignore[arg-type]


def _damaged(what: str) -> InputError:
    return InputError(f"the reference is damaged: {what}; copy it again, or create it again")
