"""`embedwatch explain`: verdicts in plain words."""

from __future__ import annotations

import json
from collections import Counter

import click

from embedwatch.cli.options import color_option, debug_option, json_option

__all__ = ["explain_command"]

EXPLAIN_SCHEMA = 1
"""Version of the JSON that `embedwatch explain --json` prints."""
STYLES = {"ok": "green", "unknown": "dim", "warn": "yellow", "fail": "bold red"}
EXIT_OK = 0


@click.command("explain", short_help="Explain verdicts: what was compared, how sure it is, what to do.")
@click.argument("file", metavar="FILE")
@click.argument("check", metavar="[CHECK]", required=False)
@click.option("--place", metavar="GLOB", help="Explain verdicts of these places only: token_table, 'layers.*'.")
@click.option("--all", "every", is_flag=True, help="Explain what is ok too.")
@json_option
@color_option
@debug_option
def explain_command(*, file: str, check: str | None, place: str | None, every: bool, as_json: bool, color: str) -> int:
    """Explain verdicts in plain words: what was compared, how sure it is, what to do.

    Told are the test, the number of rows and how many independent ones they are worth, the value with its limits, the
    size of the change and from where on it matters, how sure it is, what it means, and what would change the verdict.

    FILE is what --json of audit, compare or show printed, a recording or the folder of a run, or the address of a
    daemon; its token is taken from EMBEDWATCH_TOKEN. CHECK is the name of a check, or a glob. Without it, what is not
    ok is explained.

    \b
    Examples:
      embedwatch compare old.npy new.npy --json > found.json
      embedwatch explain found.json
      embedwatch explain found.json drift
      embedwatch explain ./run 'hidden_*' --place 'layers.*'
      embedwatch explain http://localhost:9477 drift --json
    """
    from embedwatch.cli.option_names import in_options
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.explaining import choose_verdicts, read_verdicts
    from embedwatch.sinks.console import print_paragraph

    with in_options(explain_command):
        matching = choose_verdicts(read_verdicts(file), check=check, place=place)
    shown = [verdict for verdict in matching if every or check is not None or verdict.status != "ok"]
    if as_json:
        told = [{**verdict.to_json(), "explained": dict(verdict.topics())} for verdict in shown]
        click.echo(json.dumps({"schema": EXPLAIN_SCHEMA, "verdicts": told}, ensure_ascii=False, indent=2))
        return EXIT_OK
    terminal, _ = open_terminals(color)
    for verdict in shown:
        print_paragraph(terminal, f"{verdict.check}: {verdict.title}, {verdict.space}", "bold", indent=0)
        for topic, sentence in verdict.topics():
            style = STYLES[verdict.status] if topic == "verdict" else ""
            print_paragraph(terminal, f"{topic}: {sentence}", style, indent=2)
        terminal.print()
    left = Counter(verdict.status for verdict in matching) - Counter(verdict.status for verdict in shown)
    if left["ok"]:
        more = "name the check or add --all to explain what is ok"
        terminal.print(f"{left['ok']} ok; {more}", style="dim", soft_wrap=True)
    return EXIT_OK
