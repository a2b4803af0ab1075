"""A sender of load, without torch: python benchmarks/reliability_load.py PORT TYPE BODY SECONDS ROWS [COUNT].

Sends one body over and over through one connection, to eight Spaces in turn, and prints a JSON object with what was
answered. A parcel gets a new number each time. Who is refused waits a tenth of a second, not as long as it is told to.
"""

from __future__ import annotations

import http.client
import json
import os
import struct
import sys
import time
from collections import Counter
from pathlib import Path

SPACES = 8
PAUSE = 0.1
PREFIX = struct.Struct("<8sI")
PARCEL = "application/vnd.embedwatch.parcel"


def numbered(parcel: bytes, place: str, number: int) -> bytes:
    """Return a parcel with another place and number; the digest is of the payload alone."""
    magic, length = PREFIX.unpack_from(parcel)
    header = json.loads(parcel[PREFIX.size : PREFIX.size + length])
    header["space"]["place"], header["sender"], header["number"] = place, f"load-{os.getpid()}", number
    text = json.dumps(header).encode()
    return PREFIX.pack(magic, len(text)) + text + parcel[PREFIX.size + length :]


def main(port: int, kind: str, body: bytes, seconds: float, rows: int, count: int) -> None:
    """Send until the time is over, or so many were taken."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    answers: Counter[int] = Counter()
    unsaid, longest, number = 0, 0.0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and answers[202] < count:
        place = f"load{number % SPACES}"
        path = "/api/v1/parcels" if kind == PARCEL else f"/api/v1/ingest/m/{place}"
        sent = numbered(body, place, number) if kind == PARCEL else body
        began = time.monotonic()
        connection.request("POST", path, sent, {"Content-Type": kind})
        reply = connection.getresponse()
        reply.read()
        longest = max(longest, time.monotonic() - began)
        answers[reply.status] += 1
        number += 1
        if reply.status in (429, 503):
            unsaid += reply.getheader("Retry-After") is None
            time.sleep(PAUSE)
    found = {"answers": dict(answers), "rows": rows * answers[202], "without_retry_after": unsaid, "longest": longest}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    _, port, kind, path, seconds, rows, *rest = sys.argv
    main(int(port), kind, Path(path).read_bytes(), float(seconds), int(rows), int(rest[0]) if rest else 1 << 60)
