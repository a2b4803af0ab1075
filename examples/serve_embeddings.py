"""Serve a sentence encoder over HTTP, watched: two lines, and Prometheus can scrape what is found.

python examples/serve_embeddings.py ./my-encoder                          a folder or a cached name
curl --json '["how do I pay", "it is broken"]' http://127.0.0.1:8080      vectors of texts
curl http://127.0.0.1:9477/metrics                                        what embedwatch found

In serving there is no optimizer: each forward pass is a step, and a window is judged each minute.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from sentence_transformers import SentenceTransformer

import embedwatch


def server_of(model: Any, port: int) -> HTTPServer:
    """Return what answers a JSON list of texts with a list of vectors."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(model.encode(texts, show_progress_bar=False).tolist()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    return HTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--metrics", type=int, default=9477, help="port for Prometheus")
    options = parser.parse_args()

    model = SentenceTransformer(options.model)
    # The model is answered from as before; findings go to the log and to Prometheus.
    monitor = embedwatch.watch(model, name="encoder", sinks=["log", f"prometheus:{options.metrics}"])
    with monitor, server_of(model, options.port) as server:  # what is open is judged at the end
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(monitor)


if __name__ == "__main__":
    main()
