"""`embedwatch reference`: keep a healthy state, look at it, join two."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.exits import EXIT_INTERNAL, EXIT_OK, tell_errors
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import (
    color_option,
    debug_option,
    json_option,
    model_option,
    quiet_option,
    reading_options,
)

if TYPE_CHECKING:
    from embedwatch.references import Reference

__all__ = ["reference_command"]

output_option = click.option("-o", "--output", metavar="DIR", required=True, help="Folder to write; must not exist.")
replace_option = click.option("--replace", is_flag=True, help="Replace the reference that is in DIR.")


@click.group("reference", short_help="Keep a healthy state to compare with: create, show, merge.")
def reference_command() -> None:
    """Keep a healthy state of an embedding space, and compare with it later.

    \b
    Examples:
      embedwatch reference create january.npy february.npy -o healthy
      embedwatch reference show healthy
      embedwatch compare healthy march.npy
    """


@reference_command.command("create", short_help="Fit and calibrate on healthy rows, and write a folder.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@output_option
@replace_option
@model_option
@reading_options
@click.option("--like", metavar="DIR", help="Take the maps of this reference: both can be merged, exactly.")
@click.option("--no-rows", is_flag=True, help="Keep no rows and no names: only sums, maps and hashes.")
@json_option
@quiet_option
@color_option
@debug_option
def create_command(
    *,
    sources: tuple[str, ...],
    output: str,
    replace: bool,
    like: str | None,
    no_rows: bool,
    as_json: bool,
    quiet: bool,
    color: str,
    **options: Any,
) -> int:
    """Read healthy rows once, in the order of time, and write what later rows are compared with.

    The first half fits, the second calibrates: 200 rows at least, 2,000 and more advised; where the stream keeps to a
    topic for long, more. A sample of 4,096 rows is kept with their names, unless --no-rows says otherwise.

    \b
    Examples:
      embedwatch reference create healthy.npy -o healthy
      embedwatch reference create questions.txt --model ./my-model -o healthy
      embedwatch reference create monday.parquet tuesday.parquet --select embedding -o week
      embedwatch reference create other-half.npy --like half -o half2
    """
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.core.boundary import Boundary
    from embedwatch.references import FOLDER, create_reference, load_reference, save_reference

    _, errors = open_terminals(color)
    target, boundary = Path(output), Boundary()
    FOLDER.check_target(target, replace=replace)  # before hours of reading
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(create_command):
        made = create_reference(
            *sources,
            like=None if like is None else load_reference(Path(like)),
            keep_rows=not no_rows,
            progress=progress,
            boundary=boundary,
            **options,
        )
    save_reference(made, target, replace=replace)
    tell_errors((stage, name, count) for (stage, name), count in boundary.errors.items())
    if not quiet or as_json:
        _show(made, target, as_json=as_json)
    return EXIT_INTERNAL if boundary.errors else EXIT_OK


@reference_command.command("show", short_help="Say what a reference is made of.")
@click.argument("folder", metavar="DIR")
@json_option
@debug_option
def show_reference_command(*, folder: str, as_json: bool) -> None:
    """Read a reference, check that it is whole, and say what it is made of.

    \b
    Examples:
      embedwatch reference show healthy
      embedwatch reference show healthy --json
    """
    from embedwatch.references import load_reference

    _show(load_reference(Path(folder)), Path(folder), as_json=as_json)


@reference_command.command("merge", short_help="Join references that share their maps, exactly.")
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@output_option
@replace_option
@json_option
@quiet_option
@debug_option
def merge_command(*, folders: tuple[str, ...], output: str, replace: bool, as_json: bool, quiet: bool) -> None:
    """Write the reference of all rows of some, which has the numbers of one pass over them.

    That needs the same maps: make the further ones with `embedwatch reference create ... --like FIRST`.

    \b
    Examples:
      embedwatch reference merge half half2 -o whole
    """
    from embedwatch.core.errors import UsageError
    from embedwatch.references import load_reference, save_reference

    if len(folders) < 2:
        raise UsageError(f"`DIR...` must name at least two references, got {folders[0]} alone; name another")
    first, *others = (load_reference(Path(folder)) for folder in folders)
    for other in others:
        first = first.merge(other)
    save_reference(first, Path(output), replace=replace)
    if not quiet or as_json:
        _show(first, Path(output), as_json=as_json)


def _show(reference: Reference, path: Path, *, as_json: bool) -> None:
    if as_json:
        size = sum(file.stat().st_size for file in path.iterdir())
        click.echo(
            json.dumps({"folder": str(path), "bytes": size, **reference.to_json()}, ensure_ascii=False, indent=2)
        )
        return
    from rich.table import Table

    from embedwatch.cli.terminals import open_terminals

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in _lines(reference, path):
        table.add_row(name, value)
    open_terminals("auto")[0].print(table, markup=False)


def _lines(reference: Reference, path: Path) -> list[tuple[str, str]]:
    origin = reference.origin
    calibrating = origin.rows - origin.fitted
    created = datetime.fromtimestamp(origin.created, timezone.utc).isoformat(" ", "seconds").replace("+00:00", " UTC")
    length = "all of length 1" if origin.is_unit else "of several lengths"
    missing = reference.unknown_without_rows()
    lines = [
        ("reference", f"{path}  fingerprint {reference.fingerprint}"),
        ("space", str(origin.space)),
        ("rows", f"{origin.rows:,}: {origin.fitted:,} fitted, {calibrating:,} calibrate"),
        ("vectors", f"{origin.dimension}-d · {origin.dtype} · {length}"),
        *((f"source {place}", f"{part.label}  {part.rows:,} rows") for place, part in enumerate(origin.parts, 1)),
        ("created", created),
        ("statistics", ", ".join(sorted(reference.maps))),
        ("rows kept", "none" if reference.kept is None else f"{len(reference.kept):,}"),
    ]
    lines += [("unknown", ", ".join(missing))] if missing else []
    lines += [("left out", f"{', '.join(reference.left_out)}: not known here")] if reference.left_out else []
    return lines + [("note", note) for note in origin.notes]
