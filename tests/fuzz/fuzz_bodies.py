"""Feeds damaged bodies and headers to the parsers of the daemon: `python tests/fuzz/fuzz_bodies.py --seconds 60`.

Seeds are sound bodies of every kind; mutations know of lengths, of JSON and of headers. Whatever is not answered by an
error of ours, or takes too long or too much memory, is written to a folder and ends the run.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import io
import json
import random
import resource
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import bcrypt
import numpy as np
import pyarrow as pa
import torch
import zstandard

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError, MergeError
from embedwatch.core.measurement import Histogram, Metric
from embedwatch.core.registry import get
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.statistic import Statistic
from embedwatch.course_maker import CourseMaker
from embedwatch.daemon.auth import Gate
from embedwatch.daemon.bodies import ROW_TYPES, Limits, decompressed, read_rows
from embedwatch.parcels import Parcel, parcel_of_batch, parcel_of_snapshot, parcel_of_window
from embedwatch.sinks._page_server import Page
from embedwatch.window import Window
from tests.daemon.parcels import read_parcel

LIMITS = Limits(body=1 << 20, json=1 << 18, rows=4_096)
SLOWEST = 5.0
"""Seconds for one body, on a busy machine."""
MOST_GROWTH = 1 << 30
"""Bytes by which the process may grow."""
STATISTICS = ("norms", "validity", "spectrum", "duplicates", "cohesion", "centroid")
BOUNDARIES = (0, 1, 127, 128, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
TOKENS = (b"NaN", b"1e999", b"null", b'"\\ud800"', b"[" * 3_000, b"-1", b"9" * 30, b"{}", b"true", b"\xff\xfe", b"\x00")

GATE = Gate(tokens=["t" * 32], users={"user": bcrypt.hashpw(b"password", bcrypt.gensalt(4)).decode()})
"""Of the least cost: what is tried is how a header is read."""
Reader = Callable[[bytes], object]
Seed = tuple[str, bytes]


def readers() -> dict[str, Reader]:
    """Return what reads bodies, by kind."""
    found: dict[str, Reader] = {
        kind: lambda body, kind=kind: read_rows(body, kind, limits=LIMITS)  # type: ignore[misc]
        for kind in ROW_TYPES
    }
    found |= {name: lambda body, name=name: decompressed(body, name, limit=1 << 20) for name in ("gzip", "zstd")}  # type: ignore[misc]
    return {
        **found, "parcel": read_parcel, "payload": _read_payload, "authorization": _read_authorization,
        "accept": _read_accept,
    }  # fmt: skip


def _read_authorization(header: bytes) -> None:
    """Read a header as it comes from the wire; one that is wrong is refused, as by a body that is."""
    text = header.decode("latin-1")
    GATE.is_quick(text)
    if not GATE.admits(text):
        raise InputError("not admitted")


def _read_accept(header: bytes) -> None:
    page = Page("text/plain; version=0.0.4; charset=utf-8", b"")
    if not page.quality(header.decode("latin-1")) >= 0:
        raise InputError("not acceptable")


def _read_payload(body: bytes) -> Parcel:
    """Read a parcel whose payload was damaged before it was sealed: digests keep nobody out who can make them."""
    kind, _, payload = body.partition(b"\n")
    names = {b"rows": "rows", b"state": "state", b"snapshot": "snapshot"}
    sealed = Parcel(Space("m", "p"), "", names.get(kind, "state"), 40, 6, "seed", 0, 5.0, payload=payload)  # type: ignore[arg-type]
    return read_parcel(sealed.to_bytes())


def seeds() -> list[Seed]:
    """Return sound bodies of every kind."""
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    labels = np.array(["a", "b", "a", "c"])
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, vectors)
    np.savez_compressed(npz, vectors=vectors, ids=np.arange(4), labels=labels, segment=np.array("de"))
    text = json.dumps({"vectors": vectors.tolist(), "ids": [0, 1, 2, 3], "labels": ["a", None, "b", "a"]}).encode()
    parcels = seed_parcels()
    return [
        ("application/x-npy", npy.getvalue()),
        ("application/x-npz", npz.getvalue()),
        ("application/json", text),
        ("application/vnd.apache.arrow.stream", arrow(vectors, stream=True)),
        ("application/vnd.apache.arrow.file", arrow(vectors, stream=False)),
        ("gzip", gzip.compress(text, mtime=0) * 2),
        ("zstd", zstandard.compress(text) * 2),
        ("authorization", b"Bearer " + b"t" * 32),
        ("authorization", b"Basic " + base64.b64encode(b"user:password")),
        ("accept", b"application/json, text/plain;version=0.0.4;q=0.5, */*;q=0.1"),
        *(("parcel", parcel.to_bytes()) for parcel in parcels),
        *(("payload", parcel.kind.encode() + b"\n" + parcel.payload) for parcel in parcels),
    ]


def arrow(vectors: np.ndarray[tuple[int, ...], np.dtype[np.float32]], *, stream: bool) -> bytes:
    """Return vectors as an Arrow IPC stream or file, with ids and labels."""
    columns = {
        "vectors": pa.array(vectors.tolist(), pa.list_(pa.float32())),
        "ids": pa.array(range(len(vectors)), pa.int64()),
        "labels": pa.array(["a", None, "b", "a"][: len(vectors)], pa.string()),
    }
    table, sink = pa.table(columns), io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def seed_parcels() -> list[Parcel]:
    """Return sound parcels of each kind, of 40 rows in 6 dimensions; one state is of the full default statistics."""
    space = Space("m", "p")
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    batch = VectorBatch(rows, torch.arange(40), torch.arange(40) % 3, ["a", "b", "c"], source="s")
    window = Window([get(Statistic, name)() for name in STATISTICS])
    window.update(batch)
    window.close(5.0)
    whole = Window(CourseMaker().statistics("pooled"))
    whole.update(batch)
    whole.close(5.0)
    histogram = Metric("spread", "A distribution.", kind="histogram").measure(Histogram((1.0, 2.0), (0, 3, 1), 7.5, 4))
    snapshot = Snapshot(space, (histogram, Metric("a", "A.").measure(1.0)), Provenance(5.0, 40, 6))
    return [
        parcel_of_batch(batch, space, role="", sender="seed", number=0, time=5.0),
        parcel_of_window(window, window.snapshot(space), sender="seed", number=1),
        parcel_of_window(whole, whole.snapshot(space), sender="seed", number=3),
        parcel_of_snapshot(snapshot, sender="seed", number=2),
    ]


def mutated(body: bytes, chance: random.Random) -> bytes:
    """Return a body with one to four kinds of damage."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(min(len(data), 2_048) if chance.random() < 0.7 else len(data)) if data else 0
        match chance.randrange(7):
            case 0 if data:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                del data[place:]
            case 2:
                data[place : place + 8] = struct.pack("<Q", chance.choice(BOUNDARIES))
            case 3:
                data[place : place + 4] = struct.pack("<I", chance.choice(BOUNDARIES) & 0xFFFFFFFF)
            case 4:
                data[place:place] = chance.choice(TOKENS)
            case 5:
                end = place + chance.randrange(64)
                data[place:end] = data[place:end] * chance.randrange(3)
            case _:
                digits = [i for i in range(min(len(data), 4_096)) if 48 <= data[i] <= 57]
                if digits:
                    at = chance.choice(digits)
                    data[at : at + 1] = str(chance.choice(BOUNDARIES)).encode()
    return bytes(data)


