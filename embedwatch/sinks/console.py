"""Prints a table that a person can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console as Terminal
from rich.text import Text

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Histogram, Measurement
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import OF_MODEL, Snapshot
from embedwatch.core.verdict import STATUSES, Verdict
from embedwatch.sinks._blame import blamed, format_number, known_rows, one_line

STYLES = {"fail": "bold red", "warn": "yellow", "unknown": "magenta", "ok": "green", "info": "dim"}
INDENT = 10


@dataclass(frozen=True)
class Line:
    """A line of a table: a status, what it is about, its value and a note; below it whole texts in their styles."""

    status: str
    title: str
    value: str
    note: str
    below: tuple[tuple[str, str], ...] = ()


class Console(Sink):
    """Prints each Space as a table: verdicts first, the gravest on top, then what was measured for information.

    Args:
        terminal: where to print; the standard output by default.
        verbose: print every measurement.
        quiet: print only verdicts that are not ok.
    """

    name = "console"
    title = "console"

    def __init__(self, *, terminal: Terminal | None = None, verbose: bool = False, quiet: bool = False) -> None:
        self._terminal = terminal or Terminal(highlight=False)
        self._verbose, self._quiet = verbose, quiet

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Print one Space."""
        by_name = known_rows(snapshot, exhibits)
        ordered = sorted(verdicts, key=lambda verdict: -STATUSES.index(verdict.status))
        lines = [judged_line(verdict, by_name) for verdict in ordered if not (self._quiet and verdict.status == "ok")]
        if not self._quiet:
            lines += _informed(snapshot, verdicts, every=self._verbose)
        elif not lines:
            return
        self._terminal.print(_heading(snapshot), soft_wrap=True)
        for note in snapshot.provenance.notes:
            print_paragraph(self._terminal, note, "dim", indent=2)
        print_lines(self._terminal, lines)
        self._terminal.print()


def print_lines(terminal: Terminal, lines: Sequence[Line]) -> None:
    """Print lines as a table, and below each its texts."""
    titles = max((cell_len(line.title) for line in lines), default=0)
    values = max((cell_len(line.value) for line in lines), default=0)
    for line in lines:
        text = Text("  ")
        text.append(pad(line.status, 7), style=STYLES[line.status])
        text.append(f" {pad(line.title, titles)}  {pad(line.value, values, right=True)}")
        if line.note:
            text.append(f"  {line.note}", style="dim")
        terminal.print(text, soft_wrap=True)
        for content, style in line.below:
            print_paragraph(terminal, content, style, indent=INDENT)


def print_paragraph(terminal: Terminal, content: str, style: str, *, indent: int) -> None:
    """Print a text, wrapped and indented."""
    for line in Text(one_line(content), style=style).wrap(terminal, terminal.width - indent):
        line.rstrip()
        terminal.print(Text(" " * indent) + line, soft_wrap=True)


def _heading(snapshot: Snapshot) -> Text:
    provenance = snapshot.provenance
    facts = [] if provenance.role in OF_MODEL else [f"{provenance.rows:,} rows"]
    if provenance.dimension is not None:
        facts.append(f"{provenance.dimension}-d")
    if provenance.fingerprint:
        facts.append(f"fingerprint {provenance.fingerprint[:8]}")
    heading = Text(one_line(str(snapshot.space)), style="bold")
    return heading.append("  " + " · ".join(facts), style="not bold dim")


def judged_line(verdict: Verdict, exhibits: Mapping[str, Exhibit]) -> Line:
    """Return the line of a verdict: what is not ok with its reason, whom to blame, what it means and what to do."""
    evidence = verdict.evidence
    value = "–" if evidence.value is None else format_number(evidence.value)
    healthy = "" if evidence.limit is None else f"healthy {evidence.limit}"
    if verdict.status == "ok":
        return Line("ok", verdict.title, value, healthy)
    below = [(one_line(verdict.reason), "")]
    if verdict.status != "unknown":
        below += [(text, "") for text in blamed(evidence.exhibits, exhibits)]
        below += [(verdict.meaning, ""), (f"→ {verdict.remedy}", "bold")]
    return Line(
        verdict.status, verdict.title, value, healthy, tuple((text, style) for text, style in below if text.strip("→ "))
    )


def _informed(snapshot: Snapshot, verdicts: Sequence[Verdict], *, every: bool) -> list[Line]:
    """Return the measurements that no verdict shows, those of one metric on one line."""
    judged = {verdict.evidence.measurement for verdict in verdicts}
    grouped: dict[str, list[Measurement]] = {}
    for measurement in snapshot:
        if not isinstance(measurement.value, Histogram):
            grouped.setdefault(measurement.name, []).append(measurement)
    shown = [
        measurements
        for name, measurements in grouped.items()
        if every or (measurements[0].metric.headline and (name not in judged or len(measurements) > 1))
    ]
    return [_information(measurements) for measurements in shown]


def _information(measurements: Sequence[Measurement]) -> Line:
    """Return one line: the number beside what is healthy, or all numbers of a metric with labels."""
    metric = measurements[0].metric
    title = one_line(metric.title)
    if len(measurements) == 1 and not measurements[0].labels:
        error = "" if measurements[0].error is None else f"± {measurements[0].error:.1g}"
        return Line("info", title, _number(measurements[0]), f"{error}  {metric.healthy}".strip())
    texts = [" ".join([*map(one_line, m.labels.values()), _number(m)]) for m in measurements]
    return Line("info", title, "", " · ".join(texts))


def _number(measurement: Measurement) -> str:
    return "–" if measurement.number is None else format_number(measurement.number, measurement.metric.digits)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return a text with spaces behind it, or before it, as wide as a terminal shows it."""
    space = " " * max(0, width - cell_len(text))
    return space + text if right else text + space
