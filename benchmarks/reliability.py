"""What `embedwatch serve` stands: load, an hour of it, and faults. Real processes, over real sockets.

Run as root, with libfaketime installed, from the root of the repository:

    python -m benchmarks.reliability [--only load hour kills ...] [--write FILE]

A disk of its own needs root, a clock that jumps the library. Everything shares one machine: daemon, senders, scrapes.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from benchmarks.reliability_faults import FAULTS, MEBI, shown
from benchmarks.reliability_scrapes import Scrapes
from embedwatch.batch import VectorBatch
from embedwatch.core.snapshot import Space
from embedwatch.course_maker import CourseMaker
from embedwatch.parcels import parcel_of_window
from embedwatch.window import Window
from tests.daemon.serve_process import ServeProcess
from tests.daemon.serving import npy

LOAD = Path(__file__).with_name("reliability_load.py")
TARGET_P99_MS = 50.0
ROWS, DIMENSION = 64, 384
STATE_ROWS = 1_000
MANY, MANY_TEXTS = 20_000, 520
"""Rows of bodies that are nearly as large as they may be: 30 MB, and 4 MB of JSON."""
LOAD_SECONDS, SENDERS = 20.0, 2
LOAD_INTERVAL = "10s"
HOUR_BATCHES, HOUR_WINDOWS = 3_600, 60
"""Of an hour of one batch a second, judged every minute."""
HOURS = 8
HOUR_INTERVAL = 0.25
"""Seconds of a window where hours are hurried through."""
SAMPLE_SECONDS = 0.5
NPY, NPZ, JSON, PARCEL = (
    "application/x-npy",
    "application/x-npz",
    "application/json",
    "application/vnd.embedwatch.parcel",
)
ARROW = "application/vnd.apache.arrow.stream"
Part = Callable[[Path], dict[str, Any]]


def state(dimension: int = DIMENSION, rows: int = STATE_ROWS) -> bytes:
    """Return the full default statistics of a window as a parcel."""
    window = Window(CourseMaker().statistics("pooled"))
    window.update(VectorBatch(torch.randn(rows, dimension, generator=torch.Generator().manual_seed(0))))
    window.close(5.0)
    return parcel_of_window(window, window.snapshot(Space("m", "p")), sender="load", number=0).to_bytes()


def bodies() -> dict[str, tuple[str, bytes, int]]:
    """Return what is sent under load: type, body, rows."""
    return {
        f"npy {ROWS} x {DIMENSION}": (NPY, npy(ROWS, DIMENSION), ROWS),
        f"npy 5000 x {DIMENSION}": (NPY, npy(5_000, DIMENSION), 5_000),
        f"JSON {ROWS} x {DIMENSION}": (JSON, _json(_vectors(ROWS)), ROWS),
        f"states at D = {DIMENSION}": (PARCEL, state(), STATE_ROWS),
        "states at D = 1536": (PARCEL, state(1_536), STATE_ROWS),
        f"JSON {MANY_TEXTS} x {DIMENSION}": (JSON, _json(_vectors(MANY_TEXTS)), MANY_TEXTS),
        f"npz {MANY} x {DIMENSION}": (NPZ, _npz(_vectors(MANY)), MANY),
        f"Arrow {MANY} x {DIMENSION}": (ARROW, _arrow(_vectors(MANY)), MANY),
    }


def _vectors(rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(rows, DIMENSION)).astype(np.float32)


def _json(vectors: NDArray[np.float32]) -> bytes:
    return json.dumps({"vectors": vectors.tolist()}).encode()


def _npz(vectors: NDArray[np.float32]) -> bytes:
    file = io.BytesIO()
    np.savez(file, vectors=vectors)
    return file.getvalue()


def _arrow(vectors: NDArray[np.float32]) -> bytes:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table, file = pa.table({"vectors": column}), pa.BufferOutputStream()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    body: bytes = file.getvalue().to_pybytes()
    return body


def load(folder: Path) -> dict[str, Any]:
    """Send as fast as it is taken, in each form, and scrape meanwhile."""
    found: dict[str, Any] = {"nothing, to compare with": _unburdened(folder)}
    for number, (name, (kind, body, rows)) in enumerate(bodies().items()):
        there = folder / str(number)
        there.mkdir()
        (there / "body").write_bytes(body)
        with ServeProcess(there, environment={"EMBEDWATCH_EVALUATION__INTERVAL": LOAD_INTERVAL}) as daemon:
            with Scrapes(daemon.port) as scrapes:
                told = _send(daemon.port, kind, there / "body", rows, LOAD_SECONDS)
            found[name] = {
                "rows_a_second": sum(each["rows"] for each in told) / LOAD_SECONDS,
                "answers": dict(sum((Counter(each["answers"]) for each in told), Counter())),
                "without_retry_after": sum(each["without_retry_after"] for each in told),
                "slowest_answer_seconds": max(each["longest"] for each in told),
                **scrapes.figures(),
                "peak_mebibytes": daemon.memory("VmHWM") / MEBI,
                "alive_after": daemon.alive,
            }
    return found


def _unburdened(folder: Path) -> dict[str, Any]:
    """Scrape a daemon that nobody sends to: what is slow here is the machine."""
    with ServeProcess(folder) as daemon, Scrapes(daemon.port) as scrapes:
        time.sleep(LOAD_SECONDS)
    return scrapes.figures()


def _send(port: int, kind: str, body: Path, rows: int, seconds: float) -> list[dict[str, Any]]:
    """Run the senders; return what each was answered."""
    arguments = [sys.executable, str(LOAD), str(port), kind, str(body), str(seconds), str(rows)]
    senders = [subprocess.Popen(arguments, stdout=subprocess.PIPE) for _ in range(SENDERS)]
    return [json.loads(each.communicate()[0]) for each in senders]


def hour(folder: Path) -> dict[str, Any]:
    """Hurry through hours of batches and windows, and see whether memory grows once histories are full."""
    (folder / "body").write_bytes(npy(ROWS, DIMENSION))
    interval = f"{int(HOUR_INTERVAL * 1_000)}ms"
    with ServeProcess(folder, environment={"EMBEDWATCH_EVALUATION__INTERVAL": interval}) as daemon:
        arguments = [sys.executable, str(LOAD), str(daemon.port), NPY, str(folder / "body"), "900", str(ROWS)]
        sender = subprocess.Popen([*arguments, str(1 << 60)], stdout=subprocess.DEVNULL)
        samples: list[tuple[int, int, int]] = []
        try:
            while not samples or min(samples[-1][0] / HOUR_WINDOWS, samples[-1][1] / HOUR_BATCHES) < HOURS:
                time.sleep(SAMPLE_SECONDS)
                status = daemon.status()
                samples.append((status["rounds"], status["parcels"]["accepted"], daemon.memory()))
        finally:
            sender.kill()
            sender.wait()
        alive, state_bytes = daemon.alive, daemon.status()["state"]["bytes"]
    hours = np.array([rounds / HOUR_WINDOWS for rounds, _, _ in samples])
    resident = np.array([memory / MEBI for _, _, memory in samples])
    late = hours >= HOURS / 2
    return {
        "windows": samples[-1][0],
        "batches": samples[-1][1],
        "hours_of_windows": float(hours[-1]),
        "resident_mebibytes_by_hour": {
            str(at): float(resident[np.argmin(abs(hours - at))]) for at in range(1, HOURS + 1)
        },
        "slope_second_half_mebibytes_an_hour": float(np.polyfit(hours[late], resident[late], 1)[0]),
        "state_mebibytes": state_bytes / MEBI,
        "alive_after": alive,
    }


PARTS: dict[str, Part] = {"load": load, "hour": hour, **FAULTS}


def main() -> None:
    """Run, print tables, and write a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--write", type=Path, help="a file to put the figures into; parts that are there are replaced")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    facts: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "target_scrape_p99_ms": TARGET_P99_MS,
        "parts": {},
    }
    if arguments.write is not None and arguments.write.exists():
        facts["parts"] = json.loads(arguments.write.read_text(encoding="utf-8"))["parts"]
    for name in arguments.only:
        began, busy = time.monotonic(), os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            facts["parts"][name] = PARTS[name](Path(folder))
        facts["parts"][name] |= {"seconds": time.monotonic() - began, "load_average_before": busy}
        print(shown(name, facts["parts"][name]), flush=True)
        if arguments.write is not None:
            arguments.write.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
