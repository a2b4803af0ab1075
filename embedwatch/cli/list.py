"""`embedwatch list`: what is there."""

from __future__ import annotations

import json
from typing import Any

import click

from embedwatch.cli.options import debug_option, json_option

__all__ = ["list_command"]

KINDS = ("statistics", "metrics", "checks", "sinks", "sources", "diagnostics", "faults")


@click.command("list", short_help="Show what is measured, checked, read and written.")
@click.argument("kind", type=click.Choice(KINDS), required=False)
@json_option
@debug_option
def list_command(*, kind: str | None, as_json: bool) -> None:
    """Show statistics, metrics, checks, sinks, sources, diagnostics and faults, those of other packages too.

    \b
    Examples:
      embedwatch list
      embedwatch list checks
      embedwatch list metrics --json
    """
    found = {name: _entries(name) for name in ([kind] if kind else KINDS)}
    if as_json:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for name, entries in found.items():
        if kind is None and not entries:
            continue
        click.echo(name)
        width = max((len(entry["name"]) for entry in entries), default=0)
        for entry in entries:
            click.echo(f"  {entry['name']:{width}}  {entry['summary']}")


def _entries(kind: str) -> list[dict[str, Any]]:
    from embedwatch.core import Check, Diagnostic, Sink, Source, Statistic
    from embedwatch.core.registry import Plugin, registered
    from embedwatch.drills.fault import Fault

    if kind == "metrics":
        measuring: list[Any] = [*registered(Statistic).values(), *registered(Diagnostic).values()]
        metrics = [(metric, owner) for owner in measuring for metric in owner.metrics]
        return [
            {
                "name": m.name,
                "summary": m.help,
                "kind": m.kind,
                "unit": m.unit,
                "healthy": m.healthy,
                "from": owner.name,
            }
            for m, owner in sorted(metrics, key=lambda entry: entry[0].name)
        ]
    bases: dict[str, type[Plugin]] = {
        "statistics": Statistic,
        "checks": Check,
        "sinks": Sink,
        "sources": Source,
        "diagnostics": Diagnostic,
        "faults": Fault,
    }
    classes = registered(bases[kind])
    return [{"name": name, "summary": cls.summary(), "module": cls.__module__} for name, cls in classes.items()]
