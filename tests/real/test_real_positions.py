"""Positions of real models: healthy as they are, with the figures that were measured apart from this code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from embedwatch.core.boundary import Boundary
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged
from embedwatch.loading.subject import load_subject

pytestmark = pytest.mark.real


def judged(folder: Path, *, length: int | None = None, deep: bool = False, only: tuple[str, ...] = ()) -> Judged:
    inquiry = Inquiry(load_subject(folder), length=length, deep=deep)
    (found,) = diagnose(inquiry, places=("positions",), only=only, boundary=Boundary(on_error="raise"))
    return found


def accused(found: Judged) -> dict[str, str]:
    return {verdict.check: verdict.reason for verdict in found.verdicts if verdict.status != "ok"}


def test_minilm_has_the_figures_that_were_measured(minilm: Path) -> None:
    found = judged(minilm)
    assert accused(found) == {}
    assert found.snapshot.number("position_far_cosine") == pytest.approx(0.727, abs=0.001)
    assert found.snapshot.number("position_adjacent_cosine") == pytest.approx(0.830, abs=0.005)
    assert found.snapshot.number("position_relative_ratio") == pytest.approx(0.49, abs=0.02)


def test_minilm_beyond_its_table(minilm: Path) -> None:
    assert set(accused(judged(minilm, length=513))) == {"position_table_end"}
    assert accused(judged(minilm, length=512)) == {}


def test_smollm2_is_healthy_from_its_files(smollm2: Path) -> None:
    found = judged(smollm2)
    assert accused(found) == {}
    assert found.snapshot.number("position_base_found") == pytest.approx(100_000, rel=1e-4)
    assert found.snapshot.number("position_alias_neighbours") == pytest.approx(3.51, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilm", "e5"])
def test_the_ends_of_a_text_are_two_places(name: str, request: pytest.FixtureRequest) -> None:
    found = judged(request.getfixturevalue(name), deep=True)
    assert accused(found) == {}
    over = found.snapshot.number("position_ends_over_middle_ratio")
    near = found.snapshot.number("position_ends_over_neighbour_ratio")
    assert over is not None
    assert near is not None
    assert over < 1.5
    assert near < 0.1


@pytest.mark.slow
def test_a_wrong_theta_in_a_configuration_is_seen_in_predictions(smollm2: Path, tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    folder.mkdir()
    for file in smollm2.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    shutil.copy(smollm2 / "config.json", folder / "config.json")
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 1_000.0
    (folder / "config.json").write_text(json.dumps(config))
    assert accused(judged(folder)) == {}  # weights and configuration agree with themselves
    found = judged(folder, length=64, deep=True, only=("position_quality",))
    reasons = accused(found)
    assert set(reasons) == {"position_base"}
    assert "θ near 100,000" in reasons["position_base"]
