"""What the page is looked at with: a daemon whose Spaces had healthy windows, and then some that were not."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embedwatch.core.snapshot import Space
from embedwatch.daemon.config_file import load_config
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.daemon.live import Live
from embedwatch.daemon.server import Server
from embedwatch.references import Reference, create_reference
from tests.daemon.serving import Served, send
from tests.topics import stream

MINUTE = 60.0


class Minutes:
    """A clock on which each window closes a minute after the one before."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def reference_of_topics(folder: Path) -> Reference:
    """Return the reference of a healthy stream of topics."""
    path = folder / "healthy.npy"
    np.save(path, stream(2_000, seed=0).numpy())
    return create_reference(path)


def packed(rows: torch.Tensor, *, numbered: bool = False) -> bytes:
    """Return rows as a file that the daemon takes, with their numbers where these are wanted."""
    file = io.BytesIO()
    columns = {"ids": np.arange(len(rows))} if numbered else {}
    np.savez(file, vectors=rows.numpy(), **columns)
    return file.getvalue()


@contextmanager
def scene(folder: Path, clock: Minutes, reference: Reference | None = None, **web: Any) -> Iterator[Served]:
    """Serve a daemon whose rows of the model `faq` are compared with a reference."""

    def reference_of(space: Space) -> Reference | None:
        return reference if space.model == "faq" else None

    flags = {"web": {"listen": ["127.0.0.1:0"], **web}, "log": {"level": "error"}}
    live = Live(lambda: load_config(environment={}, flags=flags))
    heart = Heart(HeartSettings(folder / "state", interval=3600.0), clock=clock, reference_of=reference_of)
    server = Server(heart, live)
    server.start()
    try:
        yield Served(heart, live, server, server.listeners[0].address.port)
    finally:
        server.stop()


def window(served: Served, clock: Minutes, number: int, *, faulty: bool) -> None:
    """Send the rows of one minute, and close it."""
    rows = stream(600, seed=100 + number)
    if faulty:
        rows[::6] = stream(100, seed=500 + number) * 0.6 + 4.0
    generator = torch.Generator().manual_seed(number)
    other = torch.randn(400, 32, generator=generator)
    if faulty:
        other[5] = torch.nan
    sent = {
        "faq/pooled?segment=de": packed(rows, numbered=True),
        "faq/pooled?segment=en": packed(stream(600, seed=300 + number)),
        "sentence-transformers/all-MiniLM-L6-v2/pooled": packed(other),
        f"search-index/vectors?step={number * 100}": packed(
            torch.randn(400, 32, generator=generator) * (1 + 0.03 * number)
        ),
    }
    for path, body in sent.items():
        assert send(served.port, body, f"/api/v1/ingest/{path}", "application/x-npz").status == 202
    clock.now += MINUTE
    served.heart.close_windows()
