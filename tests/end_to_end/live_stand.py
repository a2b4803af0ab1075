"""A daemon that looks at models, canaries, a map, an index and rows beside a reference; and a training beside it."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embedwatch import fit_aligner
from embedwatch.canary import Canary
from embedwatch.canary.inputs import model_embedder
from embedwatch.references import create_reference, save_reference
from embedwatch.sinks.prometheus import Prometheus
from tests.ann.index_makers import built, written
from tests.ann.index_makers import rows as unit_rows
from tests.daemon.serving import ask, send
from tests.dashboards.grafana import Board
from tests.end_to_end.hurried_rules import hurried
from tests.end_to_end.live_daemon import DaemonServer
from tests.end_to_end.live_training import LiveTraining
from tests.loading import tiny
from tests.meaning.models import ENGLISH, bert
from tests.meaning.words import planted
from tests.polling import poll
from tests.prometheus_server import PrometheusServer, require
from tests.topics import stream

__all__ = ["Live", "Stand", "StandDaemon", "standing"]

ROWS, GROUPS = 3_000, 4
"""Rows of a window and of a reference; groups that they are labelled with."""
BROKEN = "broken"
"""Place whose rows are partly NaN."""
EVERY = "2s"
TEXTS = 64
TURNED = 16
"""Texts of a canary; seed of the map."""
SCRAPE = 1.0
LOOK = 0.1
BACK = 240.0
"""Seconds that the panels look back."""
DEADLINE = 300.0
NPZ, REFUSED = "application/x-npz", 422


class Stand:
    """Files in a folder, and how a daemon is told of them.

    Args:
        folder: where they are written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        torch.manual_seed(0)
        self._texts = [
            " ".join(ENGLISH.words[(i * 7 + j * 13) % len(ENGLISH.words)] for j in range(6)) for i in range(300)
        ]
        self.reader, self.writer = folder / "reader" / "checkpoint-100", folder / "writer" / "checkpoint-100"
        self._models()
        self._canaries()
        self._index()
        np.save(folder / "topics.npy", stream(ROWS, seed=2).numpy())
        folder.joinpath("topics.txt").write_text("\n".join(_labels(ROWS)) + "\n", encoding="utf-8")
        self.small = npz_body(stream(8, seed=0))
        self.references = [self._reference(name, seed) for name, seed in (("before", 0), ("after", 1))]

    def _models(self) -> None:
        subject: Any = bert(planted(ENGLISH))
        subject.model.save_pretrained(self.reader)
        subject.tokenizer.save_pretrained(self.reader)
        tiny.save("llama-lm", self.writer)
        for name, lines in (("texts", tiny.texts(12, 40)), ("prompts", tiny.texts(6, 9))):
            self.folder.joinpath(f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _canaries(self) -> None:
        embedder = model_embedder(self.reader)
        now: Tensor = embedder.embed(self._texts)
        few = self._texts[:TEXTS]
        Canary.of_vectors([now[:TEXTS]], few, model="faq").save(self.folder / "faq.canary")
        generator = torch.Generator().manual_seed(TURNED)
        turn = torch.linalg.qr(torch.randn(now.shape[1], now.shape[1], generator=generator)).Q
        old = now @ turn
        fit_aligner(np.asarray(now), np.asarray(old)).save(self.folder / "map")
        Canary.of_vectors([old[:TEXTS]], few, model="old").save(self.folder / "old.canary")

    def _index(self) -> None:
        held = unit_rows()
        index = built("IVF8,Flat", held)
        index.nprobe = 2
        written(self.folder, index)
        np.save(self.folder / "present.npy", held)

    def _reference(self, name: str, seed: int) -> Path:
        source = self.folder / f"{name}.npy"
        np.save(source, stream(ROWS, seed=seed).numpy())
        save_reference(create_reference(source), self.folder / name)
        return self.folder / name

    def settings(self, reference: Path) -> dict[str, Any]:
        """Return the configuration of a daemon that looks at all of it."""
        sources: list[dict[str, Any]] = [
            {"kind": "checkpoints", "path": "reader", "name": "reader", "deep": True},
            {"kind": "checkpoints", "path": "writer", "name": "writer", "deep": True, "length": 200,
             "texts": "texts.txt", "prompts": "prompts.txt"},
            {"kind": "canary", "path": "faq.canary", "name": "faq", "model": str(self.reader)},
            {"kind": "canary", "path": "old.canary", "name": "bridge", "model": str(self.reader), "aligner": "map"},
            {"kind": "files", "path": "docs.faiss", "name": "docs", "present": "present.npy"},
        ]  # fmt: skip
        for source in sources:
            source["every"] = EVERY
            for key in ("path", "texts", "prompts", "aligner", "present"):
                if key in source:
                    source[key] = str(self.folder / source[key])
        return {"sources": sources, "references": [{"path": str(reference), "model": "faq", "place": "pooled"}]}

    def bodies(self, number: int) -> dict[str, bytes]:
        """Return what is sent to each place of the model `faq` in one round."""
        rows = stream(ROWS, seed=100 + number)
        spoiled = rows.clone()
        spoiled[::97] = torch.nan
        return {"pooled": npz_body(rows), BROKEN: npz_body(spoiled)}


def npz_body(rows: Tensor) -> bytes:
    """Return labelled rows as they are sent."""
    file = io.BytesIO()
    np.savez(file, vectors=rows.to(torch.float32).numpy(), labels=np.array(_labels(len(rows))))
    return file.getvalue()


def _labels(count: int) -> list[str]:
    return [f"group {number % GROUPS}" for number in range(count)]


class StandDaemon(DaemonServer):
    """A daemon that looks at a stand.

    Args:
        stand: the files.
        interval: after which windows close.
    """

    patience = DEADLINE

    def __init__(self, stand: Stand, *, interval: str) -> None:
        super().__init__(stand.folder, interval=interval)
        self._stand = stand
        self.settings |= stand.settings(stand.references[0])
        self._write(self.settings)

    def compare_with_another(self) -> None:
        """Let rows be compared with another reference."""
        self.settings |= self._stand.settings(self._stand.references[1])
        self.reconfigure(self.settings)


class Sender:
    """Sends rows to the daemon once a window, until the `with` block ends.

    Args:
        stand: what is sent.
        daemon: where to.
    """

    def __init__(self, stand: Stand, daemon: StandDaemon) -> None:
        self._stand, self._daemon = stand, daemon
        self._over, self._failure = threading.Event(), ""
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what was answered otherwise than it should be."""
        assert not self._failure, self._failure

    def _run(self) -> None:
        numbers, closed = count(), -1
        while not self._over.wait(LOOK):
            rounds = int(ask(self._daemon.port, "/api/v1/status").json["rounds"])
            if rounds == closed:
                continue
            closed, number = rounds, next(numbers)
            for place, body in self._stand.bodies(number).items():
                reply = self._send(place, body)
                if reply != 202:
                    self._failure = f"{place}: {reply}"
            if self._send("pooled", self._stand.small, role="table") != REFUSED:
                self._failure = "another role was accepted"

    def _send(self, place: str, body: bytes, *, role: str = "pooled") -> int:
        return send(self._daemon.port, body, f"/api/v1/ingest/faq/{place}?role={role}", NPZ).status


@dataclass
class Live:
    """All that runs."""

    training: LiveTraining
    daemon: StandDaemon
    server: PrometheusServer
    sender: Sender
    scrape: float = SCRAPE
    """Seconds between two scrapes."""
    seconds: float = BACK
    """So far back the panels look."""

    def board(self, dashboard: dict[str, Any]) -> Board:
        return Board(dashboard, self.server, scrape=self.scrape, seconds=self.seconds)

    def wait(self, expression: str) -> None:
        """Wait until a query finds something."""

        def found() -> Any:
            self.training.check()
            self.sender.check()
            return self.server.query(expression)

        poll(found, deadline=DEADLINE)


def audited(folder: Path, daemon: StandDaemon) -> None:
    """Let the command audit labelled rows, and send what it finds to the daemon."""
    asked = [str(folder / "topics.npy"), "--labels", str(folder / "topics.txt"), "--sink", f"daemon:{daemon.url}"]
    done = subprocess.run([sys.executable, "-m", "embedwatch", "audit", *asked], capture_output=True, timeout=DEADLINE)
    assert done.returncode in (0, 1), done.stderr


@contextmanager
def standing(folder: Path, *, scrape: float = SCRAPE) -> Iterator[Live]:
    """Run a training, a daemon and a Prometheus that scrapes both, until each of them has shown everything.

    Args:
        folder: for all files.
        scrape: seconds between two scrapes.
    """
    require("prometheus")
    stand = Stand(folder)
    with ExitStack() as stack:
        daemon = stack.enter_context(StandDaemon(stand, interval="2s"))
        sender = stack.enter_context(Sender(stand, daemon))
        sink = stack.enter_context(Prometheus(0))
        training = stack.enter_context(LiveTraining([sink], every=4, rows=256, window=40))
        targets = [f"127.0.0.1:{sink.port}", daemon.address]
        server = PrometheusServer(folder, targets, rules=[hurried(folder)], interval=f"{scrape:g}s")
        made = Live(training, daemon, stack.enter_context(server), sender, scrape)
        for model, place in (("reader", "meaning"), ("writer", "generation"), ("bridge", "pairs"), ("docs", "index")):
            made.wait(f'embedwatch_window_rows{{model="{model}",place="{place}"}}')
        made.wait('embedwatch_drift_p_value{model="faq",place="pooled"}')
        made.wait(f'ALERTS{{alertname="EmbedwatchNonfiniteRows",alertstate="firing",place="{BROKEN}"}}')
        audited(folder, daemon)
        made.wait("embedwatch_cohesion")
        training.do(training.monitor.examine)
        daemon.compare_with_another()
        made.wait("changes(embedwatch_reference_created_timestamp_seconds[1m]) > 0")
        made.wait('changes(embedwatch_norm_mean{place="token_table"}[1m]) > 0')
        yield made
