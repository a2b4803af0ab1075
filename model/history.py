"""The history of a run: one line of JSON for each step and validation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from .events import StepRecord, ValidationRecord

__all__ = ["append", "cut", "read"]

FILE = "history.jsonl"


def append(run: Path, record: StepRecord | ValidationRecord) -> None:
    """Append a record; `kind` is `step` or `validation`, and a number that is not finite is null."""
    kind = "step" if isinstance(record, StepRecord) else "validation"
    values = {name: None if _is_lost(value) else value for name, value in record._asdict().items()}
    run.mkdir(parents=True, exist_ok=True)
    with (run / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, **values}) + "\n")


def cut(run: Path, step: int) -> None:
    """Drop what was done after a step: it is done again. So is a line that a kill cut short."""
    if (run / FILE).exists():
        kept = [json.dumps(record) + "\n" for record in read(run) if record["step"] <= step]
        part = run / f".{FILE}"
        part.write_text("".join(kept), encoding="utf-8")
        part.replace(run / FILE)


def read(run: Path) -> list[dict[str, Any]]:
    """Return all whole records of a run, the oldest first."""
    lines = (run / FILE).read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _is_lost(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
