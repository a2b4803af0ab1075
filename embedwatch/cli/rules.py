"""`embedwatch rules`: what Prometheus is to alert on and record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.options import debug_option, json_option
from embedwatch.exposition import RUNBOOKS

if TYPE_CHECKING:
    from embedwatch.operations.scope import Scope

__all__ = ["rules_command"]

HEADER = "# Made by `embedwatch rules` of embedwatch {version}.\n"
TESTS_END = ".test.yml"
RULES_END = ".yml"


@click.command("rules", short_help="Print alerting and recording rules for Prometheus.")
@click.option(
    "--runbooks",
    metavar="URL",
    default=RUNBOOKS,
    show_default=True,
    help="Where the folder docs/runbooks is served; {alert} in it stands for the name of an alert.",
)
@click.option("--job", metavar="REGEX", help="Names of the scrape jobs of embedwatch.  [default: embedwatch.*]")
@click.option(
    "--selector", metavar="MATCHERS", default="", help="Matchers that every selector gets besides: 'cluster=\"a\"'."
)
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="Write to this file, whole or not at all.")
@click.option("--tests", is_flag=True, help="Print the unit tests of the rules instead, for `promtool test rules`.")
@json_option
@debug_option
def rules_command(
    *, runbooks: str, job: str | None, selector: str, out: Path | None, tests: bool, as_json: bool
) -> None:
    """Print rules for Prometheus: alerts, and a few numbers to record for each model.

    There is an alert on each check that can fail, those of other packages too, and several on embedwatch itself.
    Tests look for the rules in embedwatch.rules.yml; with --out NAME.test.yml, in NAME.yml beside it.

    \b
    Examples:
      embedwatch rules --out embedwatch.rules.yml
      embedwatch rules --runbooks https://wiki.example.org/runbooks
      embedwatch rules --job 'training-.*' --selector 'cluster="a"'
      embedwatch rules --tests --out embedwatch.rules.test.yml
      embedwatch rules --json | jq -r '.groups[].rules[].alert | values'
    """
    from embedwatch import __version__
    from embedwatch.operations.files import yaml_text
    from embedwatch.operations.scope import Scope
    from embedwatch.whole_files import write_whole

    chosen = {} if job is None else {"job": job}
    scope = Scope(selector=selector, runbooks=runbooks, **chosen)
    made = _tests(scope, out) if tests else _rules(scope)
    text = _json_text(made) if as_json else HEADER.format(version=__version__) + yaml_text(made)
    if out is None:
        click.echo(text, nl=False)
    else:
        write_whole(out, text.encode("utf-8"))
        click.echo(f"{out} is written.", err=True)


def _json_text(made: dict[str, Any]) -> str:
    """Return the rules as JSON, which is YAML for Prometheus."""
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _rules(scope: Scope) -> dict[str, Any]:
    from embedwatch.core import Check
    from embedwatch.core.registry import registered
    from embedwatch.operations.rules import rule_file

    return scope.applied(rule_file(list(registered(Check).values())))


def _tests(scope: Scope, out: Path | None) -> dict[str, Any]:
    from embedwatch.core import Check
    from embedwatch.core.registry import registered
    from embedwatch.operations.rules import rule_tests
    from embedwatch.operations.scoped_trials import scoped_trials
    from embedwatch.operations.trials import RULES

    named = out is not None and out.name.endswith(TESTS_END)
    path = out.name.removesuffix(TESTS_END) + RULES_END if out is not None and named else RULES
    return scoped_trials(rule_tests(list(registered(Check).values())), scope, _rules(scope), path=path)
