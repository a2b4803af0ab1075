"""Draws the dashboards with Grafana's own components on real data: `python dashboards/pictures/take.py`.

A real Prometheus scrapes a real training and a real daemon, as in live tests. What it answers is drawn by the panels
of Grafana's UI library, in a page that `npm` builds, and Chromium takes the pictures. None of this is a Grafana server.
It takes minutes, 600 MB of packages, and is no part of the tests.

    npm install --prefix dashboards/pictures/page
    npm run build --prefix dashboards/pictures/page
    python dashboards/pictures/take.py
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402

from embedwatch.operations.queries import panels  # noqa: E402
from tests.dashboards.grafana import Result  # noqa: E402
from tests.dashboards.tools import committed_dashboards  # noqa: E402
from tests.end_to_end.live_stand import Live, standing  # noqa: E402

LABEL = re.compile(r"\{\{(\w+)\}\}")
WIDTH, CELL, HEAD = 1600, 38, 80
"""Pixels: of a picture, of a row of the grid, above it."""
COLOURS = 128
PATIENCE_MS = 15_000
MILLI = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--page", type=Path, default=HERE / "page" / "dist", help="the page that npm built")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures", help="where the pictures go")
    parser.add_argument("--seconds", type=float, default=120.0, help="so long data is gathered")
    options = parser.parse_args(arguments)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
    with tempfile.TemporaryDirectory() as folder:
        with standing(Path(folder)) as live:
            time.sleep(options.seconds)
            boards = {name: answered(live, board) for name, board in committed_dashboards().items()}
        page = Path(folder) / "page"
        shutil.copytree(options.page, page)
        page.joinpath("data.js").write_text(f"window.BOARDS = {json.dumps(boards)};", encoding="utf-8")
        options.out.mkdir(parents=True, exist_ok=True)
        with served(page) as address:
            for name, board in boards.items():
                path = options.out / name.replace(".json", ".png")
                height = HEAD + CELL * max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in board["panels"])
                taken(chromium, f"{address}/index.html?board={name}&width={WIDTH}", path, height)
                print(path, path.stat().st_size, "bytes")
    return 0


def answered(live: Live, dashboard: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dashboard with what its queries found, as the page draws it."""
    asked = live.board(dict(dashboard)).results()
    print(dashboard["title"], "without data:", sorted({each.query.place for each in asked if not each.series}))
    results = iter(asked)
    now = time.time() * MILLI
    found: dict[str, list[dict[str, Any]]] = {}
    for panel in panels(dashboard):
        found[panel["title"]] = [series for _ in panel["targets"] for series in _series(next(results))]
    shown = [{**panel, "found": found.get(panel["title"], [])} for panel in dashboard["panels"]]
    return {"title": dashboard["title"], "panels": shown, "range": [now - live.seconds * MILLI, now]}


def _series(result: Result) -> Iterator[dict[str, Any]]:
    for sample in result.series:
        labels = sample["metric"]
        points = sample.get("values") or [sample["value"]]
        yield {
            "ref": result.query.ref,
            "name": LABEL.sub(lambda match, known=labels: known.get(match[1], ""), result.query.legend),
            "labels": labels,
            "times": [float(moment) * MILLI for moment, _ in points],
            "values": [None if value == "NaN" else float(value) for _, value in points],
        }


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to this machine."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def taken(chromium: str, address: str, path: Path, height: int) -> None:
    """Take the picture of a page."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]
    size = f"--window-size={WIDTH},{height}"
    patience = f"--virtual-time-budget={PATIENCE_MS}"
    command = [chromium, *options, size, patience, f"--screenshot={path}", address]
    subprocess.run(command, check=True, capture_output=True, timeout=180)  # noqa: S603
    Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
