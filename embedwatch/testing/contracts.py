"""The contracts of checks and sinks: what each must survive."""
from typing import Any
CHECK_CONTRACT: dict[str, Any] = {}
SINK_CONTRACT: dict[str, Any] = {}
def hostile_snapshots() -> Any: ...
