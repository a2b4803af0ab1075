"""References of a live model: gathered by its Monitor, and what later rows are compared with."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from embedwatch import InputError, UsageError, load_reference, watch
from embedwatch.core.verdict import Verdict
from embedwatch.monitor import Monitor
from embedwatch.sinks.memory import Memory

DIMENSION, VOCABULARY, TEXTS = 16, 400, 64


class Encoder(nn.Module):
    """Texts to vectors: one vector for each text."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(VOCABULARY, DIMENSION)
        self.body = nn.Sequential(nn.Linear(DIMENSION, 32), nn.GELU(), nn.Linear(32, DIMENSION))
        self.gain = 1.0

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.body(self.gain * self.table(ids).mean(1))


def serve(model: Encoder, monitor: Monitor, *, seed: int, passes: int = 40) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _ in range(passes):
            model(torch.randint(0, VOCABULARY, (TEXTS, 12), generator=generator))
    monitor.flush()


class Clock:
    """The module `time`, on a day when a window closes each minute."""

    def __init__(self) -> None:
        self.now = time.time()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        self.now += 60.0
        return self.now


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often windows close decides how many false alarms a level comes to."""
    monkeypatch.setattr("embedwatch.rounds.time", Clock())


def options(**more: object) -> dict[str, object]:
    return {"places": ["body"], "every": 1, "window": 10, "rows": TEXTS, "budget": None, "sinks": [], **more}


def drift(monitor: Monitor, place: str = "body") -> Verdict:
    (verdict,) = [each for each in monitor.verdicts if each.check == "drift" and each.space.place == place]
    return verdict


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("live") / "references"
    model = Encoder()
    with watch(model, **options()) as monitor:
        monitor.save_reference(path, rows=12_000)
        monitor.flush()
        assert monitor.gathering == {"body": 12_000}
        serve(model, monitor, seed=1, passes=200)
        assert monitor.gathering == {}
        assert monitor.errors == {}
    return path


def test_it_holds_the_rows_that_were_seen(folder: Path) -> None:
    found = load_reference(folder / "body")
    assert (found.origin.rows, found.origin.fitted, found.origin.dimension) == (12_000, 6_000, DIMENSION)
    assert found.origin.space.place == "body"
    assert found.origin.role == "hidden"


@pytest.mark.usefixtures("minutes")
def test_the_same_traffic_does_not_differ_and_another_model_does(folder: Path) -> None:
    model, memory = Encoder(), Memory()
    with watch(model, **options(reference=folder, sinks=[memory])) as monitor:
        serve(model, monitor, seed=2)
        healthy = drift(monitor)
        assert healthy.status == "ok", healthy.reason
        assert healthy.evidence.rows >= 600
        assert monitor.snapshots["body"].number("drift_p_value") is not None
        model.gain = 1.5
        for seed in range(3, 23):  # windows that close many times a second need much evidence for a budget of a month
            serve(model, monitor, seed=seed)
        assert drift(monitor).status == "fail", drift(monitor).reason
        assert monitor.errors == {}
    assert any(exhibit.name == "foreign_rows" for _, _, exhibits in memory.deliveries for exhibit in exhibits)


@pytest.mark.usefixtures("minutes")
def test_it_may_be_given_by_place_or_alone(folder: Path) -> None:
    for given in (load_reference(folder / "body"), folder / "body", {"body": folder / "body"}):
        with watch(Encoder(), **options(reference=given)) as monitor:
            serve(monitor.model, monitor, seed=2)  # type: ignore[arg-type]
            assert drift(monitor).status == "ok"


def test_it_can_be_left_out(folder: Path) -> None:
    with watch(Encoder(), **options(reference=folder, skip=["drift"])) as monitor:
        serve(monitor.model, monitor, seed=2)  # type: ignore[arg-type]
        assert not [each for each in monitor.verdicts if each.check == "drift"]
        assert monitor.snapshots["body"].get("drift_p_value") is None


def test_a_reference_of_another_model_is_refused(folder: Path) -> None:
    other = nn.Sequential(nn.Embedding(VOCABULARY, DIMENSION), nn.Linear(DIMENSION, DIMENSION))
    with pytest.raises(UsageError, match="`reference` of body must be of this model"):
        watch(other, sinks=[], reference=folder)
    assert not any(module._forward_hooks for module in other.modules())


def test_a_reference_of_no_place_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="must be of a place that is watched, got body; give it by place"):
        watch(Encoder(), sinks=[], places=["table"], reference=folder)


@pytest.mark.parametrize("given", [3, ["a"], 1.5])
def test_what_is_no_reference_is_refused(given: object) -> None:
    with pytest.raises(UsageError, match="`reference` must be a Reference, a folder or these by place"):
        watch(Encoder(), sinks=[], reference=given)


def test_a_folder_without_references_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be the folder of a reference, or hold such folders"):
        watch(Encoder(), sinks=[], reference=tmp_path)


@pytest.mark.parametrize("rows", [0, 199, 2.5, True])
def test_too_few_rows_are_refused(tmp_path: Path, rows: object) -> None:
    with (
        watch(Encoder(), sinks=[]) as monitor,
        pytest.raises(UsageError, match="`rows` must be a whole number of at least 200"),
    ):
        monitor.save_reference(tmp_path, rows=rows)  # type: ignore[arg-type]


def test_what_is_not_complete_is_not_written_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Encoder()
    with caplog.at_level(logging.WARNING, logger="embedwatch"), watch(model, **options()) as monitor:
        monitor.save_reference(tmp_path, rows=100_000)
        serve(model, monitor, seed=1, passes=5)
    assert list(tmp_path.iterdir()) == []
    assert "no reference of body: 99,680 rows are missing" in caplog.text


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("x")
    model = Encoder()
    with watch(model, **options()) as monitor:
        monitor.save_reference(tmp_path / "file", rows=200)
        serve(model, monitor, seed=1)
        assert monitor.errors == {("reference", "body"): 1}
        assert monitor.gathering == {}


@pytest.mark.usefixtures("minutes")
def test_the_places_that_are_compared_share_the_alarms_that_are_accepted(folder: Path) -> None:
    known = load_reference(folder / "body")
    model = Encoder()
    places = ["body", "body.0", "body.2"]
    given = options(places=places, reference={"body": known, "body.2": known}, alarms="2 per 1w")
    with watch(model, **given) as monitor:
        serve(model, monitor, seed=2)
        for place in ("body", "body.2"):
            budget = drift(monitor, place).evidence.budget
            assert budget is not None
            assert budget.startswith("2 per 7d over 2 spaces at 1,440 evaluations a day"), budget


def test_alarms_that_are_no_budget_are_refused_before_anything_is_watched() -> None:
    model = Encoder()
    with pytest.raises(UsageError, match=r"`alarms` must be a number of false alarms and .* got 'never'"):
        watch(model, sinks=[], alarms="never")
    assert not any(module._forward_hooks for module in model.modules())
