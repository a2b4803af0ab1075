"""Rows about the daemon: what it takes and refuses, its state, its HTTP, its process, and how it is scraped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from embedwatch.exposition import RELOAD_SUCCESSFUL
from embedwatch.operations.lines import age, drawn, of_process, rate, worst
from embedwatch.operations.panels import Panel, row

__all__ = ["http", "ingest", "process"]

DAEMON = ("job", "instance")


def ingest() -> Iterator[Panel]:
    """Yield the row on what the daemon is sent."""
    yield row("Parcels")
    yield drawn(
        "Rows accepted",
        "Rows per second that were stored and acknowledged.",
        "as many as are sent.",
        rate("rows_accepted_total", labels=("instance",), legend="{{instance}}", variables=DAEMON),
        unit="short",
    )
    yield drawn(
        "Parcels accepted",
        "Parcels per second that were stored and acknowledged.",
        "level.",
        rate("parcels_accepted_total", labels=("instance",), legend="{{instance}}", variables=DAEMON),
        unit="short",
    )
    yield drawn(
        "Parcels refused",
        "Parcels per second that were not taken, by reason.",
        "0; full, windows and draining pass, the others need somebody.",
        rate(
            "parcels_refused_total", labels=("instance", "reason"), legend="{{instance}} {{reason}}", variables=DAEMON
        ),
    )
    yield drawn(
        "Parcels that wait",
        "Parcels that are in no window yet.",
        "falls to 0 with each round.",
        of_daemon("inbox_parcels"),
        unit="short",
    )
    yield drawn(
        "Bytes that wait",
        "Bytes of the parcels that are in no window yet.",
        "far below `storage.pending`.",
        of_daemon("inbox_bytes"),
        unit="bytes",
    )
    yield drawn(
        "Spaces watched",
        "Spaces that the daemon knows.",
        "level, below `evaluation.max_spaces`.",
        of_daemon("spaces_watched"),
        unit="short",
    )
    yield row("State and configuration")
    yield drawn("State on the disk", "Bytes of the state.", "level.", of_daemon("state_bytes"), unit="bytes")
    yield drawn(
        "Age of the saved state",
        "Time since the state was saved last.",
        "about the interval of evaluation.",
        age("state_saved_timestamp_seconds", labels=("instance",), legend="{{instance}}", variables=DAEMON),
        unit="s",
    )
    yield drawn(
        "Parts that could not be restored",
        "Parts of the state that could not be read at the start.",
        "0.",
        of_daemon("state_unrestored"),
        unit="short",
    )
    yield drawn(
        "Configuration in use",
        "1 where the configuration read last is right and in use.",
        "1.",
        of_daemon(RELOAD_SUCCESSFUL.name.removeprefix("embedwatch_"), side="below"),
        unit="short",
    )
    yield drawn(
        "Label values replaced",
        "Values of labels replaced by `other` per second, since there were too many.",
        "0.",
        rate("label_overflow_total", labels=("instance", "label"), legend="{{instance}} {{label}}", variables=DAEMON),
    )
    yield drawn(
        "Collectors that work",
        "0 where part of what should be exposed is missing, lowest first.",
        "1.",
        of_daemon("collector_success", side="below"),
        unit="short",
    )


def http() -> Iterator[Panel]:
    """Yield the row on requests."""
    yield row("HTTP")
    yield drawn(
        "Requests",
        "Requests per second, by what was asked for.",
        "level.",
        rate("http_requests_total", labels=("handler", "method"), legend="{{method}} {{handler}}", variables=DAEMON),
        unit="short",
    )
    yield drawn(
        "Answers",
        "Answers per second, by status.",
        "2xx; 429 and 503 pass, other 4xx are senders that have to change something, 500 is a defect of ours.",
        rate("http_requests_total", labels=("code",), legend="{{code}}", variables=DAEMON),
        unit="short",
    )


def process() -> Iterator[Panel]:
    """Yield the row on the process and its scrapes."""
    yield row("Process and scrapes")
    yield drawn(
        "Memory",
        "Resident memory of the process.",
        "level after the first hours.",
        of_process("process_resident_memory_bytes"),
        unit="bytes",
    )
    yield drawn(
        "Processor",
        "Cores that the process keeps busy.",
        "well below 1.",
        of_process("process_cpu_seconds_total", function="rate"),
        unit="percentunit",
    )
    yield drawn(
        "Open files",
        "Files and connections that are open.",
        "level, far below the limit.",
        of_process("process_open_fds"),
        unit="short",
    )
    yield drawn(
        "Targets that answer",
        "1 where Prometheus can scrape the process.",
        "1.",
        of_process("up", side="below"),
        unit="short",
    )
    yield drawn(
        "Duration of scrapes",
        "Seconds that Prometheus waits for an answer.",
        "far below a second; nothing is computed for a scrape.",
        of_process("scrape_duration_seconds"),
        unit="s",
    )
    yield drawn(
        "Samples of a scrape",
        "Samples that Prometheus takes in a scrape.",
        "level, below `sample_limit`.",
        of_process("scrape_samples_scraped"),
        unit="short",
    )


def of_daemon(name: str, *, side: str = "above") -> dict[str, Any]:
    """Return the query of a gauge of which a daemon has one."""
    return worst(name, side=side, labels=("instance",), legend="{{instance}}", variables=DAEMON)
