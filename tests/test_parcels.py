"""Parcels: what is put in comes out, merges like the rows themselves, and a forged one does no harm."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import safetensors.torch
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError, MergeError
from embedwatch.core.measurement import Metric
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Space
from embedwatch.core.statistic import Statistic
from embedwatch.parcels import (
    Parcel,
    ParcelKind,
    open_batch,
    open_more,
    open_snapshot,
    open_window,
    parcel_of_batch,
    parcel_of_snapshot,
    parcel_of_window,
)
from embedwatch.testing import hostile_snapshots
from embedwatch.window import Window
from tests.daemon.parcels import read_parcel

SPACE = Space("m", "p", "de", head="3")
STATISTICS = {name: kind for name, kind in registered(Statistic).items() if not kind.needs_reference}


def window_of(batches: list[Any], *statistics: Statistic[Any]) -> Window:
    window = Window([statistic.fresh() for statistic in statistics], started=1.0)
    for batch in batches:
        window.update(batch)
    window.close(5.0)
    assert window.boundary.errors == {}
    return window


def sent(window: Window, *, number: int = 0) -> Parcel:
    snapshot = window.snapshot(SPACE, step=3, coverage={"places_seen": 2}, notes=["It is so."], role="hidden")
    return Parcel.from_bytes(parcel_of_window(window, snapshot, sender="s", number=number).to_bytes())


def rows(count: int = 40, dimension: int = 6) -> VectorBatch:
    values = torch.randn(count, dimension, generator=torch.Generator().manual_seed(count))
    return VectorBatch(values, torch.arange(count), torch.arange(count) % 3, ["a", "b", "ü"], source="s")


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_travels_and_merges_in_any_order(name: str) -> None:
    for example, batches in STATISTICS[name].examples(3):
        parcels = [sent(window_of([batch], example), number=number) for number, batch in enumerate(batches)]
        whole = {
            measurement.key: measurement.number for measurement in window_of(list(batches), example).measurements()
        }
        for seed in range(3):
            order = random.Random(seed).sample(parcels, len(parcels))
            merged = open_window(order[0])
            for parcel in order[1:]:
                merged.merge(open_window(parcel))
            assert merged.rows == sum(map(len, batches))
            assert not merged.failed
            for measurement in merged.measurements():
                tolerance = merged.statistics[name].merge_tolerance(measurement.key)
                want = whole[measurement.key]
                assert measurement.number == (None if want is None else pytest.approx(want, tolerance, tolerance))


def test_a_window_keeps_its_provenance_and_what_failed() -> None:
    window = window_of([rows()], STATISTICS["norms"](), STATISTICS["validity"]())
    window.failed.add("validity")
    snapshot = window.snapshot(SPACE, step=3, coverage={"places_seen": 2}, notes=["It is so."], role="hidden")
    further = Metric("scale_ratio", "Of a diagnostic.").measure(2.0)
    snapshot = replace(snapshot, measurements=(*snapshot.measurements, further))
    parcel = Parcel.from_bytes(parcel_of_window(window, snapshot, sender="s", number=7).to_bytes())
    assert (parcel.space, parcel.role, parcel.rows, parcel.dimension) == (SPACE, "hidden", 40, 6)
    assert (parcel.sender, parcel.number, parcel.time, parcel.step) == ("s", 7, 5.0, 3)
    assert (parcel.coverage, parcel.notes) == ({"places_seen": 2}, ("It is so.",))
    opened = open_window(parcel, Boundary())
    assert (opened.started, opened.ended, opened.failed) == (1.0, 5.0, {"validity"})
    assert open_more(parcel) == (further,)
    assert [m.value for m in opened.measurements()] == [m.value for m in window.measurements()]


def test_rows_travel_with_ids_groups_and_segment() -> None:
    given = replace(rows(), segment="de")
    parcel = parcel_of_batch(given, SPACE, role="pooled", sender="s", number=0, time=5.0)
    batch = open_batch(Parcel.from_bytes(parcel.to_bytes()))
    assert torch.equal(batch.rows, given.rows)
    assert torch.equal(batch.keys, given.keys)
    assert torch.equal(batch.numbers, given.numbers)
    assert (list(batch.groups), batch.segment) == (["a", "b", "ü"], "de")
    bare = VectorBatch(given.rows[::2, ::2].bfloat16())
    assert torch.equal(open_batch(parcel_of_batch(bare, SPACE, role="", sender="s", number=0, time=5)).rows, bare.rows)


@pytest.mark.parametrize("odd", hostile_snapshots())
def test_snapshots_travel(odd: str) -> None:
    snapshot = hostile_snapshots()[odd]
    parcel = read_parcel(parcel_of_snapshot(snapshot, sender="s", number=0).to_bytes())
    assert open_snapshot(parcel).to_json() == json.loads(json.dumps(snapshot.to_json()))


PARCEL = sent(window_of([rows()], STATISTICS["norms"](), STATISTICS["uniformity"]()))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("space", Space("m", "p" * 600)), ("space", Space("m", 3)), ("space", Space("m", "p", "\ud800")),  # type: ignore[arg-type]
        ("role", "nosuch"), ("role", ["hidden"]), ("kind", "rumour"), ("kind", []), ("rows", -1), ("rows", True),
        ("rows", 1.0), ("dimension", 0), ("dimension", 1 << 21), ("sender", ""), ("sender", "s" * 600),
        ("number", -1), ("number", 1 << 63), ("time", math.nan), ("time", math.inf), ("time", 1e300), ("time", "5"),
        ("step", -1), ("step", 1.5), ("fingerprint", 3), ("coverage", {"a": 1.5}), ("coverage", [1]),
        ("coverage", {str(i): 1 for i in range(300)}), ("notes", ("n" * 5_000,)), ("notes", "text"), ("notes", (3,)),
    ],
)  # fmt: skip
def test_fields_that_do_not_fit_are_refused_by_sender_and_receiver(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"`{field}` of a parcel must be"):
        replace(PARCEL, **{field: value})


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    data = replace(PARCEL, payload=b"payload").to_bytes()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        with suppress(InputError):
            assert Parcel.from_bytes(bytes(damaged)).payload == b"payload", "the header may name another sender"
        with pytest.raises(InputError):
            Parcel.from_bytes(data[:place])
    with pytest.raises(InputError):
        Parcel.from_bytes(data + b"\0")


def forged(change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None]) -> Parcel:
    """Return a parcel whose payload was changed by somebody who can make digests."""
    payload = bytes(PARCEL.payload)
    length = struct.unpack("<Q", payload[:8])[0]
    content = json.loads(json.loads(payload[8 : 8 + length])["__metadata__"]["window"])
    tensors = safetensors.torch.load(payload)
    change(content, tensors)
    return replace(PARCEL, payload=safetensors.torch.save(tensors, {"window": json.dumps(content)}))


def setting(name: str, value: object) -> Callable[[dict[str, Any], dict[str, torch.Tensor]], None]:
    return lambda content, tensors: content["statistics"]["uniformity"]["settings"].update({name: value})


FORGED: dict[str, Callable[[dict[str, Any], dict[str, torch.Tensor]], None]] = {
    "unregistered": lambda content, tensors: content["statistics"].update(secret={"settings": {}, "state": {}}),
    "gigabytes": setting("features", 1 << 40),
    "times the default": setting("features", 5 * 256),
    "negative": setting("features", -3),
    "not a number": setting("features", "secret"),
    "a list": setting("features", [1]),
    "infinite": setting("features", 1e999),
    "unknown": setting("secret", 1),
    "no settings": lambda content, tensors: content["statistics"].update(norms=None),
    "another schema": lambda content, tensors: content.update(schema=2),
    "another dimension": lambda content, tensors: content["statistics"]["norms"]["state"].update(dimension=7),
    "huge dimension": lambda content, tensors: content["statistics"]["norms"]["state"].update(dimension=1 << 62),
    "state without a tensor": lambda content, tensors: tensors.__delitem__("norms/bins.counts"),
    "tensor of nobody": lambda content, tensors: tensors.update({"secret/x": torch.zeros(1)}),
    "tensor too many": lambda content, tensors: tensors.update({"norms/secret": torch.zeros(1)}),
    "NaN": lambda content, tensors: tensors.update(
        {"uniformity/sums.cos": torch.full((256,), torch.nan, dtype=torch.float64)}
    ),
    "failed": lambda content, tensors: content.update(failed=["secret"]),
    "failed is none": lambda content, tensors: content.update(failed=3),
    "started": lambda content, tensors: content.update(started="secret"),
    "more": lambda content, tensors: content.update(more=[{"name": "secret"}]),
    "more is none": lambda content, tensors: content.update(more=3),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_window_is_answered_in_one_line(name: str) -> None:
    data = forged(FORGED[name]).to_bytes()
    with pytest.raises((InputError, MergeError)) as error:
        read_parcel(data)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


def test_the_unforged_window_is_taken() -> None:
    assert open_window(read_parcel(forged(lambda content, tensors: None).to_bytes())).rows == 40


def test_statistics_that_may_grow_too_large_are_not_loaded() -> None:
    with pytest.raises(InputError, match="at most 1,000 bytes"):
        open_window(PARCEL, limit=1_000)
    spectrum = sent(window_of([rows()], STATISTICS["spectrum"]()))
    with pytest.raises(InputError, match="at most 268,435,456 bytes"):
        open_window(replace(spectrum, dimension=1 << 20))


def safetensors_of(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
ABOUT = {"__metadata__": {"rows": json.dumps({"groups": [], "source": "", "segment": "all"})}}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 1 << 40) + b"{}",
        safetensors_of({**ABOUT, "rows": ONE, "ids": ONE}, b"\0" * 4),
        safetensors_of({**ABOUT, "rows": {**ONE, "shape": [1 << 40, 1 << 40]}}, b"\0" * 4),
        safetensors_of({**ABOUT, "rows": {**ONE, "data_offsets": [0, 1 << 60]}}, b"\0" * 4),
        safetensors_of({**ABOUT, "rows": {**ONE, "dtype": "I32"}}, b"\0" * 4),
        safetensors_of({**ABOUT, "rows": {**ONE, "dtype": "secret"}}, b"\0" * 4),
        safetensors_of({**ABOUT, "rows": ONE}, b"\0" * 4),
        safetensors_of({"rows": ONE}, b"\0" * 4),
        safetensors_of(
            {**ABOUT, "rows": {**ONE, "shape": [1, 1]}, "other": {**ONE, "data_offsets": [4, 8]}}, b"\0" * 8
        ),
    ],
)
def test_rows_in_hostile_safetensors_are_refused(payload: bytes) -> None:
    with pytest.raises(InputError) as error:
        open_batch(replace(PARCEL, kind="rows", rows=1, dimension=1, payload=payload))
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("opened", [open_window, open_more, open_batch, open_snapshot])
def test_a_parcel_is_opened_as_what_it_is(opened: Callable[[Parcel], object]) -> None:
    other: ParcelKind = "state" if opened in (open_batch, open_snapshot) else "rows"
    with pytest.raises(InputError, match="`kind` of a parcel must be"):
        opened(replace(PARCEL, kind=other))


def test_a_snapshot_must_be_that_of_its_parcel() -> None:
    parcel = parcel_of_snapshot(hostile_snapshots()["zero"], sender="s", number=0)
    for other in (replace(parcel, space=SPACE), replace(parcel, rows=3), replace(parcel, payload=b'{"schema": 1}')):
        with pytest.raises(InputError):
            open_snapshot(other)


def test_a_snapshot_is_bounded_before_it_is_parsed() -> None:
    parcel = parcel_of_snapshot(hostile_snapshots()["zero"], sender="s", number=0)
    with pytest.raises(InputError, match=r"`payload` of a parcel must be at most 4,194,304 bytes of JSON"):
        open_snapshot(replace(parcel, payload=bytes(parcel.payload) + b" " * (4 << 20)))
