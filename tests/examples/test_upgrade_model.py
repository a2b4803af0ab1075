"""The example of a new model before an old index: spaces that do not meet, a map, and what it is worth."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from examples import upgrade_model


@pytest.mark.slow
def test_the_bridge_finds_as_much_as_the_old_model_and_the_old_index_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["upgrade_model.py", "--out", str(tmp_path)])
    upgrade_model.main()
    together, chosen, worth = capsys.readouterr().out.splitlines()
    assert together.startswith("together: alignable | ")
    assert chosen.endswith("bake, 64 to 96 dimensions")
    old, bridge = map(float, re.findall(r"(?:model|bridge) (\d\.\d\d)", worth))
    assert 0.3 < old < 0.9
    assert bridge > old
    assert {each.name for each in tmp_path.iterdir()} >= {"old.faiss", "bridged.faiss", "bridge"}
