"""`embedwatch align index`: an index for another model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import color_option, debug_option, json_option, quiet_option

if TYPE_CHECKING:
    from embedwatch.align.indexing import IndexCopy

__all__ = ["index_command"]


@click.command("index", short_help="Bake a map into a copy of a FAISS index, or move its vectors.")
@click.argument("aligner", metavar="ALIGNER")
@click.argument("old", metavar="OLD")
@click.option("-o", "--output", metavar="NEW", required=True, help="The new index; it must not be there yet.")
@click.option(
    "--mode",
    type=click.Choice(["bake", "rotate", "migrate"]),
    help="bake: the copy maps its queries; rotate: vectors are turned where they lie; migrate: they are mapped into a "
    "new index. By default bake or migrate, as the dimensions say, or else the side for which ALIGNER was fitted.",
)
@click.option("--allow-lossy", is_flag=True, help="Migrate what a quantiser or projection left of the vectors.")
@click.option("--kind", metavar="KIND", help="What migrate builds, for faiss.index_factory; by default the old kind.")
@click.option("--originals", metavar="FILE", help="The vectors that OLD was built from, to say what it lost of them.")
@json_option
@quiet_option
@color_option
@debug_option
def index_command(
    *,
    aligner: str,
    old: str,
    output: str,
    originals: str | None,
    as_json: bool,
    quiet: bool,
    color: str,
    **options: Any,
) -> None:
    """Write NEW, a FAISS index that another model can use, from the index OLD and the map ALIGNER. OLD stays as it is.

    With a map from the new model into the space of OLD, bake: the copy maps its queries, and what is added to it. With
    a map out of the space of OLD, rotate or migrate: the vectors themselves move. Ids stay in all of them. NEW is
    opened again and compared with what it should be before it gets its name; migrate goes on where it was interrupted.

    \b
    Examples:
      embedwatch align index bridge docs.faiss -o docs-new.faiss --mode bake
      embedwatch align index turn docs.faiss -o turned.faiss --mode rotate
      embedwatch align index forward docs.faiss -o moved.faiss --mode migrate --allow-lossy --originals docs.npy
    """
    from embedwatch.align.aligner import load_aligner
    from embedwatch.align.indexing import align_index
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.sinks._blame import one_line
    from embedwatch.sources import open_source

    terminal, errors = open_terminals(color)
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(index_command, out="output"):
        found = load_aligner(aligner)
        copy = align_index(
            found,
            old,
            output,
            originals=None if originals is None else open_source(originals),
            progress=progress,
            **options,
        )
    if as_json:
        click.echo(json.dumps(copy.to_json(), ensure_ascii=False, indent=2))
    elif not quiet:
        for line in _lines(copy, output):
            terminal.print(one_line(line), markup=False, soft_wrap=True)


def _lines(copy: IndexCopy, output: str) -> list[str]:
    """Return what people read."""
    verb = {"bake": "map baked into a copy", "rotate": "vectors turned", "migrate": "vectors mapped"}[copy.mode]
    dimensions = f"{copy.dimension_before} → {copy.dimension_after} dimensions"
    lines = [f"{output}: {verb}, {copy.before} → {copy.after}, {copy.rows:,} vectors, {dimensions}"]
    if copy.checked:
        near = (
            "" if copy.cosine_mean is None else f", cosine mean {copy.cosine_mean:.4f}, least {copy.cosine_least:.4f}"
        )
        lines.append(f"  read again: {copy.checked:,} vectors and their ids{near}")
    if copy.same_answers is not None:
        lines.append(f"  answers: {copy.same_answers:.2%} of the 10 nearest as before")
    if copy.recall is not None:
        lines.append(f"  recall@10: {copy.recall:.3f} of the mapped vectors' true neighbours")
    if copy.loss_mean is not None:
        lines.append(
            f"  loss of the old index: cosine with the originals mean {copy.loss_mean:.4f}, least {copy.loss_least:.4f}"
        )
    return [*lines, *(f"  note: {note}" for note in copy.notes)]
