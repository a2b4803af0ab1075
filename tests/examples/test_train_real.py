"""The script that trains on real text: its corpora are prepared as it says, and a run of seconds prints its report."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import pytest

from examples import train_real


def catalogue(path: Path, pairs: dict[str, str]) -> None:
    """Write a GNU .mo file."""
    path.parent.mkdir(parents=True)
    texts = [(key.encode(), value.encode()) for key, value in sorted(pairs.items())]
    start = 28 + 16 * len(texts)
    tables, body = [b"", b""], b""
    for column in (0, 1):
        for pair in texts:
            tables[column] += struct.pack("<II", len(pair[column]), start + len(body))
            body += pair[column] + b"\0"
    header = struct.pack("<7I", 0x950412DE, 0, len(texts), 28, 28 + 8 * len(texts), 0, 0)
    path.write_bytes(header + tables[0] + tables[1] + body)


def test_german_pairs_are_distinct_and_without_accelerator_keys(tmp_path: Path) -> None:
    head = {"": "Content-Type: text/plain; charset=UTF-8\n"}
    catalogue(
        tmp_path / "de" / "LC_MESSAGES" / "a.mo",
        head
        | {"menu\x04~Save As": "~Speichern unter", "OK": "OK", "Save As:": "Speichern  unter:", "Print": "Drucken"},
    )
    rows = train_real.german(tmp_path, tmp_path)[0].read_text(encoding="utf-8").splitlines()
    assert sorted(rows) == ["Drucken\tPrint", "Speichern unter:\tSave As:"]


def test_chinese_is_written_without_tags_and_trains_for_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "199801.txt").write_text("".join(f"[猫/n  坐/v]nt 在/p 第{n}/m 号/q 垫子/n 上/f\n" for n in range(400)))
    (data / "neg.txt").write_text("不好\n")
    (data / "pos.txt").write_text("很好\n很好\n")
    (tmp_path / "out").mkdir()
    lines = train_real.chinese(tmp_path / "out", data)[0].read_text(encoding="utf-8").splitlines()
    assert len(lines) == 402
    assert {"很好", "不好", "猫坐nt在第7号垫子上"} <= set(lines)
    arguments = ["chinese", str(tmp_path / "run"), "--data", str(data), "--minutes", "0.04", "--size", "1"]
    monkeypatch.setattr(sys, "argv", ["train_real.py", *arguments])
    train_real.main()
    printed = capsys.readouterr().out
    found = re.search(r"validation loss ([\d.]+) nats per token, unigram entropy ([\d.]+)", printed)
    assert found is not None
    assert 0 < float(found[1]) < 9
    assert "█" in printed


def test_a_curve_is_as_long_as_its_values(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text(
        '{"kind": "validation", "step": 10, "loss": 8.0}\n{"kind": "step", "step": 11, "loss": 1.0}\n'
        '{"kind": "validation", "step": 20, "loss": 4.0}\n'
    )
    assert [line.count("█") for line in train_real.curve(history).splitlines()] == [60, 30]
