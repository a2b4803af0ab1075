"""Every registered Sink keeps its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedwatch.core.registry import registered
from embedwatch.core.sink import Sink
from embedwatch.testing import SINK_CONTRACT

SINKS = registered(Sink)
TARGETS = {"prometheus": "0", "textfile": "{folder}/out.prom"}
"""What follows the colon where it is not simply the path of a file."""


@pytest.mark.parametrize("clause", SINK_CONTRACT)
@pytest.mark.parametrize("name", SINKS)
def test_clause(name: str, clause: str, tmp_path: Path) -> None:
    sink = SINKS[name]
    target = TARGETS.get(name, "{folder}/out").format(folder=tmp_path) if sink.target else ""
    SINK_CONTRACT[clause](lambda: sink.open(target))
