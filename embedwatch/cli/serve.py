"""`embedwatch serve`: the daemon."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from embedwatch.cli.options import debug_option
from embedwatch.core.errors import MissingExtraError

__all__ = ["needs_daemon", "serve_command"]

NEEDED = ("anyio", "bcrypt", "fastapi", "h11", "pydantic", "starlette", "uvicorn", "zstandard")
"""What the extra `daemon` brings."""


@click.command("serve", short_help="Take embeddings over HTTP, judge them, serve Prometheus.")
@click.option("-c", "--config.file", "config_file", metavar="FILE", help="YAML; `embedwatch config` explains it.")
@click.option(
    "--web.listen-address",
    "listen",
    metavar="ADDRESS",
    multiple=True,
    help="[HOST:]PORT or unix:PATH; repeatable.  [default: 127.0.0.1:9477]",
)
@click.option("--web.enable-lifecycle", "lifecycle", is_flag=True, help="Allow POST /-/reload.")
@click.option(
    "--web.insecure", "insecure", is_flag=True, help="Let other machines in though nobody has to authenticate."
)
@click.option(
    "--storage.path", "storage", metavar="FOLDER", help="Where the state is kept.  [default: embedwatch-data]"
)
@click.option("--log.level", "level", metavar="LEVEL", help="debug, info, warning or error.  [default: info]")
@click.option("--log.format", "form", metavar="FORM", help="logfmt or json.  [default: logfmt]")
@debug_option
def serve_command(*, config_file: str | None, **options: Any) -> None:
    """Take vectors and states over HTTP, judge each Space every minute, and serve Prometheus on /metrics.

    Without a file it listens on this machine only. A flag beats the environment (EMBEDWATCH_WEB__MAX_BODY=8MiB), the
    environment the file. SIGHUP reads the file again, SIGTERM judges what waits and ends, a second one ends at once.

    \b
    Examples:
      embedwatch serve
      embedwatch serve -c embedwatch.yaml --log.format json
      embedwatch serve --web.listen-address unix:/run/embedwatch/ingest.sock
      curl --json '{"vectors": [[0.1, 0.2], [0.3, 0.1]]}' http://127.0.0.1:9477/api/v1/ingest/faq/pooled
    """
    needs_daemon()
    from embedwatch.daemon.config_file import load_config
    from embedwatch.daemon.live import Live
    from embedwatch.daemon.logs import log_to_stderr

    path, flags = Path(config_file) if config_file else None, _flags(**options)
    live = Live(lambda: load_config(path, flags=flags))
    log_to_stderr(level=live.config.log.level, form=live.config.log.format)
    from embedwatch.daemon.assembly import make_server  # with torch, so only where the configuration is right

    make_server(live).run()


def needs_daemon() -> None:
    """Say what to install where a part of the daemon is missing.

    Raises:
        MissingExtraError: if one is.
    """
    missing = [name for name in NEEDED if not _is_there(name)]
    if missing:
        raise MissingExtraError(
            f"the daemon must have {', '.join(missing)}, got an installation without; pip install 'embedwatch[daemon]'"
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # somebody keeps it from being imported
        return False


def _flags(
    *,
    listen: tuple[str, ...],
    lifecycle: bool,
    insecure: bool,
    storage: str | None,
    level: str | None,
    form: str | None,
) -> dict[str, Any]:
    """Return the tree of what was given."""
    web: dict[str, Any] = {"listen": list(listen)} if listen else {}
    web |= {"enable_lifecycle": True} if lifecycle else {}
    web |= {"insecure": True} if insecure else {}
    log = {name: value for name, value in (("level", level), ("format", form)) if value is not None}
    return {"web": web, "storage": {} if storage is None else {"path": storage}, "log": log}
