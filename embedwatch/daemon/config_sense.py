"""Whether the parts of a configuration make sense together: sinks and names that exist, no daemon that feeds itself."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from embedwatch.core.errors import EmbedwatchError, UsageError, did_you_mean
from embedwatch.core.registry import get, registered
from embedwatch.core.sink import Sink
from embedwatch.daemon.config import Config
from embedwatch.daemon.config_words import Place, shown
from embedwatch.daemon.units import Address

__all__ = ["senseless"]

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 -- compared, not listened on
PORTS = {"http": 80, "https": 443}
UNIX = "unix:"
OWN_NAME = re.compile(r"^sink '[^']*' ")
"""How a sink begins that does not know where it was named."""


def senseless(config: Config) -> Iterator[tuple[Place, str]]:
    """Yield what does not make sense: its place, and one line about it that begins with its name."""
    yield from _addresses(config)
    for number, text in enumerate(config.sinks):
        yield from _sink(config, number, text)
    yield from _names(config)
    yield from _choice(config)


def _names(config: Config) -> Iterator[tuple[Place, str]]:
    """Yield sources of one kind that bear one name: what they find would be taken for one another."""
    first: dict[tuple[str, str], int] = {}
    for number, source in enumerate(config.sources):
        before = first.setdefault((source.kind, source.name), number)
        if before < number:
            told = f"`sources[{number}].name` must be another than `sources[{before}].name`"
            yield ("sources", number, "name"), f"{told}, got {shown(source.name)} twice; choose another name"


def _addresses(config: Config) -> Iterator[tuple[Place, str]]:
    for number, text in enumerate(config.web.listen):
        first = config.web.listen.index(text)
        if first < number and Address.read(text).port != 0:
            told = f"`web.listen[{number}]` must be another address than `web.listen[{first}]`, got {text} twice"
            yield ("web", "listen", number), f"{told}; leave one out"


def _sink(config: Config, number: int, text: str) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong with a sink; nothing is opened."""
    name, _, target = text.partition(":")
    place, key = ("sinks", number), f"`sinks[{number}]`"
    if name not in registered(Sink):
        guess = did_you_mean(name, registered(Sink)) or "`embedwatch list sinks` shows all"
        yield place, f"{key} must begin with the name of a sink, got {shown(name)}; {guess}"
        return
    try:
        get(Sink, name).require(target)
    except UsageError as error:
        yield place, f"{key}{OWN_NAME.sub(' ', str(error))}; write it so"
        return
    if name == "daemon" and _is_served(config, _of_daemon(target)):
        yield place, f"{key} must be another daemon, got an address of this one in `web.listen`; leave it out"
    if name == "prometheus" and _is_served(config, _of_exporter(target)):
        yield place, f"{key} must have a port of its own, got that of `web.listen`, which has /metrics; leave it out"


def _of_daemon(target: str) -> Address | None:
    """Return where a daemon that is sent to listens."""
    if target.startswith(UNIX):
        return Address("", 0, Path(target.removeprefix(UNIX)))
    try:
        parts = urlsplit(target)
        return Address(parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0))
    except ValueError:  # the sink says what is wrong with it
        return None


def _of_exporter(target: str) -> Address | None:
    try:
        return Address.read(target)
    except UsageError:
        return None


def _is_served(config: Config, address: Address | None) -> bool:
    """Return whether the daemon itself listens there."""
    if address is None:
        return False
    return any(_meet(Address.read(text), address) for text in config.web.listen)


def _meet(served: Address, asked: Address) -> bool:
    if served.path is not None or asked.path is not None:
        return served.path is not None and asked.path is not None and served.path.resolve() == asked.path.resolve()
    if served.port == 0 or served.port != asked.port:
        return False
    ours = asked.is_local or asked.host in (*EVERYWHERE, socket.gethostname())
    both_local = served.is_local and asked.is_local
    return served.host == asked.host or both_local or (ours and served.host in EVERYWHERE) or asked.host in EVERYWHERE


def _choice(config: Config) -> Iterator[tuple[Place, str]]:
    """Yield names of nothing that is measured or checked."""
    evaluation = config.evaluation
    if not (evaluation.only or evaluation.skip):
        return
    from embedwatch.course_maker import CourseMaker  # with torch, so only where a name is given

    wrong = False
    for key in ("only", "skip"):
        for number, name in enumerate(getattr(evaluation, key)):
            try:
                CourseMaker(only=[name] if key == "only" else (), skip=[name] if key == "skip" else ())
            except EmbedwatchError as error:
                wrong = True
                fix = str(error).partition("; ")[2] or "`embedwatch list` shows all"
                told = f"must name a statistic, measurement or check, got {shown(name)}; {fix}"
                yield ("evaluation", key, number), f"`evaluation.{key}[{number}]` {told}"
    if not wrong:
        try:
            CourseMaker(only=evaluation.only, skip=evaluation.skip)
        except EmbedwatchError as error:
            yield ("evaluation",), f"`evaluation`: {error}"
