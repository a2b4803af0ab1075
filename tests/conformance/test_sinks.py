"""Every registered Sink keeps its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedwatch.core.registry import registered
from embedwatch.core.sink import Sink
from embedwatch.testing import SINK_CONTRACT

SINKS = registered(Sink)


@pytest.mark.parametrize("clause", SINK_CONTRACT)
@pytest.mark.parametrize("name", SINKS)
def test_clause(name: str, clause: str, tmp_path: Path) -> None:
    sink = SINKS[name]
    SINK_CONTRACT[clause](lambda: sink.open(str(tmp_path / "out") if sink.target else ""))
