"""`embedwatch attention`: where the heads of a model look in given texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.exits import EXIT_INTERNAL, EXIT_JUDGED, EXIT_OK, is_grave, judged_any, tell_errors
from embedwatch.cli.options import color_option, debug_option, fail_on_option, json_option, quiet_option, seed_option
from embedwatch.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from embedwatch.attention_study import AttentionStudy
    from embedwatch.core.exhibit import Exhibit

__all__ = ["attention_command"]

TEXTS = 256
"""So many texts of a file are read at most: the first ones."""
SHADES = " ·░▒▓█"
"""A share of 0, and then up to 0.02, 0.1, 0.25, 0.5 and 1."""
STEPS = (0.02, 0.1, 0.25, 0.5)
LEAST_SHOWN = 0.005
NAME = 14


@click.command("attention", short_help="Judge where the heads of a model look in given texts.")
@click.argument("model", metavar="MODEL")
@click.option("--text", required=True, metavar="FILE", help="Texts that it reads, one a line; short ones are joined.")
@click.option("--heads", metavar="L.H,...", help="Draw maps of these heads: layer and head, from 0, such as 3.5,0.1.")
@click.option("--length", type=int, metavar="TOKENS", help="Of a passage; by default 256, or what the model takes.")
@click.option("--only", metavar="NAME", multiple=True, help="Keep this statistic, measurement or check.")
@click.option("--skip", metavar="NAME", multiple=True, help="Leave out such a one; both are repeatable.")
@seed_option("Of the sample of queries.")
@fail_on_option
@click.option("-v", "--verbose", is_flag=True, help="Print every layer and every measurement.")
@json_option
@quiet_option
@color_option
@debug_option
def attention_command(
    *,
    model: str,
    text: str,
    heads: str | None,
    length: int | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    seed: int,
    fail_on: str,
    verbose: bool,
    as_json: bool,
    quiet: bool,
    color: str,
) -> int:
    """Judge the attention of MODEL on texts: a model folder, or the name of a model in the local Hugging Face cache.

    Each layer is judged as a layer of a live model is; each head is told of in words: too diffuse, too concentrated, on
    the diagonal only, nothing far, redundant, dead, a sink. Maps show the first 64 tokens. --json holds every number of
    every head, and the maps of those that were asked for, or else of the most striking ones.

    \b
    Examples:
      embedwatch attention ./my-model --text texts.txt
      embedwatch attention ./my-model --text texts.txt --heads 3.5,0.1
      embedwatch attention ./my-model --text texts.txt --json
    """
    from embedwatch.attention_study import LEAST, parse_heads, study_attention
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.core.boundary import Boundary
    from embedwatch.loading.subject import load_subject
    from embedwatch.reading import silent

    if length is not None and length < LEAST:
        raise UsageError(f"`length` must be at least {LEAST} tokens, got {length}; a shorter passage tells nothing")
    asked = () if heads is None else parse_heads(heads)
    terminal, errors = open_terminals(color)
    progress = silent if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    subject, boundary = load_subject(model), Boundary()
    study = study_attention(
        subject,
        _texts(text),
        heads=asked,
        length=length,
        only=only,
        skip=skip,
        seed=seed,
        boundary=boundary,
        progress=progress,
    )
    if study is None:
        raise UsageError("`only` and `skip` leave nothing of attention to measure; `embedwatch list` shows all names")
    counts = _counts(study)
    counted = tuple((stage, name, count) for (stage, name), count in boundary.errors.items())
    failed = is_grave(counts, fail_on) or not judged_any(counts)
    status = EXIT_JUDGED if failed else EXIT_INTERNAL if counted else EXIT_OK
    if as_json:
        _print_json(study, counts, counted, status)
    else:
        _print(terminal, study, quiet=quiet, verbose=verbose)
        if asked and not quiet:
            for exhibit in study.overview.exhibits[1:]:
                _print_map(terminal, exhibit)
        found = [f"{count} {name}" for name, count in counts.items() if count]
        terminal.print((" · ".join(found) or "nothing could be judged") + f"  (exit {status})", style="bold")
    tell_errors(counted)
    return status


def _texts(path: str) -> Sequence[str]:
    from pathlib import Path

    from embedwatch.sources.texts import first_texts

    return first_texts(Path(path), TEXTS)


def _counts(study: AttentionStudy) -> dict[str, int]:
    from embedwatch.core.verdict import STATUSES

    statuses = [verdict.status for judged in study.layers for verdict in judged.verdicts]
    return {status: statuses.count(status) for status in reversed(STATUSES)}


def _print_json(
    study: AttentionStudy, counts: dict[str, int], errors: Sequence[tuple[str, str, int]], status: int
) -> None:
    data = {
        "counts": counts,
        "errors": [{"stage": stage, "name": name, "count": count} for stage, name, count in errors],
        "heads": [
            {
                "layer": head.layer,
                "head": head.head,
                "place": head.place,
                "words": head.words(),
                "measurements": dict(head.values),
            }
            for head in study.heads
        ],
        "spaces": [judged.to_json() for judged in study.every],
        "exit": status,
    }
    click.echo(json.dumps(data, ensure_ascii=False, indent=2))


def _print(terminal: Terminal, study: AttentionStudy, *, quiet: bool, verbose: bool) -> None:
    from rich.text import Text

    from embedwatch.sinks._blame import one_line
    from embedwatch.sinks.console import Console, print_paragraph

    provenance, space = study.overview.snapshot.provenance, study.overview.snapshot.space
    if not quiet:
        heading = Text(one_line(str(space)), style="bold").append(f"  {provenance.rows:,} rows", style="dim")
        terminal.print(heading, highlight=False)
        for note in provenance.notes:
            print_paragraph(terminal, note, "", indent=2)
        terminal.print()
    sink = Console(terminal=terminal, verbose=verbose, quiet=quiet)
    for judged in study.layers if verbose or quiet else study.grave[1:]:
        sink.write(judged.snapshot, judged.verdicts, judged.exhibits)


def _print_map(terminal: Terminal, exhibit: Exhibit) -> None:
    """Draw a map: a line for each query with its token, darker where it gives more, and where it gives most."""
    from rich.text import Text

    from embedwatch.sinks.console import pad

    terminal.print(Text(exhibit.caption, style="bold"), soft_wrap=True)
    lines: dict[int, dict[int, float]] = {}
    names: dict[int, str] = {}
    for query, key, query_token, key_token, share in exhibit.rows:
        if isinstance(query, int) and isinstance(key, int) and isinstance(share, float):
            lines.setdefault(query, {})[key] = share
            names[query], names[key] = str(query_token), str(key_token)
    width = max(names, default=0) + 1
    for query, shares in lines.items():
        drawn = "".join(_shade(shares.get(key, 0.0)) for key in range(width))
        most = max(shares, key=lambda key: shares[key])
        line = f"  {pad(names[query][:NAME], NAME, right=True)} {drawn} {names[most]} {shares[most]:.2f}"
        terminal.print(Text(line), soft_wrap=True)
    terminal.print()


def _shade(share: float) -> str:
    """Return the character of a share.

    Example:
        >>> "".join(map(_shade, (0.0, 0.01, 0.05, 0.2, 0.4, 0.9)))
        ' ·░▒▓█'
    """
    if share < LEAST_SHOWN:
        return SHADES[0]
    return SHADES[1 + sum(share > step for step in STEPS)]
