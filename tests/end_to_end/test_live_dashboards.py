"""Every query of every dashboard finds data, in a real Prometheus that scrapes a real training and a real daemon."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest

from embedwatch.operations.queries import panels
from tests.dashboards.grafana import Result, crowded
from tests.dashboards.tools import committed_dashboards, needs_promtool
from tests.end_to_end.live_stand import Live, standing

pytestmark = pytest.mark.slow

ALL = committed_dashboards()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with standing(tmp_path_factory.mktemp("dashboards")) as running:
        yield running


def unanswered(results: list[Result]) -> set[str]:
    return {f"{result.query.place} {result.query.ref}" for result in results if not result.series}


@needs_promtool
@pytest.mark.parametrize("name", ALL)
class TestEveryDashboard:
    def test_every_query_finds_data(self, live: Live, name: str) -> None:
        board = live.board(ALL[name])
        results = [*board.results(), *board.others()]
        assert unanswered(results) == set()
        assert [fault for result in results for fault in result.faults()] == []
        assert crowded(results) == []

    def test_every_variable_offers_something(self, live: Live, name: str) -> None:
        choices = live.board(ALL[name]).choices()
        assert list(choices) == ["job", "instance", "model", "place", "segment"]
        assert {"Transformer", "faq", "reader", "writer", "bridge", "docs"} <= set(choices["model"])
        assert len(choices["instance"]) == 2


Change = Callable[[str], str]
MUTANTS: dict[str, Change] = {
    "metric": lambda expr: expr.replace("embedwatch_", "embedwatch_x_"),
    "check": lambda expr: expr.replace('check="', 'check="x_'),
    "label": lambda expr: expr.replace('q="', 'q="7'),
    "heads": lambda expr: expr.replace('heads="', 'heads="x'),
    "severity": lambda expr: expr.replace('severity="', 'severity="x'),
    "variable": lambda expr: expr.replace('model=~"$model"', 'model=~"$place"'),
}
"""What a slip changes in a query."""


@needs_promtool
@pytest.mark.parametrize("what", MUTANTS)
def test_a_mutated_query_is_caught(live: Live, what: str) -> None:
    """In every panel that it changes."""
    caught = changed = 0
    for dashboard in ALL.values():
        mutant = copy.deepcopy(dashboard)
        for panel in panels(mutant):
            for target in panel["targets"]:
                target["expr"] = MUTANTS[what](target["expr"])
        variables = {name: values[0] for name, values in live.board(dashboard).choices().items()}
        filled = variables if what == "variable" else None
        before = {(each.query.place, each.query.ref): each for each in live.board(dashboard).results()}
        for result, original in zip(live.board(mutant).results(filled), before.values(), strict=True):
            if result.query.expr != original.query.expr:
                changed += 1
                caught += not result.series
    assert changed >= 3
    assert caught == changed


def test_a_dashboard_without_a_metric_is_noticed(live: Live) -> None:
    mutant = copy.deepcopy(ALL["embedwatch-daemon.json"])
    first = next(panels(mutant))
    first["targets"][0]["expr"] = first["targets"][0]["expr"].replace("rows_accepted", "rows_taken")
    assert unanswered(live.board(mutant).results()) == {f"{first['title']} A"}
