"""`embedwatch config`: what can be set about the daemon, and whether a file is right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from embedwatch.cli.options import debug_option, json_option
from embedwatch.cli.serve import needs_daemon

__all__ = ["config_command"]

WRONG = 2
SECRET = re.compile(r"(?<=://)[^/@\s]+@")
"""What stands before the host in a URL: a name and a password."""
MASK = "***@"


@click.group("config", short_help="Check, show and describe the daemon's configuration.")
def config_command() -> None:
    """Check, show and describe the configuration of `embedwatch serve`.

    \b
    Examples:
      embedwatch config show > embedwatch.yaml
      embedwatch config check embedwatch.yaml
      embedwatch config schema > embedwatch.schema.json
    """


@config_command.command("check", short_help="Say what is wrong with a configuration.")
@click.argument("file", metavar="FILE")
@json_option
@debug_option
def check_command(*, file: str, as_json: bool) -> int:
    """Read FILE as `embedwatch serve` would, with the environment and the files of secrets and certificates.

    Every problem is one line, and says what to do. Exit status: 0 it is right, 2 it is not.

    \b
    Examples:
      embedwatch config check embedwatch.yaml
      embedwatch config check embedwatch.yaml --json
    """
    needs_daemon()
    from embedwatch.daemon.checking import check_config

    problems = check_config(Path(file))
    if as_json:
        click.echo(json.dumps({"file": file, "right": not problems, "problems": problems}, ensure_ascii=False))
        return WRONG if problems else 0
    for problem in problems:
        click.echo(problem, err=True)
    if not problems:
        click.echo(f"{file} is right.")
    return WRONG if problems else 0


@config_command.command("show", short_help="Print the configuration that would be in use.")
@click.argument("file", metavar="[FILE]", required=False)
@json_option
@debug_option
def show_config_command(*, file: str | None, as_json: bool) -> None:
    """Print everything that would be in use, defaults included: FILE, and the environment above it.

    Secrets stand in files of their own, of which only the paths are shown; passwords in addresses are masked.

    \b
    Examples:
      embedwatch config show
      embedwatch config show embedwatch.yaml --json
      EMBEDWATCH_EVALUATION__INTERVAL=5m embedwatch config show
    """
    needs_daemon()
    from embedwatch.daemon.checking import yaml_of
    from embedwatch.daemon.config_file import load_config

    config = load_config(Path(file) if file else None)
    shown = _masked(config.model_dump(mode="json"))
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False) + "\n" if as_json else yaml_of(shown), nl=False)


@config_command.command("schema", short_help="Print the JSON schema of the configuration.")
@debug_option
def schema_command() -> None:
    """Print the JSON schema, for editors and for check-jsonschema.

    \b
    Examples:
      embedwatch config schema > embedwatch.schema.json
      check-jsonschema --schemafile embedwatch.schema.json embedwatch.yaml
    """
    needs_daemon()
    from embedwatch.daemon.config import config_schema

    click.echo(json.dumps(config_schema(), indent=2, ensure_ascii=False))


def _masked(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _masked(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_masked(value) for value in data]
    return SECRET.sub(MASK, data) if isinstance(data, str) else data
