"""Series become text: the one place of prometheus_client. Each Space is encoded once; the rest is joining."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as ClientFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.utils import floatToGoString

from embedwatch.core.measurement import Histogram
from embedwatch.exposition import Family
from embedwatch.sinks._series import Series

__all__ = ["OPENMETRICS", "TEXT", "Block", "ClientFamily", "CollectorRegistry", "Publication", "encode"]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END = "# EOF\n"
_openmetrics: Callable[[CollectorRegistry], bytes] = generate_openmetrics
_HEADER = re.compile(r"^# HELP .*\n# TYPE .*\n", re.MULTILINE)
"""Labels cannot break a line, since they are escaped, so only a header begins like that."""
_CLIENT = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}


@dataclass(frozen=True)
class Block:
    """One family of one Space: its lines without a header, the same in both formats; their number; what they say."""

    family: Family
    lines: str
    size: int
    client: ClientFamily


def encode(series: Iterable[Series]) -> list[Block]:
    """Return one block for each family that has values."""
    filled = [each for each in series if each.values]
    clients = [_client(each) for each in filled]
    _, *texts = _HEADER.split(generate_latest(_registry(clients)).decode("utf-8"))
    return [
        Block(each.family, text, len(client.samples), client)
        for each, text, client in zip(filled, texts, clients, strict=True)
    ]


class _Collector:
    """What CollectorRegistry asks for families; it describes nothing, so registering collects nothing."""

    def __init__(self, families: Sequence[ClientFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[ClientFamily]:
        return self._families


def _registry(families: Sequence[ClientFamily]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    return registry


def _client(series: Series) -> ClientFamily:
    """Return the client's own form of a family; all its values carry the same label names."""
    family = series.family
    names = [name for name, _ in next(iter(series.values), ())]
    found: Any = _CLIENT[family.kind](family.name, family.help, labels=names)
    for labels, value in series.values.items():
        texts = [text for _, text in labels]
        if isinstance(value, Histogram):
            found.add_metric(texts, _cumulative(value), value.sum)
        else:
            found.add_metric(texts, value)
    return found  # type: ignore[no-any-return]


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """Return each upper edge with the number of values up to it, as Prometheus counts."""
    edges = [*map(floatToGoString, histogram.bounds), "+Inf"]
    return list(zip(edges, map(float, accumulate(histogram.counts)), strict=True))


@lru_cache(maxsize=4096)
def _headers(family: Family) -> tuple[str, str]:
    """Return the HELP and TYPE lines of a family in both formats."""
    empty = _registry([_client(Series(family))])
    return generate_latest(empty).decode("utf-8"), _openmetrics(empty).decode("utf-8").removesuffix(END)


class Publication:
    """A whole exposition, encoded: what a scrape is sent. Blocks of one name are shown as one family."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._families: dict[str, list[Block]] = {}
        for block in blocks:
            self._families.setdefault(block.family.name, []).append(block)
        text, openmetrics = [], []
        for parts in self._families.values():
            lines = "".join(part.lines for part in parts)
            header, openmetrics_header = _headers(parts[0].family)
            text += [header, lines]
            openmetrics += [openmetrics_header, lines]
        self.text = "".join(text).encode("utf-8")
        self.openmetrics = "".join([*openmetrics, END]).encode("utf-8")

    def collect(self) -> Iterable[ClientFamily]:
        """Yield the families for a registry of prometheus_client."""
        for parts in self._families.values():
            joined = _client(Series(parts[0].family))
            joined.samples = [sample for part in parts for sample in part.client.samples]
            yield joined
