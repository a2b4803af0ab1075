"""`embedwatch demo`: a model at work, watched, with a fault that comes and goes."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from embedwatch.cli.options import debug_option, quiet_option
from embedwatch.core.errors import UsageError

__all__ = ["demo_command"]

PORT = 9477
HOST = "127.0.0.1"


LEAST = 40.0
"""Seconds in which a fault has time to come, to be seen, and to go."""


def _seconds(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of a duration as people write it: 90s, 2m, 1h30m."""
    from embedwatch.daemon.units import duration

    if value is None:
        return None
    try:
        seconds = duration(value)
    except UsageError as error:
        raise click.BadParameter(str(error)) from error
    if seconds < LEAST:
        raise click.BadParameter(f"must be at least {LEAST:.0f}s, so that the fault comes and goes, got {value}")
    return seconds


@click.command("demo", short_help="Watch a model at work, with a fault that comes and goes.")
@click.option(
    "--model", type=click.Path(path_type=Path), metavar="DIR", help="Watch this model as it encodes; trains one else."
)
@click.option("--for", "seconds", callback=_seconds, metavar="DURATION", help="End after so long; else with Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Of page and metrics; 0: a free one."
)
@quiet_option
@debug_option
def demo_command(*, model: Path | None, seconds: float | None, port: int, quiet: bool) -> None:
    """Train a small Transformer on the documentation of this Python, watch it, and show what that looks like.

    A daemon is started beside it: its page is at http://127.0.0.1:9477/, its metrics at /metrics. After a while the
    vector of one frequent token is blown up, a little at each step, as happens without weight decay; it is found and
    named, then scaled back, and the finding goes. Nothing is left behind: all files lie in a temporary folder.

    \b
    Examples:
      embedwatch demo
      embedwatch demo --for 2m
      embedwatch demo --model ./my-encoder --port 0
    """
    from embedwatch.cli.serve import needs_daemon

    needs_daemon()
    address = f"{HOST}:{_free(port)}"
    from embedwatch.cli.demo_run import run_demo

    run_demo(model, address, seconds=seconds, quiet=quiet)


def _free(port: int) -> int:
    """Return a port that nobody listens on: this one, or any for 0.

    Raises:
        UsageError: if it is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(
                f"`port` must be free on {HOST}, got {port}: {error.strerror}; choose another, or 0 for any"
            ) from error
        return int(probe.getsockname()[1])
