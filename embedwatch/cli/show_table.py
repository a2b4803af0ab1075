"""Prints a recording: for each Space a table of its measurements over the run, then what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.console import Console as Terminal
from rich.text import Text

from embedwatch.cli.show_rows import Row, steps_known
from embedwatch.cli.sparkline import ASCII, UNICODE, Blocks, sparkline
from embedwatch.core.snapshot import Provenance
from embedwatch.core.verdict import STATUSES, Verdict
from embedwatch.recording import Moment, Recorded, Recording, Spell
from embedwatch.sinks._blame import format_number, one_line
from embedwatch.sinks.console import (
    STYLES,
    Line,
    judged_line,
    pad,
    print_lines,
    print_paragraph,
)

__all__ = ["print_recording", "print_space"]

HEADER = ("first", "min", "max", "last")
GAP = "  "
CURVE_WIDTHS = (8, 40)
"""A curve is drawn with at least and at most so many characters."""
SHORTEST_TITLE = 12
"""Names are shortened down to this where a line would be too long."""
LONGEST_TITLE = 40
PAST = 3
"""So many stretches of one check that are over are told of, the newest."""


def print_recording(terminal: Terminal, recording: Recording) -> None:
    """Print what holds for the whole recording."""
    models = list(dict.fromkeys(recorded.space.model for recorded in recording.spaces))
    facts = [
        f"{len(models):,} models" if len(models) > 1 else f"model {models[0]}",
        _counted(len(recording.spaces), "space"),
        _counted(recording.lines, "line"),
    ]
    _heading(terminal, str(recording.path), facts)
    for note in recording.notes:
        print_paragraph(terminal, note, "yellow", indent=2)
    terminal.print()


def print_space(
    terminal: Terminal, recorded: Recorded, rows: Sequence[Row], *, verdicts: bool = False, quiet: bool = False
) -> None:
    """Print one Space; where it is quiet, only what is not ok, and nothing where all is."""
    now, past = _now(recorded, every=verdicts, unknown=quiet), _past(recorded)
    if quiet:
        rows = [row for row in rows if row.verdict is not None and row.verdict.status != "ok"]
        if not (rows or now or past):
            return
    _heading(terminal, str(recorded.space), _facts(recorded))
    for note in recorded.snapshot.provenance.notes:
        print_paragraph(terminal, note, "dim", indent=2)
    _print_rows(terminal, recorded, rows)
    for title, lines in (("now", now), ("came and went", past)):
        if lines:
            terminal.print(Text(f"  {title}", style="dim"))
            print_lines(terminal, lines)
    terminal.print()


def _heading(terminal: Terminal, name: str, facts: Sequence[str]) -> None:
    """Print a name and facts, wrapped between facts."""
    text = Text(one_line(name), style="bold")
    width = cell_len(text.plain)
    for number, fact in enumerate(facts):
        separator = " · " if number else GAP
        if width + len(separator) + cell_len(fact) > terminal.width:
            terminal.print(text, soft_wrap=True)
            text, width, separator = Text(), 0, GAP
        text.append(separator + one_line(fact), style="not bold dim")
        width += len(separator) + cell_len(fact)
    terminal.print(text, soft_wrap=True)


def _facts(recorded: Recorded) -> list[str]:
    provenance = recorded.snapshot.provenance
    first, last = recorded.first, recorded.last
    if recorded.windows == 1:
        covered = str(last)
    elif steps_known(recorded):
        covered = f"steps {first.step:,} to {last.step:,}"
    else:
        covered = f"{first.clock()} to {last.clock()} UTC"
    facts = [_counted(recorded.windows, "window"), covered, f"{provenance.rows:,} rows in the last"]
    return [*facts, *([] if provenance.dimension is None else [f"{provenance.dimension}-d"]), *_coverage(provenance)]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _coverage(provenance: Provenance) -> list[str]:
    """Return what could be observed of what should be: `rows read 5 of 8`."""
    facts = []
    expected = {
        name.removesuffix("_expected"): n for name, n in provenance.coverage.items() if name.endswith("_expected")
    }
    for name, count in provenance.coverage.items():
        stem = name.rpartition("_")[0]
        if not name.endswith("_expected"):
            facts.append(
                f"{name.replace('_', ' ')} {count:,}" + (f" of {expected[stem]:,}" if stem in expected else "")
            )
    return facts


def _print_rows(terminal: Terminal, recorded: Recorded, rows: Sequence[Row]) -> None:
    """Print the table; the curve gets what the other columns leave."""
    if not rows:
        return
    blocks = _blocks(terminal)
    numbers = [
        [_number(row, value) for value in (row.trace.first, row.trace.min, row.trace.max, row.trace.last)]
        for row in rows
    ]
    states = [_state(row, recorded) for row in rows]
    widths = [max(cell_len(text) for text in column) for column in zip(HEADER, *numbers, strict=True)]
    titles = [one_line(row.title) for row in rows]
    longest = min(LONGEST_TITLE, max(map(cell_len, titles)))
    others = len(GAP) * (len(HEADER) + 2) + sum(widths) + max(map(cell_len, states))
    room = terminal.width - len(GAP) - others
    curve = max(
        min(len(recorded.history), CURVE_WIDTHS[0]), min(room - longest, CURVE_WIDTHS[1], len(recorded.history))
    )
    longest = max(min(longest, room - curve), min(longest, SHORTEST_TITLE))
    header = Text(GAP + " " * (longest + len(GAP) + curve), style="dim")
    header.append("".join(GAP + pad(name, width, right=True) for name, width in zip(HEADER, widths, strict=True)))
    terminal.print(header, soft_wrap=True)
    for row, title, texts, state in zip(rows, titles, numbers, states, strict=True):
        line = Text(GAP + _fitted(title, longest) + GAP)
        line.append(pad(sparkline(row.points, curve, blocks=blocks), curve), style="cyan")
        line.append("".join(GAP + pad(text, width, right=True) for text, width in zip(texts, widths, strict=True)))
        if row.verdict is not None:
            line.append(GAP + state, style=STYLES[row.verdict.status])
        terminal.print(line, soft_wrap=True)


def _fitted(title: str, width: int) -> str:
    return pad(title, width) if cell_len(title) <= width else set_cell_size(title, width - 1) + "…"


def _number(row: Row, value: float | None) -> str:
    return "–" if value is None else format_number(value, row.trace.metric.digits)


def _state(row: Row, recorded: Recorded) -> str:
    """Return the status and since when; what was so from the first window on needs no date."""
    if row.verdict is None:
        return ""
    if row.spell is None or (row.spell.since == recorded.first and row.verdict.status == "ok"):
        return row.verdict.status
    return f"{row.verdict.status} since {_place(row.spell.since, recorded)}"


def _place(moment: Moment, recorded: Recorded) -> str:
    """Return the step, or the time, without the year where all is of one year."""
    if steps_known(recorded) and moment.step is not None:
        return f"{moment.step:,}"
    year = recorded.last.clock()[:5]
    return moment.clock().removeprefix(year) if recorded.first.clock().startswith(year) else moment.clock()


def _blocks(terminal: Terminal) -> Blocks:
    """Return what the output can show."""
    try:
        "".join(UNICODE).encode(terminal.encoding)
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


def _now(recorded: Recorded, *, every: bool, unknown: bool) -> list[Line]:
    """Return a line for each of the newest verdicts that is grave, or for each; the gravest on top."""
    shown = ("fail", "warn", "unknown") if unknown else ("fail", "warn")
    verdicts = [verdict for verdict in recorded.verdicts if every or verdict.status in shown]
    verdicts.sort(key=lambda verdict: -STATUSES.index(verdict.status))
    return [_with_note(verdict, _since(recorded.now(verdict.check), recorded)) for verdict in verdicts]


def _past(recorded: Recorded) -> list[Line]:
    """Return a line for each check that was grave and is not now in the way it was."""
    lines = []
    for check in recorded.spells:
        spells = recorded.past(check)
        if spells:
            now = recorded.now(check)
            after = "not judged now" if now is None else f"{now.status} {_since(now, recorded)}"
            told = [_stretch(spell, recorded) for spell in spells[-PAST:]]
            earlier = [f"{len(spells) - PAST:,} times before"] if len(spells) > PAST else []
            worst = max(spells, key=lambda spell: STATUSES.index(spell.status))
            lines.append(_with_note(worst.verdict, "; ".join([*earlier, *told, after])))
    return lines


def _with_note(verdict: Verdict, told: str) -> Line:
    """Return the line of a verdict, and below it first what is told of its course."""
    line = judged_line(verdict, {})
    return (
        replace(line, below=((told, ""), *line.below))
        if line.below
        else replace(line, note=f"{line.note}  {told}".strip())
    )


def _since(spell: Spell | None, recorded: Recorded) -> str:
    return "" if spell is None else f"since {'step ' * steps_known(recorded)}{_place(spell.since, recorded)}"


def _stretch(spell: Spell, recorded: Recorded) -> str:
    unit = "step " if steps_known(recorded) else ""
    since, until = _place(spell.since, recorded), _place(spell.until, recorded)
    covered = f"at {unit}{since}" if spell.windows == 1 else f"from {unit}{since} to {until}"
    return f"{spell.status} {covered}"
