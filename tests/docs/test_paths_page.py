"""docs/paths.md: three ways in, ten lines each, and each finds what it says."""

from __future__ import annotations

import contextlib
import io
import logging
from ast import literal_eval
from pathlib import Path

import pytest

from tests.docs.generator import DOCS
from tests.docs.test_readme import blocks

MOST_LINES = 10
FOUND = [
    [{("token_norm_growth", "warn"), ("token_norm_growth", "fail")}],
    [{("nonfinite_rows", "fail")}],
    [{("nonfinite_rows", "fail")}, {("drift", "fail"), ("what_changed", "fail")}],
]
"""For each block and each of its lines of output: findings of which at least one is printed."""
BLOCKS = [
    block for block in blocks(DOCS.joinpath("paths.md").read_text(encoding="utf-8")) if block.language == "python"
]


def test_there_are_three() -> None:
    assert len(BLOCKS) == len(FOUND) == 3
    for block in BLOCKS:
        code = [line for line in block.text.splitlines() if line.strip()]
        assert len(code) <= MOST_LINES


@pytest.mark.parametrize(("number", "wanted"), list(enumerate(FOUND)), ids=["train", "serve", "audit"])
def test_a_way_finds_what_it_says(
    number: int, wanted: list[set[tuple[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logging.getLogger("embedwatch").setLevel(logging.CRITICAL)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(BLOCKS[number].text, {"__name__": "__main__"})
    printed = [set(literal_eval(line)) for line in output.getvalue().splitlines()]
    assert len(printed) == len(wanted)
    for found, some in zip(printed, wanted, strict=True):
        assert found & some, found
