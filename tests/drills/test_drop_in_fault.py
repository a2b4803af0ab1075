"""A fault is added by one file: the drill tries it, the command line lists it, the pages document it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import embedwatch.faults
from embedwatch import drill
from embedwatch.cli import main
from embedwatch.core import registry
from embedwatch.drills.fault import Fault
from tests.docs.generator import load
from tests.topics import stream

NAME = "sign_flip"
FILE = '''
"""Signs that flip."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.fault import Fault


class SignFlip(Fault):
    """Every number has the other sign."""

    name = "sign_flip"
    title = "signs flip"
    strength = 1.0
    strengths = (1.0,)
    measures = "share of the rows"
    found_by = ("drift",)
    unseen = "Rows around the origin look the same from both sides."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of the other sign."""
        del generator, strength
        return -rows
'''


@pytest.fixture
def dropped_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more file in the folder of faults."""
    registry.scan("fault")
    folder = tmp_path / "faults"
    folder.mkdir()
    folder.joinpath(f"{NAME}.py").write_text(FILE, encoding="utf-8")
    monkeypatch.setattr(embedwatch.faults, "__path__", [*embedwatch.faults.__path__, str(folder)])
    registry._scanned.discard("fault")
    yield
    registry._classes["fault"].pop(NAME, None)
    sys.modules.pop(f"embedwatch.faults.{NAME}", None)


@pytest.mark.usefixtures("dropped_in")
def test_one_file_is_enough(tmp_path: Path) -> None:
    assert NAME in registry.registered(Fault)
    np.save(tmp_path / "rows.npy", stream(1_000, seed=0).numpy())
    (trial,) = drill(tmp_path / "rows.npy", faults=[NAME], window=300).trials
    assert (trial.status, trial.rightly) == ("found", 1)
    assert f"  {NAME}" in CliRunner().invoke(main, ["list", "faults"]).stdout
    assert f"\n## {NAME}\n" in load().pages()["faults.md"]


def test_without_it_nothing_is_there() -> None:
    assert NAME not in registry.registered(Fault)
