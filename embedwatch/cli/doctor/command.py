"""`embedwatch doctor`: is what is here fit to work?"""

from __future__ import annotations

import json
import platform
from itertools import groupby
from typing import TYPE_CHECKING

import click

from embedwatch import __version__
from embedwatch.cli.doctor.findings import Finding, worst
from embedwatch.cli.exits import is_grave
from embedwatch.cli.options import color_option, debug_option, fail_on_option, json_option, quiet_option

if TYPE_CHECKING:
    from rich.console import Console as Terminal

__all__ = ["doctor_command"]

STYLES = {"ok": "green", "info": "dim", "warn": "yellow", "fail": "bold red"}


@click.command("doctor", short_help="Say whether this installation is fit to work.")
@click.option("--skip-trial", is_flag=True, help="Leave out the tiny run.")
@fail_on_option
@json_option
@quiet_option
@color_option
@debug_option
def doctor_command(*, skip_trial: bool, fail_on: str, as_json: bool, quiet: bool, color: str) -> int:
    """Look at packages and their ranges, extras, threads, forks and the device; then try a tiny run.

    The run audits vectors, sound ones and faulty ones, and watches a tiny model as it learns; it needs no network and
    leaves nothing behind. Where something is wrong the line below says what to do.

    \b
    Examples:
      embedwatch doctor
      embedwatch doctor --json --fail-on warn
    """
    from embedwatch.cli.doctor.machine import examine_machine
    from embedwatch.cli.doctor.packages import examine_packages
    from embedwatch.cli.doctor.trial import run_trial
    from embedwatch.cli.terminals import open_terminals

    findings = examine_packages()
    if any(finding.status == "fail" for finding in findings):
        skip_trial = True  # what is missing would only fail a second time
    else:
        tried = [] if skip_trial else run_trial()
        findings = [*findings, *examine_machine(), *tried]  # libraries show their threads once they are loaded
    counts = {state: sum(finding.status == state for finding in findings) for state in STYLES}
    status = int(is_grave(counts, fail_on))
    if as_json:
        about = {"embedwatch": __version__, "python": platform.python_version(), "platform": platform.platform()}
        told = [finding._asdict() for finding in findings]
        answer = {**about, "status": worst(findings), "counts": counts, "findings": told, "exit": status}
        click.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return status
    terminal, _ = open_terminals(color)
    _print(terminal, findings, quiet=quiet)
    said = [f"{count} {state}" for state, count in counts.items() if count]
    terminal.print(" · ".join(said) + f"  (exit {status})", style="bold", markup=False)
    return status


def _print(terminal: Terminal, findings: list[Finding], *, quiet: bool) -> None:
    if not quiet:
        told = (
            f"embedwatch {__version__} · Python {platform.python_version()} · {platform.system()} {platform.machine()}"
        )
        terminal.print(told, markup=False, soft_wrap=True)
    width = max(len(finding.name) for finding in findings)
    for part, group in groupby(findings, key=lambda finding: finding.part):
        shown = [finding for finding in group if not quiet or finding.status in ("warn", "fail")]
        if shown:
            terminal.print(part, markup=False)
        for finding in shown:
            terminal.print(f"  {finding.status:<5}", style=STYLES[finding.status], end="", markup=False)
            terminal.print(f" {finding.name:<{width}}  {finding.reason}", markup=False, soft_wrap=True)
            if finding.remedy:
                terminal.print(f"        {'':<{width}}→ {finding.remedy}", markup=False, soft_wrap=True)
