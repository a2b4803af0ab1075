"""Every registered Sink keeps its contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from embedwatch.core.registry import registered
from embedwatch.core.sink import Sink
from embedwatch.testing import SINK_CONTRACT
from tests.sinks.parcel_receiver import ParcelReceiver
from tests.sinks.receiver import Receiver

SINKS = registered(Sink)
TARGETS = {
    "daemon": "unix:{folder}/daemon.sock",
    "prometheus": "0",
    "textfile": "{folder}/out.prom",
    "webhook": "{url}",
}
"""What follows the colon where it is not simply the path of a file."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where something takes what is posted."""
    with Receiver() as receiver:
        yield receiver.url


@pytest.mark.parametrize("clause", SINK_CONTRACT)
@pytest.mark.parametrize("name", SINKS)
def test_clause(name: str, clause: str, tmp_path: Path, url: str) -> None:
    sink = SINKS[name]
    target = TARGETS.get(name, "{folder}/out").format(folder=tmp_path, url=url) if sink.target else ""
    with ParcelReceiver(tmp_path / "daemon.sock") if name == "daemon" else nullcontext():
        SINK_CONTRACT[clause](lambda: sink.open(target))
