"""The example of serving: vectors are what the model says, and a window that is over is on the page for Prometheus."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import embedwatch
from embedwatch.sinks.prometheus import Prometheus
from examples import serve_embeddings
from tests.loading import tiny
from tests.quiet import quiet_transformers

st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra: oracles)")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def test_texts_are_answered_and_watched(tmp_path: Path) -> None:
    texts = tiny.texts(8)
    with quiet_transformers():
        model = st.SentenceTransformer(str(tiny.save("bert", tmp_path / "model")), device="cpu")
        expected = model.encode(texts)
        sink = Prometheus(0)
        monitor = embedwatch.watch(model, name="encoder", sinks=[sink], every=1, on_error="raise")
        server = serve_embeddings.server_of(model, 0)
        with monitor, server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                for _ in range(3):
                    answer = post(f"http://127.0.0.1:{server.server_port}", texts)
                monitor.flush()
                page = get(sink.url)
            finally:
                server.shutdown()
                thread.join(timeout=10)
    assert np.allclose(answer, expected, atol=1e-5)
    assert 'model="encoder"' in page
    assert 'place="sentence_embedding"' in page


def post(url: str, texts: list[str]) -> list[list[float]]:
    request = urllib.request.Request(url, data=json.dumps(texts).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as reply:
        found: list[list[float]] = json.load(reply)
        return found


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as reply:
        return str(reply.read().decode())
