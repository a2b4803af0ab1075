"""The contracts of checks and sinks: what each must survive.

Every Check and every Sink is run through its contract by discovery; a package that ships its own does the same:

    ```
    @pytest.mark.parametrize("clause", SINK_CONTRACT)
    def test_my_sink(clause, tmp_path):
        SINK_CONTRACT[clause](lambda: MySink(tmp_path / "out"))
    ```
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from embedwatch.core.check import Check
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.history import History
from embedwatch.core.measurement import Histogram, Measurement, Metric
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import ROLES, Provenance, Snapshot, Space
from embedwatch.core.verdict import Evidence, Limit, Status, Verdict

__all__ = ["CHECK_CONTRACT", "SINK_CONTRACT", "ContractViolation", "hostile_snapshots"]


class ContractViolation(AssertionError):
    """A plug-in broke the contract of its kind."""


def _require(held: object, what: str) -> None:
    if not held:
        raise ContractViolation(what)


def _snapshot(measurements: Iterable[Measurement], *, rows: int = 1_000, space: Space | None = None) -> Snapshot:
    provenance = Provenance(time=1.7e9, rows=rows, dimension=8, fingerprint="0123456789abcdef")
    return Snapshot(space or Space("model", "vectors"), tuple(measurements), provenance)


def hostile_snapshots(reads: Sequence[str] = (), *, role: str = "") -> dict[str, Snapshot]:
    """Return snapshots of a place of some role that every Check and Sink must survive, by what is odd about them."""
    metrics = [_metric(name) for name in reads or ("some_number",)]
    many = [Metric(f"metric_{index}", "A number.").measure(index) for index in range(1_000)]
    labelled = Metric("labelled", "A number.", labels=("group",))
    odd = ['"quoted"', "新闻\n换行", "a{b=c}", "", "\x1b[31mred", "é" * 300]
    histogram = Metric("spread", "A distribution.", kind="histogram")
    found = {
        "empty": _snapshot([], rows=0),
        "nothing measured": _snapshot([metric.measure(None) for metric in metrics]),
        "no rows": _snapshot([metric.measure(None) for metric in metrics], rows=0),
        "not a number": _snapshot([Measurement(metric, math.nan) for metric in metrics]),
        "infinite": _snapshot([Measurement(metric, math.inf) for metric in metrics]),
        "zero": _snapshot([metric.measure(0) for metric in metrics]),
        "negative": _snapshot([metric.measure(-1e308) for metric in metrics]),
        "odd labels": _snapshot(
            [labelled.measure(1.0, group=text) for text in odd], space=Space("模型/“a”", "层\n0", "{x}")
        ),
        "histogram": _snapshot([histogram.measure(Histogram((1.0, 2.0), (0, 3, 1), 7.5, 4))]),
        "a thousand": _snapshot(many),
    }
    return {odd: replace(item, provenance=replace(item.provenance, role=role)) for odd, item in found.items()}


def _metric(name: str) -> Metric:
    return Metric(name, "A number.", kind="counter" if name.endswith("_total") else "gauge")


def _hostile_to(check: Check) -> dict[str, Snapshot]:
    return hostile_snapshots(check.reads, role=check.roles[0] if check.roles else "")


def _check_texts(check: Check) -> None:
    """Says in words what it judges, what it means, what it costs, how to look and what to do."""
    for field in ("title", "meaning", "impact", "diagnosis", "mitigation"):
        _require(bool(getattr(check, field)), f"{check.name}: `{field}` must not be empty; it is its runbook")
    _require(bool(check.reads), f"{check.name}: `reads` must name the measurements that it needs")
    _require(set(check.roles) <= set(ROLES), f"{check.name}: `roles` must be among {', '.join(ROLES)}")


def _check_survives(check: Check) -> None:
    """Answers every hostile snapshot that it applies to, with and without a past, without an exception."""
    snapshots = _hostile_to(check)
    past = [
        replace(each, provenance=replace(each.provenance, step=step)) for step, each in enumerate(snapshots.values())
    ]
    for odd, snapshot in snapshots.items():
        for history in (None, History(past), History([*past, *past[::-1], snapshot])):
            if check.applies(snapshot):
                evidence = check.evaluate(snapshot, None, history)
                _require(isinstance(evidence, Evidence), f"{check.name}: `evaluate` must return Evidence for {odd!r}")


def _check_unknown(check: Check) -> None:
    """Has no value where nothing was measured, and does not apply where its measurements are missing."""
    snapshots = _hostile_to(check)
    for odd in ("nothing measured", "no rows"):
        _require(check.evaluate(snapshots[odd]).value is None, f"{check.name}: must have no value for {odd!r}")
    _require(not check.applies(snapshots["empty"]), f"{check.name}: must not apply to an empty snapshot")


def _check_json(check: Check) -> None:
    """Finds the same in a snapshot that went through JSON, and leaves it as it was."""
    for odd, snapshot in _hostile_to(check).items():
        text = json.dumps(snapshot.to_json())
        again = Snapshot.from_json(text)
        if check.applies(snapshot):
            first, second = check.evaluate(snapshot), check.evaluate(again)
            _require(repr(first) == repr(second), f"{check.name}: {odd!r} is judged otherwise after JSON")
            _require(json.dumps(snapshot.to_json()) == text, f"{check.name}: {odd!r} was changed")


CHECK_CONTRACT: dict[str, Callable[[Check], None]] = {
    "texts": _check_texts,
    "survives": _check_survives,
    "unknown": _check_unknown,
    "json": _check_json,
}
"""Name to clause; each takes a Check."""


def _verdicts(snapshot: Snapshot) -> list[Verdict]:
    limit = Limit(warn=0.5, fail=0.9)
    values: list[tuple[Status, float | None]] = [("ok", 0.1), ("warn", 0.6), ("fail", 1.0), ("unknown", None)]
    return [
        Verdict(
            check="collapse",
            title="collapse “quoted”",
            space=snapshot.space,
            status=status,
            evidence=Evidence(value, limit, 10, exhibits=("rows",)),
            threshold=None if value is None else limit.threshold(value),
            reason="行 [bold]must[/bold] be {one} line",
            meaning="What it means.",
            remedy="What to do.",
        )
        for status, value in values
    ]


EXHIBIT = Exhibit.build("rows", "table", "Offending rows.", ("row", "name"), [(1, "[red]新[/red]"), (2, None)])


def _sink_survives(make: Callable[[], Sink]) -> None:
    """Delivers every hostile snapshot, with and without verdicts and exhibits."""
    with make() as sink:
        for snapshot in hostile_snapshots().values():
            sink.write(snapshot, [])
            sink.write(snapshot, _verdicts(snapshot), [EXHIBIT])


def _sink_closes_twice(make: Callable[[], Sink]) -> None:
    """Closes again without complaint, also when nothing was written."""
    sink = make()
    sink.close()
    sink.close()
    sink = make()
    snapshot = hostile_snapshots()["a thousand"]
    sink.write(snapshot, _verdicts(snapshot))
    sink.close()
    sink.close()


def _sink_changes_nothing(make: Callable[[], Sink]) -> None:
    """Leaves snapshot, verdicts and exhibits as they were."""
    snapshot = hostile_snapshots()["odd labels"]
    verdicts = _verdicts(snapshot)
    before = repr((snapshot, verdicts, EXHIBIT))
    with make() as sink:
        sink.write(snapshot, verdicts, [EXHIBIT])
    _require(repr((snapshot, verdicts, EXHIBIT)) == before, "the sink changed what it was given")


SINK_CONTRACT: dict[str, Callable[[Callable[[], Sink]], None]] = {
    "survives": _sink_survives,
    "closes twice": _sink_closes_twice,
    "changes nothing": _sink_changes_nothing,
}
"""Name to clause; each takes a function that makes a fresh Sink."""
