"""safetensors: read without the library, and as it would be read by it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from embedwatch.core.errors import UsageError
from embedwatch.sources.safetensors import SafetensorsSource
from tests.sources.refusals import message_of, refusal


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(shape: list[Any], begin: Any = 0, end: Any = 24, dtype: Any = "F32") -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_all_float_types(dtype: torch.dtype, tmp_path: Path) -> None:
    path, x = tmp_path / "x.safetensors", torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    safetensors.torch.save_file({"x": x, "a": torch.zeros(2, dtype=torch.int8)}, path, metadata={"format": "pt"})
    rows = torch.cat([batch.rows for batch in SafetensorsSource.open(path).batches(4)])
    assert rows.dtype == dtype
    assert torch.equal(rows, x)


def test_several_need_a_choice_with_the_token_table_first(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {f"layer.{i:02}.weight": torch.full((2, 3), float(i)) for i in range(12)}
    safetensors.torch.save_file({**tensors, "tokens.embed.weight": torch.ones(4, 3)}, path)
    message = message_of(lambda: SafetensorsSource.open(path), path, UsageError)
    assert "13 tensors" in message
    assert "(tokens.embed.weight, layer.00.weight" in message
    assert "and 5 more" in message
    assert "--select" in message
    source = SafetensorsSource.open(path, select="layer.07.weight")
    assert next(source.batches(9)).rows.unique().tolist() == [7.0]
    assert "did you mean" in message_of(lambda: SafetensorsSource.open(path, select="embed.weight"), path, UsageError)


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (torch.zeros(3), "1-D"),
        (torch.zeros(2, 3, 4), "flatten"),
        (torch.zeros(2, 3, dtype=torch.int8), "I8"),
        (torch.zeros(2, 3, dtype=torch.float8_e4m3fn), "F8_E4M3"),
        (torch.zeros(2, 3, dtype=torch.bool), "BOOL"),
        (torch.zeros(3, 0), "at least one dimension"),
    ],
)
def test_tensors_that_are_no_vectors(tensor: torch.Tensor, word: str, tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    safetensors.torch.save_file({"x": tensor}, path)
    assert word in refusal(SafetensorsSource, path)
    assert word in refusal(SafetensorsSource, path, select="x")
    safetensors.torch.save_file({"x": tensor, "y": torch.zeros(2)}, path)
    assert word in refusal(SafetensorsSource, path, select="x")


def test_no_rows_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "none.safetensors"
    safetensors.torch.save_file({"x": torch.zeros(0, 5)}, path)
    source = SafetensorsSource.open(path)
    assert (source.rows, source.dimension, list(source.batches(2))) == (0, 5, [])


@pytest.mark.parametrize(
    ("header", "options"),
    [
        (entry([2, 3]), {"length": 1 << 60}),
        (entry([2, 3]), {"length": 1 << 20}),
        (entry([1 << 40, 1 << 10], end=1 << 52), {}),
        (entry([1 << 40, 1 << 10]), {}),
        (entry([10**4000, 10**4000]), {}),
        (entry([1] * 99), {}),
        (entry([2, 3], end=10**18), {}),
        (entry([2, 3], begin=24, end=0), {}),
        (entry([2, 3], begin=24, end=0, dtype="I8"), {}),
        (entry([2, 3], begin=-24, end=0), {}),
        (entry([-2, -3]), {}),
        (entry([2.0, 3]), {}),
        (entry([True, 3]), {}),
        (entry(["2", 3]), {}),
        (entry([2, 3], dtype=["F32"]), {}),
        (entry([2, 3], dtype="F33"), {}),
        ({"x": {"dtype": "F32", "shape": 6, "data_offsets": [0, 24]}}, {}),
        ({"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0]}}, {}),
        ({"x": {"dtype": "F32"}}, {}),
        ({"x": 5}, {}),
        ({"x": None}, {}),
        ([], {}),
        (5, {}),
        ({}, {}),
        ({"__metadata__": {}}, {}),
        (b"", {}),
        (b"{", {}),
        (b"{" * 100_000, {}),
        (b"\xff\xfe", {}),
        (b'{"x": ' + b"9" * 10_000 + b"}", {}),
        (b"[" * 100_000, {}),
    ],
)
def test_broken_headers(header: Any, options: dict[str, Any], tmp_path: Path) -> None:
    refusal(SafetensorsSource, write(tmp_path / "broken.safetensors", header, bytes(24), **options))


def test_a_cut_is_found_though_another_tensor_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "cut.safetensors"
    safetensors.torch.save_file({"a": torch.zeros(2, 3), "b": torch.zeros(200, 3)}, path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    assert "ends after" in refusal(SafetensorsSource, path, select="a")


def test_odd_names_stay_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.safetensors", {"a\nb\x1b": {**entry([3, 2])["x"], "dtype": "I8"}}, bytes(24))
    assert refusal(SafetensorsSource, path).isprintable()
