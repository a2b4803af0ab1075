"""A process that may use several threads, with a heart in it; it says as JSON how many of them the evaluator uses."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_info

from embedwatch.batch import VectorBatch
from embedwatch.core import Check, Evidence, Exhibit, Sink, Snapshot, Space, Verdict
from embedwatch.core.history import History
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.parcels import Parcel, parcel_of_batch

THREADS = 3
ROWS, D = 4000, 384
NEVER = 1e6
TASKS = Path("/proc/self/task")

seen: list[dict[str, Any]] = []


def look(stage: str) -> None:
    """Note how many threads a computation at this place would use: of torch, and of each pool that torch brings."""
    pools = {pool["internal_api"]: pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"}
    own = threading.current_thread().name
    seen.append({"stage": stage, "thread": own, "torch": torch.get_num_threads(), "pools": pools})


class Probe(Check):
    """Is asked like any other."""

    name = "thread_probe"
    reads = ("mean_cosine",)

    def evaluate(self, snapshot: Snapshot, reference: object = None, history: History | None = None) -> Evidence:
        """Look."""
        look("check")
        return Evidence(None)


class Looking(Sink, register=False):
    """Is delivered to like any other."""

    name = "looking"

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Look."""
        look("sink")


def parcel(number: int) -> Parcel:
    rows = torch.randn(ROWS, D, generator=torch.Generator().manual_seed(number))
    return parcel_of_batch(VectorBatch(rows), Space("m", "p"), role="vectors", sender="s", number=number, time=1.7e9)


def tasks() -> set[str]:
    """Return the threads that the kernel knows, those of pools too."""
    return {task.name for task in TASKS.iterdir()}


def elsewhere(found: set[str]) -> None:
    """Sum many numbers on a thread that nobody limits, and note which threads there are then."""
    torch.ones(ROWS * D).sum()
    found |= tasks()


def main() -> None:
    torch.set_num_threads(THREADS)
    parcels = [parcel(number) for number in range(3)]
    with torch.no_grad():
        heart = Heart(HeartSettings(interval=NEVER), sinks=[(Looking(), False)])
        heart.start()
        heart.accept(parcels[0])
        heart.close_windows()
        before = tasks()
        for each in parcels[1:]:
            heart.accept(each)
            heart.close_windows()
        evaluating = len(tasks() - before)
        heart.close()
    before, found = tasks(), set[str]()
    thread = threading.Thread(target=elsewhere, args=(found,))
    thread.start()
    thread.join()
    told = {"seen": seen, "evaluating": evaluating, "elsewhere": len(found - before), "main": torch.get_num_threads()}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
