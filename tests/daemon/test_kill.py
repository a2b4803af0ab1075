"""kill -9 at random moments: every acknowledged row is in one window, and none is there twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

import pytest

from embedwatch.core import Snapshot
from embedwatch.daemon.store import Store
from embedwatch.parcels import Parcel

TARGET = Path(__file__).with_name("kill_target.py")
PLACES = ("a", "b", "c")
LONGEST = 1.0
"""Seconds that a process may live once it is ready."""


class Sender:
    """Sends parcels one after another; what was not answered is sent again after the next start."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0
        self.unanswered: str | None = None
        self.rows = dict.fromkeys(PLACES, 0)

    def talk(self, wrote: IO[str], read: IO[str]) -> None:
        """Go on until the other end is gone."""
        try:
            while True:
                if self.unanswered is None:
                    self.number += 1
                    place, rows = self.random.choice(PLACES), self.random.randint(1, 200)
                    self.unanswered = f"{place} {self.number} {rows}"
                wrote.write(self.unanswered + "\n")
                wrote.flush()
                answer = read.readline().strip()
                if not answer:
                    return
                if answer != "full":
                    place, number, count = self.unanswered.split()
                    assert answer == number
                    self.rows[place] += int(count)
                    self.unanswered = None
        except BrokenPipeError:
            return


def killed_once(storage: Path, sender: Sender) -> None:
    """Start the process, talk to it, and kill it at a random moment."""
    process = subprocess.Popen(
        [sys.executable, str(TARGET), str(storage)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    killer = threading.Timer(sender.random.uniform(0, LONGEST), process.kill)
    killer.start()
    sender.talk(process.stdin, process.stdout)
    killer.join()
    assert process.wait() == -9
    process.stdout.close()
    with suppress(BrokenPipeError):
        process.stdin.close()


def stored(storage: Path) -> tuple[dict[str, int], int]:
    """Return the rows of each place in Snapshots, open windows and the inbox, and the number of windows."""
    found, windows = dict.fromkeys(PLACES, 0), 0
    with closing(Store(storage)) as store:
        assert store.damaged is None
        for space, kept in store.restore().items():
            if space.model == "m":
                parcels = [data for _, data in kept.entries] + ([kept.window] if kept.window is not None else [])
                found[space.place] += sum(Parcel.from_bytes(data).rows for data in parcels)
                found[space.place] += sum(Snapshot.from_json(each).provenance.rows for each in kept.snapshots)
                windows += len(kept.snapshots)
    return found, windows


def check(storage: Path, kills: int) -> None:
    sender = Sender(seed=kills)
    for _ in range(kills):
        killed_once(storage, sender)
        found, windows = stored(storage)
        perhaps = sender.unanswered.split() if sender.unanswered else [PLACES[0], "0", "0"]
        for place in PLACES:
            more = found[place] - sender.rows[place]
            assert more in ((0, int(perhaps[2])) if place == perhaps[0] else (0,)), "lost, or there twice"
    assert windows > 0
    assert min(sender.rows.values()) > 0


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    check(tmp_path, 5)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_many_kills(tmp_path: Path) -> None:
    check(tmp_path, 25)
