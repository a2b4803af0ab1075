"""Large bytes: the format is that of safetensors, whoever writes and reads it, and copies let others run."""

from __future__ import annotations

import json
import struct
import threading
import time
from typing import Any

import hypothesis.strategies as st
import pytest
import safetensors.torch
import torch
from hypothesis import given
from torch import Tensor

from embedwatch.large_bytes import KINDS, PIECE, joined, pieces, tensors_from, tensors_to_bytes

MIB = 1 << 20


def header_of(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    return found


def sealed(header: Any, numbers: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + numbers


TENSORS = {
    **{name: (torch.arange(12) % 2).reshape(3, 4).to(kind) for name, kind in KINDS.items()},
    "empty": torch.zeros(0, 5),
    "scalar": torch.tensor(2.5),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "nan": torch.tensor([float("nan"), float("inf")]),
}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name].nan_to_num(), other[name].nan_to_num())
        for name in one
    )


def test_safetensors_reads_what_we_write() -> None:
    data = tensors_to_bytes(TENSORS, {"about": "ü"})
    assert equal(safetensors.torch.load(data), TENSORS)
    assert header_of(data)["__metadata__"] == {"about": "ü"}
    assert struct.unpack("<Q", data[:8])[0] % 8 == 0


def test_we_read_what_safetensors_writes() -> None:
    data = safetensors.torch.save({name: tensor.contiguous() for name, tensor in TENSORS.items()}, {"a": "b"})
    found = tensors_from(memoryview(data), header_of(data))
    assert equal(found, TENSORS)
    found["F32"] += 1  # in memory of its own
    assert equal(tensors_from(data, header_of(data)), TENSORS)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"x": 3},
        {"x": {**ENTRY, "more": 1}},
        {"x": {**ENTRY, "dtype": "F8_E4M3"}},
        {"x": {**ENTRY, "dtype": ["F32"]}},
        {"x": {**ENTRY, "shape": [3]}},
        {"x": {**ENTRY, "shape": [2.0]}},
        {"x": {**ENTRY, "shape": [True, 2]}},
        {"x": {**ENTRY, "shape": [-1, -2]}},
        {"x": {**ENTRY, "shape": [2] + [1] * 100_000}},
        {"x": {**ENTRY, "shape": [1 << 62, 1 << 62]}},
        {"x": {**ENTRY, "shape": [(1 << 63) - 1, (1 << 63) - 1, 0], "data_offsets": [0, 0]}},
        {"x": {**ENTRY, "data_offsets": [8, 16]}},
        {"x": {**ENTRY, "data_offsets": [8, 0]}},
        {"x": {**ENTRY, "data_offsets": [0, 4], "shape": [1]}},
        {"x": {**ENTRY, "data_offsets": [0, 8, 9]}},
        {"x": ENTRY, "y": ENTRY},
        {"x": ENTRY, "__metadata__": {"a": 1}},
        {"x": ENTRY, "__metadata__": []},
    ],
)
def test_a_header_that_does_not_describe_the_file_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        tensors_from(sealed(header, b"\0" * 8), header)


def test_the_header_that_was_changed_is_a_sound_one() -> None:
    assert torch.equal(tensors_from(sealed({"x": ENTRY}, b"\0" * 8), {"x": ENTRY})["x"], torch.zeros(2))


@given(st.lists(st.integers(0, 3 * PIECE), max_size=3))
def test_what_is_joined_is_whole(sizes: list[int]) -> None:
    parts = [bytes([number]) * size for number, size in enumerate(sizes, 1)]
    assert joined(parts) == b"".join(parts) == joined(map(memoryview, parts))
    assert all(b"".join(pieces(part)) == part for part in parts)


def slowest_turn(work: Any) -> float:
    """Return the longest time that another thread waited for its turn while something ran, in seconds."""
    waits, stop = [0.0], threading.Event()

    def run() -> None:
        while not stop.is_set():
            began = time.perf_counter()
            time.sleep(0)
            waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        work()
    finally:
        stop.set()
        thread.join()
    return max(waits)


def test_others_run_while_large_tensors_are_written_and_read() -> None:
    tensors = {"x": torch.zeros(256 * MIB // 4)}
    data = tensors_to_bytes(tensors, {})
    held = min(slowest_turn(lambda: safetensors.torch.save(tensors)) for _ in range(3))
    ours = min(slowest_turn(lambda: tensors_to_bytes(tensors, {})) for _ in range(3))
    reading = min(slowest_turn(lambda: tensors_from(data, header_of(data))) for _ in range(3))
    assert max(ours, reading) < held / 2
