"""Estimate: how many series so many places come to, and which families they are, before anything is watched.

One Space of each role is exposed as the sink would expose it: what its statistics measure on their own examples, and
what every check makes of that. The rest is multiplication.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from embedwatch.core.check import Check
from embedwatch.core.diagnostic import SUBJECT, Diagnostic
from embedwatch.core.errors import UsageError
from embedwatch.core.measurement import Measurement
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import OF_MODEL, Provenance, Snapshot, Space
from embedwatch.core.verdict import Verdict
from embedwatch.judging import Judge
from embedwatch.sinks._publisher import MAX_SERIES, Publisher

if TYPE_CHECKING:
    from embedwatch.core.statistic import Statistic

__all__ = ["HEAD", "Estimate", "Size", "estimate", "roles_of", "specimen"]

PLAN = ("watching", "training", "token", "table", "tokens", "embedding")
"""Roles of the places that a Monitor has once; every further one is `hidden`."""
MORE = "hidden"
ATTENTION = "attention"
HEAD = "head"
"""Stands for the role of one head: its vectors are judged as those of its layer are."""
EXAMINED = tuple(role for role in OF_MODEL if role != "generation")
"""Roles of what is examined of each model without running it."""
NAMES = {
    "watching": "monitor",
    "training": "training",
    "token": "embedding.tokens",
    "table": "token_table",
    "tokens": "embedding.tokens.weight",
    "embedding": "embedding",
    MORE: "layers.15",
    ATTENTION: "layers.15.attention",
    HEAD: "layers.15",
    **{place: place for place in EXAMINED},
}
"""Role to the name of a place, as long as such names are."""
MODEL = "Transformer"
ROWS, TIME = 100_000, 1_812_345_678.901
"""What a window says, with as many digits as such numbers have."""
ONCE, EACH_MODEL = "", "model"
"""Stand for the role of what there is one of, in all or for each model."""
ABOUT = re.compile(r'(?:place|collector)="([^"]*)"')
"""What a series is about: its place, or the collector that it comes from."""
TRAFFIC = (
    ("/metrics", "GET", 200),
    ("/api/v1/ingest/{model:path}/{place}", "POST", 202),
    ("/api/v1/parcels", "POST", 202),
    ("/-/healthy", "GET", 200),
    ("/-/ready", "GET", 200),
)
"""Requests that a daemon usually answers; each other one adds a series."""
HEAD_TOLD = re.compile(r'head="|/head=')


@dataclass(frozen=True, slots=True)
class Size:
    """So many series, and so many bytes of text."""

    series: int = 0
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.series + other.series, self.bytes + other.bytes)

    def __mul__(self, times: int) -> Size:
        return Size(self.series * times, self.bytes * times)


@dataclass(frozen=True)
class Estimate:
    """What some models would expose together, through one sink.

    Args:
        models: so many.
        roles: role to the number of such places of each model.
        families: name of a family to its size, the largest first.
        places: role to the size of one place of it.
        daemon: of the daemon itself; nothing where there is none.
        limit: the most series that a sink exposes unless told otherwise.
    """

    models: int
    roles: Mapping[str, int]
    families: Mapping[str, Size]
    places: Mapping[str, Size]
    daemon: Size = Size()
    limit: int = MAX_SERIES

    @property
    def total(self) -> Size:
        """All of it."""
        return sum(self.families.values(), Size())

    @property
    def room(self) -> int:
        """So many series may still come; below zero, so many would be left out."""
        return self.limit - self.total.series


def roles_of(places: int, *, attention: int = 0, heads: int = 0) -> dict[str, int]:
    """Return the roles of so many places of a model, in the order in which a Monitor comes to have them.

    What is examined of the model itself comes besides.

    Args:
        places: those included that are no modules: the table, the training, the Monitor itself.
        attention: layers whose attention is watched besides.
        heads: heads of each hidden place that are Spaces of their own.

    Example:
        >>> roles_of(8, heads=4)
        {'watching': 1, 'training': 1, 'token': 1, 'table': 1, 'tokens': 1, 'embedding': 1, 'hidden': 2, 'head': 8, \
'positions': 1, 'scale': 1, 'vocabulary': 1, 'meaning': 1, 'layers': 1}
    """
    found = Counter([*PLAN[:places], *[MORE] * (places - len(PLAN))])
    more = {ATTENTION: attention, HEAD: heads * found[MORE], **dict.fromkeys(EXAMINED, 1)}
    return {**found, **{role: number for role, number in more.items() if number}}


def estimate(
    *, places: int = 10, attention: int = 8, models: int = 1, heads: int = 0, daemon: bool = False
) -> Estimate:
    """Return what would be exposed. It imports the modules of all statistics, and torch with them.

    Args:
        places: of each model, see `roles_of`.
        attention: layers of each model whose attention is watched.
        models: watched by one process.
        heads: of each hidden place, as Spaces of their own.
        daemon: whether it is a daemon that exposes them, which has numbers of its own.

    Raises:
        UsageError: for a number out of range.
    """
    given = (("places", places, 1), ("attention", attention, 0), ("models", models, 1), ("heads", heads, 0))
    for name, number, least in given:
        if number < least:
            raise UsageError(f"`{name}` must be at least {least}, got {number}; give a larger number")
    roles = roles_of(places, attention=attention, heads=heads)
    families: dict[str, Size] = {}
    sizes = dict.fromkeys(roles, Size())
    for family, role, size in _lines(_exposed(roles)):
        times = 1 if role == ONCE else models * roles.get(role, 1)
        families[family] = families.get(family, Size()) + size * times
        if role in roles:
            sizes[role] += size
    own = Size()
    for family, size in _of_daemon(frozenset(families)) if daemon else ():
        families[family] = families.get(family, Size()) + size
        own += size
    largest = sorted(families.items(), key=lambda each: (-each[1].series, each[0]))
    return Estimate(models, roles, dict(largest), sizes, own)


def _lines(text: str) -> Iterator[tuple[str, str, Size]]:
    """Yield for each line of an exposition its family, the role of what it is about, and its size."""
    for family, told, line in _told(text):
        yield family, _role(line) if told else ONCE, Size(int(told), len(line.encode()))


def _told(text: str) -> Iterator[tuple[str, bool, str]]:
    """Yield for each line of an exposition its family, whether it is a series, and the line."""
    family = ""
    for line in text.splitlines(keepends=True):
        is_series = not line.startswith("#")
        family = family if is_series else line.split()[2]
        yield family, is_series, line


def _role(line: str) -> str:
    """Return the role of the place that a series is about; or that it is one for each model, or one in all."""
    match = ABOUT.search(line)
    if match is None:
        return EACH_MODEL if 'model="' in line else ONCE
    if HEAD_TOLD.search(line):
        return HEAD
    place = match[1].removeprefix(f"{MODEL}/")
    return next((role for role, name in NAMES.items() if name == place), ONCE)


def _of_daemon(known: Container[str]) -> Iterator[tuple[str, Size]]:
    """Yield family and size of each line that a daemon adds: of its own Space, its requests and its process."""
    from embedwatch.daemon.own_report import SPACE, Tally, report
    from embedwatch.daemon.request_metrics import RequestMetrics

    snapshot = report(Tally().news(saved_at=TIME), time=TIME, seconds=1.0, errors={}, off=[])
    verdicts = Judge([check() for check in registered(Check).values()]).judge(snapshot)
    requests = RequestMetrics()
    for request in TRAFFIC:
        requests.count(*request)
    for family, is_series, line in _told(_published([(snapshot, verdicts)]) + requests.text("").decode()):
        ours = f'model="{SPACE.model}"' in line or f'collector="{SPACE}"' in line
        if ours or family not in known:
            yield family, Size(int(is_series), len(line.encode()))


def _exposed(roles: Iterable[str]) -> str:
    """Return what the sink exposes of one place of each role."""
    return _published(specimen(role) for role in roles)


def _published(windows: Iterable[tuple[Snapshot, Sequence[Verdict]]]) -> str:
    published: list[bytes] = []
    publisher = Publisher(
        lambda publication: published.append(publication.text), max_series=sys.maxsize, clock=lambda: TIME
    )
    publisher.write_all(windows)
    return published[-1].decode()


def specimen(role: str) -> tuple[Snapshot, Sequence[Verdict]]:
    """Return a window of a place, and verdicts none of which is a failure: a check that fails has one series more."""
    space = Space(MODEL, NAMES[role], head="0" if role == HEAD else None)
    as_what = MORE if role == HEAD else role
    snapshot = Snapshot(space, tuple(_measured(as_what)), Provenance(TIME, rows=ROWS, step=ROWS, role=as_what))
    verdicts = Judge([check() for check in registered(Check).values()]).judge(snapshot)
    return snapshot, [replace(verdict, status="ok") for verdict in verdicts]


def _measured(role: str) -> Iterator[Measurement]:
    """Yield what is measured at a place of a role."""
    from embedwatch.course_maker import CourseMaker
    from embedwatch.diagnostics.embedding_scale import EmbeddingScale
    from embedwatch.diagnostics.watching import Watched, Watching

    if role == "watching":
        yield from Watching().examine(Watched(1, overhead=0.0, errors=dict.fromkeys(_parts(), 0)))[0]
        return
    if role in EXAMINED:
        yield from _of_diagnostics(role)
        return
    for statistic in CourseMaker().classes(role):
        yield from _of_examples(statistic)
    if role == "tokens":
        yield from (metric.measure(1.0) for metric in EmbeddingScale.metrics)


def _of_diagnostics(place: str) -> Iterator[Measurement]:
    """Yield what is examined of a model at a place where it need not be run."""
    for diagnostic in registered(Diagnostic).values():
        if diagnostic.examines == SUBJECT and diagnostic.place == place and not diagnostic.runs_model:
            found = list(diagnostic().examine(next(iter(diagnostic.examples())))[0])
            names = {measurement.name for measurement in found}
            yield from found
            yield from (metric.measure(1.0) for metric in diagnostic.metrics if metric.name not in names)


def _of_examples(statistic: type[Statistic[Any]]) -> Sequence[Measurement]:
    """Return what a statistic measures on its first example, in its default configuration where it has one."""
    configured, batches = next(iter(statistic.examples(0)))
    try:
        made = statistic()
    except TypeError:
        made = configured.fresh()
    for batch in batches:
        made.update(batch)
    return made.compute()


def _parts() -> Iterator[tuple[str, str]]:
    """Yield (stage, name) of what may fail in a Monitor with one sink: each has a counter of errors."""
    from embedwatch.course_maker import CourseMaker

    yield from CourseMaker().parts()
    yield "sink", "prometheus"
