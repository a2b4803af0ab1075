"""Prints a table that a person can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console as Terminal
from rich.text import Text

from embedwatch.core.exhibit import NO_ID, Exhibit
from embedwatch.core.measurement import Histogram, Measurement
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import STATUSES, Verdict

STYLES = {"fail": "bold red", "warn": "yellow", "unknown": "magenta", "ok": "green", "info": "dim"}
NAMED = 5
"""So many of the rows to blame are named under a verdict; the others are in the exhibit."""
INDENT = 10
LARGEST_WHOLE = 1e15
SHOWN = 60
"""A name is cut after so many characters."""


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
        by_name = {exhibit.name: exhibit for exhibit in exhibits}
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
    facts = [f"{provenance.rows:,} rows"]
    if provenance.dimension is not None:
        facts.append(f"{provenance.dimension}-d")
    if provenance.fingerprint:
        facts.append(f"fingerprint {provenance.fingerprint[:8]}")
    heading = Text(one_line(str(snapshot.space)), style="bold")
    return heading.append("  " + " · ".join(facts), style="not bold dim")


def judged_line(verdict: Verdict, exhibits: dict[str, Exhibit]) -> Line:
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


def blamed(cited: Iterable[str], exhibits: dict[str, Exhibit]) -> list[str]:
    """Return one line for each cited table: its first rows by number, name and what is told of them.

    Example:
        >>> rows = Exhibit.build("norms", "table", "Largest.", ("row", "norm"), [(7, 90.0), (3, 8.5)])
        >>> blamed(["norms"], {"norms": rows})
        ['rows 7 (norm 90), 3 (8.5)']
    """
    found = []
    for name in cited:
        exhibit = exhibits.get(name)
        if exhibit is None or exhibit.shape != "table" or not exhibit.rows:
            continue
        rows = [row for row in exhibit.rows if row[0] != NO_ID]
        shown = [_entry(exhibit.columns, row, label=place == 0) for place, row in enumerate(rows[:NAMED])]
        more = ", …" if len(rows) > NAMED else ""
        if not shown:
            continue
        found.append(f"{exhibit.columns[0].replace('_', ' ')}s {', '.join(shown)}{more}")
    return found


def _entry(columns: Sequence[str], row: Sequence[object], *, label: bool) -> str:
    """Return the first cell of a row with its name and what the next column tells, with that column's title or not."""
    cells = dict(zip(columns, row, strict=True))
    name = cells.get("name")
    text = str(row[0]) + (f" “{_shortened(str(name))}”" if name is not None else "")
    told = next((column for column in columns[1:] if not column.endswith("name") and cells[column] is not None), None)
    if told is None:
        return text
    cell = cells[told]
    value = format_number(cell) if isinstance(cell, (int, float)) else str(cell)
    return f"{text} ({told.replace('_', ' ')} {value})" if label else f"{text} ({value})"


def _shortened(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


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


def format_number(value: float, digits: int = 3) -> str:
    """Return a number as a person reads it: whole numbers with thousands, others with a few significant digits.

    Example:
        >>> format_number(30522), format_number(0.70512), format_number(1.0), format_number(2.5e-7)
        ('30,522', '0.705', '1', '2.5e-07')
    """
    if abs(value) < LARGEST_WHOLE and value == int(value):
        return f"{int(value):,}"
    return f"{value:.{digits}g}"


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters, which a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return a text with spaces behind it, or before it, as wide as a terminal shows it."""
    space = " " * max(0, width - cell_len(text))
    return space + text if right else text + space
