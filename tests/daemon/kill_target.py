"""A process with a heart: a line `PLACE NUMBER ROWS` is a parcel, answered when it is accepted, until it is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core import Space
from embedwatch.daemon.heart import Full, Heart, HeartSettings
from embedwatch.parcels import parcel_of_batch

INTERVAL = 0.15
"""Seconds: many windows close between two kills."""


def main(storage: Path) -> None:
    heart = Heart(HeartSettings(storage, interval=INTERVAL, slot_bytes=60_000))
    heart.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        place, number, rows = line.split()
        batch = VectorBatch(torch.randn(int(rows), 8))
        parcel = parcel_of_batch(
            batch, Space("m", place), role="vectors", sender="parent", number=int(number), time=1.7e9
        )
        try:
            heart.accept(parcel)
        except Full:
            sys.stdout.write("full\n")
        else:
            sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
