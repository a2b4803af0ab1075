"""Verdicts from wherever they were written: JSON of a command, a recording, or a daemon. Loads no torch."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from embedwatch.core.errors import InputError, UsageError, did_you_mean
from embedwatch.core.strict_json import strict_json
from embedwatch.core.verdict import Verdict
from embedwatch.recording import RECORDING_FILE, read_recording
from embedwatch.sinks._http_target import HttpTarget

__all__ = ["choose_verdicts", "read_verdicts"]

PATH = "/api/v1/verdicts"
TOKEN = "EMBEDWATCH_TOKEN"  # noqa: S105 - the name of the variable, not its value
MOST_BYTES = 256 << 20
ADDRESSES = ("http://", "https://", "unix:")
NAMED = 8
"""So many names are listed where none of them was meant."""


def read_verdicts(given: str | os.PathLike[str]) -> list[Verdict]:
    """Return the verdicts that something holds: the newest of each Space.

    Args:
        given: a file with what `--json` of audit, compare or show printed, or with a list of verdicts; a recording or
            the folder of a run; or the address of a daemon, with or without `/api/v1/verdicts`. A daemon's bearer token
            is what the variable `EMBEDWATCH_TOKEN` holds.

    Raises:
        InputError: if it cannot be read, or holds no verdicts.
        UsageError: if the address is none.
    """
    text = os.fspath(given)
    if text.startswith(ADDRESSES):
        return _verdicts(strict_json(_asked(text), "the answer of the daemon"), text)
    if not text:  # of a path it would make the folder that one happens to be in
        raise UsageError("`file` must be a file, a folder of a run or an address, got an empty name; name one")
    path = Path(text)
    if path.is_dir() or path.suffix == Path(RECORDING_FILE).suffix:
        return [verdict for recorded in read_recording(path).spaces for verdict in recorded.verdicts]
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path} must be a regular file, got a pipe or device; write the JSON to a file first")
        if path.stat().st_size > MOST_BYTES:
            raise InputError(
                f"`file` must be at most {MOST_BYTES >> 20} MiB, got more in {path}; give the JSON of one call"
            )
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check its name and permissions") from error
    return _verdicts(strict_json(content, str(path)), str(path))


def _asked(address: str) -> bytes:
    """Return what a daemon answers when it is asked for its verdicts."""
    target = HttpTarget(address.removesuffix("/").removesuffix(PATH))
    token = os.environ.get(TOKEN, "")
    if not token.isascii() or not token.isprintable():
        raise UsageError(f"`{TOKEN}` must be printable ASCII, got something else; set it anew")
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    connection = target.connection()
    try:
        connection.request("GET", f"{target.prefix}{PATH}", headers=headers)
        with connection.getresponse() as response:
            body = response.read(MOST_BYTES + 1)
            status, reason = response.status, response.reason
    except (OSError, http.client.HTTPException) as error:
        raise InputError(f"{address} cannot be read: {error}; see that the daemon runs") from error
    finally:
        connection.close()
    if status != http.client.OK:
        raise InputError(f"{address} must answer 200, got {status} {reason}; check the address, and {TOKEN}")
    if len(body) > MOST_BYTES:
        raise InputError(f"{address} must answer at most {MOST_BYTES >> 20} MiB, got more; ask for one status")
    return body


def _verdicts(data: Any, where: str) -> list[Verdict]:
    """Return the verdicts in what was read, whatever lies around them."""
    found = [Verdict.from_json(each) for each in _entries(data)]
    if not found:
        raise InputError(f"{where} must hold verdicts, got none; give what --json of audit, compare or show printed")
    return found


def _entries(data: Any) -> Iterator[Any]:
    """Yield what stands in lists that are called verdicts, and what looks like a verdict in a list."""
    if isinstance(data, list):
        for each in data:
            if isinstance(each, dict) and "check" in each and "status" in each:
                yield each
            else:
                yield from _entries(each)
    elif isinstance(data, dict):
        for name in ("verdicts", "spaces"):
            yield from _entries(data.get(name))


def choose_verdicts(
    verdicts: Sequence[Verdict], *, check: str | None = None, place: str | None = None
) -> list[Verdict]:
    """Return the verdicts of the checks and places that match.

    Args:
        verdicts: to choose from.
        check: name of a check, or a glob.
        place: a glob for the place, or for the whole name of the Space.

    Raises:
        UsageError: if none does.
    """
    found = list(verdicts)
    for argument, glob, names in (
        ("check", check, lambda verdict: (verdict.check,)),
        ("place", place, lambda verdict: (verdict.space.place, str(verdict.space))),
    ):
        if glob is None:
            continue
        known = list(dict.fromkeys(names(verdict)[0] for verdict in found))
        found = [verdict for verdict in found if any(fnmatchcase(name, glob) for name in names(verdict))]
        if not found:
            more = ", …" if len(known) > NAMED else ""
            instead = did_you_mean(glob, known) or f"there are {', '.join(known[:NAMED])}{more}"
            raise UsageError(f"`{argument}` must match a verdict, got {glob!r}; {instead}")
    return found
