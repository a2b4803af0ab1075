"""`embedwatch list` names everything that is registered."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from embedwatch.cli import main
from embedwatch.core import Check, Diagnostic, Sink, Source, Statistic
from embedwatch.core.registry import Plugin, registered
from embedwatch.drills.fault import Fault

KINDS: list[tuple[str, type[Plugin]]] = [
    ("statistics", Statistic),
    ("checks", Check),
    ("sinks", Sink),
    ("sources", Source),
    ("diagnostics", Diagnostic),
    ("faults", Fault),
]


@pytest.mark.parametrize(("kind", "base"), KINDS)
def test_every_kind(kind: str, base: type[Plugin]) -> None:
    shown = CliRunner().invoke(main, ["list", kind])
    entries = json.loads(CliRunner().invoke(main, ["list", kind, "--json"]).stdout)[kind]
    assert [entry["name"] for entry in entries] == list(registered(base))
    for entry in entries:
        assert f"  {entry['name']}" in shown.stdout
        assert entry["summary"] in shown.stdout


def test_metrics_with_their_unit_and_owner() -> None:
    entries = json.loads(CliRunner().invoke(main, ["list", "metrics", "--json"]).stdout)["metrics"]
    rank = next(entry for entry in entries if entry["name"] == "effective_rank")
    assert (rank["unit"], rank["from"], rank["kind"]) == ("dimensions", "spectrum", "gauge")
    assert len(entries) == len({entry["name"] for entry in entries})


def test_all_at_once_and_a_wrong_kind() -> None:
    shown = CliRunner().invoke(main, ["list"]).stdout
    assert [line for line in shown.splitlines() if not line.startswith(" ")] == [
        "statistics",
        "metrics",
        "checks",
        "sinks",
        "sources",
        "diagnostics",
        "faults",
    ]
    wrong = CliRunner().invoke(main, ["list", "chekcs"])
    assert wrong.exit_code == 2
    assert "checks" in wrong.stderr
