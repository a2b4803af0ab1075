"""`embedwatch metrics`: what is exported to Prometheus, and how much that is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.options import debug_option, json_option

if TYPE_CHECKING:
    from embedwatch.exposition import Family
    from embedwatch.operations.estimate import Estimate

__all__ = ["metrics_command"]

COLUMNS = ("name", "type", "labels", "unit", "help")
SIZES = ("name", "series", "share", "bytes")
RIGHT = frozenset(SIZES[1:])
"""Columns of numbers."""
PLACES, ATTENTION, MODELS, HEADS = 10, 8, 1, 0
MOST = 100_000
"""Of anything that is counted: more are a slip."""
NAMED = 10
"""So many families, the largest, are shown one by one."""
Row = Sequence[str]


@click.command("metrics", short_help="Show what is exported to Prometheus, and how many series that is.")
@click.option("--grep", metavar="REGEX", help="Show families whose name or help matches, whatever the case.")
@click.option("--estimate", "estimated", is_flag=True, help="Show how many series a Monitor exports, by family.")
@click.option("--places", type=click.IntRange(1, MOST), help=f"Places of each model.  [default: {PLACES}]")
@click.option(
    "--attention-layers",
    "attention",
    type=click.IntRange(0, MOST),
    help=f"Layers of each model whose attention is watched.  [default: {ATTENTION}]",
)
@click.option("--models", type=click.IntRange(1, MOST), help=f"Models in one process.  [default: {MODELS}]")
@click.option("--heads", type=click.IntRange(0, MOST), help=f"Heads of each hidden place.  [default: {HEADS}]")
@click.option("--daemon", is_flag=True, help="Count what `embedwatch serve` exports beside them.")
@click.option("--markdown", is_flag=True, help="Print a table in Markdown.")
@json_option
@debug_option
def metrics_command(
    *,
    grep: str | None,
    estimated: bool,
    places: int | None,
    attention: int | None,
    models: int | None,
    heads: int | None,
    daemon: bool,
    markdown: bool,
    as_json: bool,
) -> None:
    """Show every family that is exported to Prometheus: name, type, labels, unit and help, other packages' too.

    With --estimate: how many series that comes to for so many places, what they weigh in a scrape, and which families
    they are. Of a model's places six are there once: the Monitor itself, the training, the tokens' vectors, the table
    as a whole and token by token, and what enters the first layer; all others are hidden states. Layers whose attention
    is watched come on top. Each check that has
    failed once adds a series. With --daemon: what the daemon that collects them tells of itself comes on top.

    \b
    Examples:
      embedwatch metrics --grep 'norm|rank'
      embedwatch metrics --json
      embedwatch metrics --estimate
      embedwatch metrics --estimate --places 38 --models 2
      embedwatch metrics --estimate --places 11 --heads 32
      embedwatch metrics --estimate --daemon --models 4
    """
    numbers = {"places": places, "attention": attention, "models": models, "heads": heads}
    given: dict[str, int] = {name: number for name, number in numbers.items() if number is not None}
    given |= {"daemon": True} if daemon else {}
    if given and not estimated:
        option = next(iter(given)).replace("attention", "attention-layers")
        raise click.UsageError(f"--{option} goes with --estimate.")
    if markdown and as_json:
        raise click.UsageError("--markdown and --json exclude each other.")
    matches = _matching(grep)
    (_show_estimate if estimated else _show_catalogue)(matches, markdown=markdown, as_json=as_json, **given)


def _matching(pattern: str | None) -> re.Pattern[str]:
    try:
        return re.compile(pattern or "", re.IGNORECASE)
    except re.error as error:
        raise click.UsageError(f"--grep must be a regular expression, got {pattern!r}: {error}.") from error


def _chosen(families: Mapping[str, Family], pattern: re.Pattern[str]) -> list[Family]:
    from embedwatch.core.errors import UsageError

    found = [families[name] for name in sorted(families)]
    found = [each for each in found if pattern.search(each.name) or pattern.search(each.help)]
    if not found:
        raise UsageError(f"`--grep` must match a family, got {pattern.pattern!r}; leave it out to see all")
    return found


def _show_catalogue(pattern: re.Pattern[str], *, markdown: bool, as_json: bool) -> None:
    from embedwatch.exposition import catalogue

    found = _chosen(catalogue(), pattern)
    if as_json:
        entries = [dict(zip(COLUMNS, (f.name, f.kind, list(f.labels), f.unit, f.help), strict=True)) for f in found]
        click.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    _print(COLUMNS, [(f.name, f.kind, ",".join(f.labels), f.unit, f.help) for f in found], markdown=markdown)


def _show_estimate(pattern: re.Pattern[str], *, markdown: bool, as_json: bool, **given: int) -> None:
    from embedwatch.exposition import catalogue
    from embedwatch.operations.estimate import estimate

    daemon = bool(given.pop("daemon", False))
    made = estimate(
        **{"places": PLACES, "attention": ATTENTION, "models": MODELS, "heads": HEADS, **given}, daemon=daemon
    )
    known = catalogue()
    chosen = {family.name for family in _chosen({name: known[name] for name in made.families}, pattern)}
    if as_json:
        click.echo(json.dumps(_as_json(made, chosen), indent=2))
        return
    shown = [name for name in made.families if name in chosen]
    rest = shown[NAMED:] if not pattern.pattern else []
    rows = [_size_row(made, name, [name]) for name in shown if name not in rest]
    if rest:
        rows.append(_size_row(made, f"{len(rest)} others", rest))
    rows.append(_size_row(made, "total", made.families))
    _print(SIZES, rows, markdown=markdown)
    click.echo("\n" + "\n".join(_words(made)))


def _size_row(made: Estimate, name: str, families: Iterable[str]) -> Row:
    sizes = [made.families[family] for family in families]
    series = sum(size.series for size in sizes)
    return name, f"{series:,}", f"{series / made.total.series:.0%}", f"{sum(size.bytes for size in sizes):,}"


def _words(made: Estimate) -> Iterator[str]:
    """Yield sentences on where the series come from, and on the limit."""
    places = ", ".join(f"{count:,} {role}" for role, count in made.roles.items())
    yield f"Places of each model, of which there {'is 1' if made.models == 1 else f'are {made.models:,}'}: {places}."
    yield "Series of one place: " + ", ".join(f"{role} {size.series:,}" for role, size in made.places.items()) + "."
    if made.daemon.series:
        yield f"The daemon itself has {made.daemon.series:,}."
    exporter = "daemon" if made.daemon.series else "sink"
    if made.room < 0 and made.daemon.series:
        yield f"The daemon exports at most {made.limit:,}: {-made.room:,} would be left out; run several."
    elif made.room < 0:
        yield f"The sink exports at most {made.limit:,}: {-made.room:,} would be left out; `max_series` raises that."
    else:
        yield f"The {exporter} exports at most {made.limit:,}: there is room for {made.room:,} more."


def _as_json(made: Estimate, chosen: Iterable[str]) -> dict[str, Any]:
    kept = set(chosen)
    return {
        "models": made.models,
        "places": dict(made.roles),
        "series": made.total.series,
        "bytes": made.total.bytes,
        "limit": made.limit,
        "left_out": max(0, -made.room),
        "daemon": made.daemon.series,
        "of_one_place": {role: size.series for role, size in made.places.items()},
        "families": {
            name: {"series": size.series, "bytes": size.bytes} for name, size in made.families.items() if name in kept
        },
    }


def _print(columns: Row, rows: Sequence[Row], *, markdown: bool) -> None:
    """Print a table: in columns, or in Markdown."""
    if markdown:
        lines = [columns, ["---:" if name in RIGHT else "---" for name in columns], *rows]
        for line in lines:
            click.echo("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |")
        return
    widths = [max(len(row[index]) for row in [columns, *rows]) for index in range(len(columns))]
    for row in [columns, *rows]:
        cells = [
            cell.rjust(width) if name in RIGHT else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())
