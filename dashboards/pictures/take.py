"""Draws the dashboards with Grafana's own components on real data: `python dashboards/pictures/take.py`.

A real Prometheus scrapes a real training and a real daemon, as in live tests. What it answers is drawn by the panels
of Grafana's UI library, in a page that `npm` builds, and Chromium takes the pictures. None of this is a Grafana server:
annotations, links and the choice of variables are not drawn, and everything is chosen.
It takes minutes, 600 MB of packages, and is no part of the tests.

    npm install --prefix dashboards/pictures/page
    npm run build --prefix dashboards/pictures/page
    python dashboards/pictures/take.py --answers answers.json

The answers are kept: with the same file again, only the pictures are taken.
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
WIDTH, CELL, HEAD = 1500, 38, 64
"""Pixels: of a picture, of a row of the grid, above it."""
COLOURS = (192, 96, 48, 24)
MOST_BYTES = 250_000
"""A picture has as many colours as fit in so much."""
PATIENCE_MS = 15_000
MILLI = 1000
SCRAPE = 2.0
"""Seconds between two scrapes: on a busy machine one may take longer than a second, and leaves a gap."""
LIGHT = ("embedwatch-overview.json",)
"""Those that are also taken in light."""

Answers = dict[str, dict[str, Any]]
"""Dashboard to what its panels found, and between when."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    pictures = ROOT / "docs" / "pictures" / "dashboards"
    parser.add_argument("--page", type=Path, default=HERE / "page" / "dist", help="the page that npm built")
    parser.add_argument("--out", type=Path, default=pictures, help="where the pictures go")
    parser.add_argument("--answers", type=Path, help="what was answered: read from here, or written where it is not")
    parser.add_argument("--seconds", type=float, default=120.0, help="so long data is gathered")
    options = parser.parse_args(arguments)
    if options.answers and options.answers.exists():
        answers: Answers = json.loads(options.answers.read_text(encoding="utf-8"))
    else:
        answers = gathered(options.seconds)
        if options.answers:
            options.answers.write_text(json.dumps(answers), encoding="utf-8")
    boards = {name: filled(board, answers[name]) for name, board in committed_dashboards().items()}
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page"
        shutil.copytree(options.page, page)
        page.joinpath("data.js").write_text(f"window.BOARDS = {json.dumps(boards)};", encoding="utf-8")
        with served(page) as address:
            for name, board in boards.items():
                for mode in ("dark", "light") if name in LIGHT else ("dark",):
                    path = options.out / picture_name(name, mode)
                    taken(f"{address}/index.html?board={name}&width={WIDTH}&mode={mode}", path, height_of(board))
                    print(path, path.stat().st_size, "bytes", flush=True)
    return 0


def picture_name(dashboard: str, mode: str) -> str:
    """Return the file name of a picture.

    Example:
        >>> picture_name("embedwatch-overview.json", "light")
        'overview-light.png'
    """
    name = dashboard.removeprefix("embedwatch-").removesuffix(".json")
    return f"{name}.png" if mode == "dark" else f"{name}-{mode}.png"


def height_of(board: Mapping[str, Any]) -> int:
    """Return the pixels that a dashboard needs."""
    rows = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in board["panels"])
    return HEAD + CELL * int(rows)


def gathered(seconds: float) -> Answers:
    """Let everything run for a while; return what the dashboards show of it."""
    with tempfile.TemporaryDirectory() as folder, standing(Path(folder), scrape=SCRAPE) as live:
        time.sleep(seconds)
        return {name: answered(live, board) for name, board in committed_dashboards().items()}


def answered(live: Live, dashboard: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the queries of a dashboard found, panel by panel."""
    asked = live.board(dict(dashboard)).results()
    print(dashboard["title"], "without data:", sorted({each.query.place for each in asked if not each.series}))
    results = iter(asked)
    now = time.time() * MILLI
    found: dict[str, list[dict[str, Any]]] = {}
    for panel in panels(dashboard):
        found[panel["title"]] = [series for _ in panel["targets"] for series in _series(next(results))]
    return {"found": found, "range": [now - live.seconds * MILLI, now], "step": SCRAPE * MILLI}


def filled(dashboard: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dashboard as the page draws it: with what its queries found, without answers to queries of before."""
    shown = []
    for panel in dashboard["panels"]:
        asked = {query["refId"] for query in panel.get("targets", ())}
        found = [series for series in answer["found"].get(panel["title"], []) if series["ref"] in asked]
        shown.append({**panel, "found": found})
    return {"title": dashboard["title"], "panels": shown, "range": answer["range"], "step": answer["step"]}


def _series(result: Result) -> Iterator[dict[str, Any]]:
    for sample in result.series:
        labels = sample["metric"]
        points = sample.get("values") or [sample["value"]]
        yield {
            "ref": result.query.ref,
            "name": _named(result.query.legend, labels),
            "labels": labels,
            "times": [float(moment) * MILLI for moment, _ in points],
            "values": [None if value == "NaN" else float(value) for _, value in points],
        }


def _named(legend: str, labels: Mapping[str, str]) -> str:
    """Return the name of a line, as Grafana makes it of its labels."""
    return LABEL.sub(lambda match: labels.get(match[1], ""), legend)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- of the standard library
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def taken(address: str, path: Path, height: int) -> None:
    """Take the picture of a page."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"]
    size = f"--window-size={WIDTH},{height}"
    patience = f"--virtual-time-budget={PATIENCE_MS}"
    command = [chromium, *options, size, patience, f"--screenshot={path}", address]
    subprocess.run(command, check=True, capture_output=True, timeout=300)  # noqa: S603
    whole = Image.open(path).convert("RGB")
    for colours in COLOURS:
        whole.quantize(colours).save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            return


if __name__ == "__main__":
    sys.exit(main())
