"""`embedwatch align apply`: rows go through a map into a file."""

from __future__ import annotations

import json
from typing import Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import (
    color_option,
    debug_option,
    json_option,
    model_option,
    quiet_option,
    reading_options,
)

__all__ = ["apply_command"]


@click.command("apply", short_help="Map rows into the other space, and write them.")
@click.argument("aligner", metavar="ALIGNER")
@click.argument("rows", metavar="IN")
@click.option("-o", "--output", metavar="OUT", required=True, help="Ends in .npy, .parquet or .safetensors.")
@click.option("--replace", is_flag=True, help="Write over OUT.")
@click.option("--name", metavar="NAME", help="Model that wrote IN: it must be the one that the map is for.")
@model_option
@reading_options
@json_option
@quiet_option
@color_option
@debug_option
def apply_command(
    *,
    aligner: str,
    rows: str,
    output: str,
    replace: bool,
    name: str | None,
    as_json: bool,
    quiet: bool,
    color: str,
    **options: Any,
) -> None:
    """Map the rows of IN with ALIGNER, a folder that `align fit` wrote, and write them to OUT, a part at a time.

    Rows keep their order and their ids; each has length 1. Rows of another model are refused as far as that can be
    seen: by the dimension, by the name or the model itself, and from 64 rows on by the directions that they leave
    empty.

    \b
    Examples:
      embedwatch align apply bridge queries.npy -o mapped.npy
      embedwatch align apply bridge queries.txt --model ./new-model -o mapped.parquet
      embedwatch align apply migrate old.faiss -o new.parquet
    """
    from embedwatch.align.aligner import load_aligner
    from embedwatch.align.applying import apply_aligner
    from embedwatch.align.pair_inputs import Recipe
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.reading import open_rows
    from embedwatch.sinks._blame import one_line

    terminal, errors = open_terminals(color)
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(apply_command):
        found = load_aligner(aligner)
        source = open_rows([rows], **options)[0][1]
        recipe = Recipe(options["pooling"], options["prefix"], options["kind"], options["select"])
        applied = apply_aligner(found, source, output, name=name, recipe=recipe, replace=replace, progress=progress)
    if as_json:
        click.echo(json.dumps(applied.to_json(), ensure_ascii=False, indent=2))
        return
    for note in applied.notes:
        terminal.print(f"  note  {one_line(note)}", markup=False)
    if not quiet:
        terminal.print(
            f"{one_line(applied.output)}: {applied.rows:,} rows of {applied.dimension} dimensions by {found.method}",
            style="bold",
            markup=False,
        )
