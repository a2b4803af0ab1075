"""The example of three lines: it records, is silent about a sound training, and speaks of one that is too fast."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from embedwatch.recording import read_recording
from examples import watch_plain_loop


def test_a_sound_training_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "watched"
    monkeypatch.setattr(sys, "argv", ["watch_plain_loop.py", "--out", str(out), "--steps", "20"])
    watch_plain_loop.main()
    printed = capsys.readouterr().out
    assert printed.startswith("Monitor(Transformer: 7 of 7 places seen, step 20, detached")
    assert "  token_table " in printed
    assert f"embedwatch show {out}" in printed
    assert read_recording(str(out)).counts()["ok"] > 10


def test_one_that_is_too_fast_is_told_with_its_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "embedwatch"):
        watch_plain_loop.train(tmp_path, steps=2, rate=0.5)
    told = [record.getMessage() for record in caplog.records]
    assert any("movement of rows in one step" in line and "→ Lower the learning rate" in line for line in told)
