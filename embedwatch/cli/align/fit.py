"""`embedwatch align fit`: a map from one space into another, chosen by what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import POOLINGS, color_option, debug_option, json_option, quiet_option, seed_option

__all__ = ["fit_command"]


@click.command("fit", short_help="Fit a map from one space into another on the same items in both.")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@click.option("-o", "--output", metavar="ALIGNER", required=True, help="Folder to write; must not exist.")
@click.option("--replace", is_flag=True, help="Replace the aligner that is there.")
@click.option(
    "--side",
    type=click.Choice(["query", "corpus"]),
    default="query",
    show_default=True,
    help="query: mapped rows will search among rows of B; corpus: rows of B will search among mapped ones.",
)
@click.option("--queries", nargs=2, metavar="A B", help="The same queries in both spaces: they fit too, and choose.")
@click.option("--corpus", metavar="FILE", help="Rows of A's space that the map is for: are the anchors of their kind?")
@click.option("--method", "try_methods", multiple=True, metavar="NAME", help="Try this way only; can be given again.")
@click.option("--gallery", type=int, metavar="ROWS", help="Fill the rows that are searched up with anchors.")
@seed_option("Another one sets other pairs aside to judge.")
@click.option("--left-name", metavar="NAME", help="Model that wrote A: rows of another are refused later.")
@click.option("--right-name", metavar="NAME", help="Model that wrote B.")
@click.option("--text", metavar="FILE", help="A, B or both are models: encode these texts, one a line.")
@click.option("--left-pooling", type=click.Choice(POOLINGS), help="How token vectors of model A become one.")
@click.option("--right-pooling", type=click.Choice(POOLINGS), help="The same for model B.")
@click.option("--left-prefix", metavar="TEXT", help='Put before each text for model A, like "query: ".')
@click.option("--right-prefix", metavar="TEXT", help="The same for model B.")
@click.option("--left-select", metavar="NAME", help="Array, tensor or column of A.")
@click.option("--right-select", metavar="NAME", help="The same of B.")
@click.option("--as", "kind", metavar="KIND", help="Read both as this kind; see `embedwatch list sources`.")
@json_option
@quiet_option
@color_option
@debug_option
def fit_command(
    *,
    left: str,
    right: str,
    output: str,
    replace: bool,
    as_json: bool,
    quiet: bool,
    color: str,
    queries: tuple[str, str] | None,
    left_name: str | None,
    right_name: str | None,
    kind: str | None,
    **options: Any,
) -> None:
    """Fit a map from the space of A into that of B, which hold the same items row by row.

    A fifth of the pairs, 2,000 at most, judges and is not fitted on. Each way is judged by what mapped rows find; the
    simplest within a standard error of the best is taken. The map is a bridge: what it loses is printed, and kept with
    it.

    \b
    Examples:
      embedwatch align fit new.npy old.npy -o bridge
      embedwatch align fit new.npy old.npy --queries new-q.npy old-q.npy -o bridge
      embedwatch align fit old.npy new.npy --side corpus -o migrate
      embedwatch align fit ./new-model ./old-model --text texts.txt -o bridge
    """
    from embedwatch.align.fitting import fit_aligner
    from embedwatch.align.folder import FOLDER
    from embedwatch.align.pair_inputs import Recipe
    from embedwatch.cli.terminals import open_terminals

    terminal, errors = open_terminals(color)
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    FOLDER.check_target(Path(output), replace=replace)  # before hours of reading
    recipes = tuple(
        Recipe(options.pop(f"{side}_pooling"), options.pop(f"{side}_prefix"), kind, options.pop(f"{side}_select"))
        for side in ("left", "right")
    )
    with in_options(fit_command, method="try_methods"):
        aligner = fit_aligner(
            left, right, queries=queries, names=(left_name, right_name), recipes=(recipes[0], recipes[1]),
            progress=progress, **options,
        )  # fmt: skip
    aligner.save(output, replace=replace)
    if as_json:
        click.echo(json.dumps({"folder": output, **aligner.to_json()}, ensure_ascii=False, indent=2))
    else:
        from embedwatch.cli.align.fit_table import print_fit

        print_fit(terminal, aligner, output, quiet=quiet)