def check(kind: str, body: bytes) -> str:
    """Read one body; return what came of it.

    Raises:
        Exception: whatever is no answer of ours.
    """
    began = time.perf_counter()
    try:
        readers()[kind](body)
        answer = "taken"
    except (InputError, MergeError) as error:
        answer = type(error).__name__
        if "\n" in str(error) or len(str(error)) > 400:
            raise AssertionError("an answer must be one line") from error
    if time.perf_counter() - began > SLOWEST:
        raise AssertionError(f"a body of {len(body)} bytes took {time.perf_counter() - began:.1f} s")
    return answer


def peak() -> int:
    """Return the most bytes that the process held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(
    *, seed: int, seconds: float = 1e9, bodies: int = 1 << 62, save: Path | None = None
) -> Counter[tuple[str, str]]:
    """Feed damaged bodies until the time is over; return how often each kind was answered how."""
    chance, corpus = random.Random(seed), seeds()
    for kind, body in corpus:
        if check(kind, body) != "taken":
            raise AssertionError(f"the seed of {kind} is refused")
    found: Counter[tuple[str, str]] = Counter()
    began, before = time.monotonic(), peak()
    while found.total() < bodies and time.monotonic() - began < seconds:
        kind, seed_body = chance.choice(corpus)
        body = mutated(seed_body, chance)
        try:
            found[kind, check(kind, body)] += 1
            if peak() - before > MOST_GROWTH:
                raise AssertionError(f"memory grew by {(peak() - before) >> 20} MiB")
        except BaseException:
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                (save / f"{kind.replace('/', '_')}.bin").write_bytes(body)
            raise
    return found


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path("fuzz-failures"))
    options = parser.parse_args()
    for (kind, answer), count in sorted(run(seed=options.seed, seconds=options.seconds, save=options.save).items()):
        sys.stdout.write(f"{kind:40} {answer:12} {count:,}\n")


if __name__ == "__main__":
    main()
