"""The page in a real Chromium: nothing in the console, no request, every chart drawn, small, readable on a phone."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.mapping import Frame, KeptRows, Layout, lay_out
from embedwatch.recording import read_recording
from embedwatch.report import Report, to_page
from embedwatch.report.gathering import report_audit, report_comparison
from embedwatch.report.maps import map_chart
from embedwatch.report.recorded import report_of_recording
from tests.recordings import broken, record
from tests.report.inputs import HOSTILE, full_report, section, verdict

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of the driver's pipes, at its end
]
CHROMIUM = shutil.which("chromium")
LIMIT = 5_000_000
DRAWN = """() => [...document.querySelectorAll("figure[data-chart]")].map((figure) => {
  const canvas = figure.querySelector("canvas");
  if (!canvas || figure.dataset.drawn !== "yes") return "no canvas: " + figure.textContent.slice(0, 60);
  const found = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < found.length; at += 4)
    if (found[at + 3]) seen.add((found[at] << 16) | (found[at + 1] << 8) | found[at + 2]);
  return seen.size > 3 ? "" : "blank: " + figure.textContent.slice(0, 60);
}).filter(Boolean)"""
OPEN_ALL = """() => {
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  embedwatchReport.drawAll();
}"""


class Look:
    """One page in a browser, and what went on beside it."""

    def __init__(self, browser: Any, file: Path, *, scheme: str = "light", width: int = 1280) -> None:
        self.told: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.on("console", lambda line: self.told.append(line.text))
        self.page.on("pageerror", lambda error: self.told.append(str(error)))
        self.page.on("dialog", lambda dialog: self.told.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.page.evaluate(OPEN_ALL)

    def judge(self, file: Path) -> None:
        """Nothing in the console, nothing asked but the file, every chart has a picture, nothing is cut at the side."""
        assert self.told == []
        assert self.asked == [file.as_uri()]
        assert self.page.evaluate(DRAWN) == []
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is missing; apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def look(browser: Any, tmp_path: Path) -> Iterator[Callable[..., tuple[Look, Path]]]:
    opened: list[Look] = []

    def show(report: Report, **options: Any) -> tuple[Look, Path]:
        file = tmp_path / f"page-{len(opened)}.html"
        file.write_text(to_page(report), encoding="utf-8")
        opened.append(Look(browser, file, **options))
        return opened[-1], file

    yield show
    for each in opened:
        each.context.close()


def clouds(count: int, seed: int, dimension: int = 16) -> tuple[np.ndarray[Any, Any], list[int]]:
    draw = np.random.default_rng(seed)
    members = draw.integers(0, 8, count)
    centres = np.random.default_rng(0).normal(size=(8, dimension)) * 3
    return (centres[members] + draw.normal(size=(count, dimension))).astype("float32"), members.tolist()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_every_exhibit_is_drawn_and_hostile_names_do_nothing(
    look: Callable[..., tuple[Look, Path]], scheme: str, width: int
) -> None:
    found, file = look(full_report(), scheme=scheme, width=width)
    found.judge(file)
    assert found.page.locator("figure[data-drawn]").count() == 10
    assert HOSTILE in found.page.locator("main").inner_text()
    assert found.page.evaluate("document.querySelectorAll('img, iframe').length") == 0


def test_fifty_thousand_points_fit_and_answer(look: Callable[..., tuple[Look, Path]]) -> None:
    rows, members = clouds(50_000, 1)
    kept = KeptRows()
    labels = torch.tensor(members)
    kept.offer(VectorBatch(torch.from_numpy(rows), ids=torch.arange(50_000), labels=labels, groups=[*"abcdefgh"]))
    plane = torch.from_numpy(rows[:, :2].copy())[kept.ids]
    frame = Frame("big", kept.ids, kept.rows.norm(dim=1), kept.groups, (Layout("PCA", plane, told="some"),))
    chart = map_chart(
        "space_map",
        "map",
        [frame],
        lambda place, ids: [f"token {row} {HOSTILE}" for row in ids],
        groups=[("group", [*"abcdefgh"], [kept.groups.tolist()])],
        witnesses=[{7: "named", 9: "named"}],
    )
    assert chart is not None
    report = Report("big", "audit", (section([verdict()]),), charts=(chart,))
    found, file = look(report)
    assert file.stat().st_size < LIMIT
    found.judge(file)
    canvas = found.page.locator("figure[data-chart] canvas").first
    found.page.select_option("label:has-text('colour') select", "norm")
    before = canvas.screenshot()
    found.page.fill("input[type=search]", "token 123 ")
    deadline = time.monotonic() + 30
    while not found.page.evaluate("embedwatchReport.figures[0].state.search || ''"):  # the policy refuses waiting code
        assert time.monotonic() < deadline
        found.page.wait_for_timeout(50)
    assert canvas.screenshot() != before
    found.judge(file)


def test_an_audit_of_states_turns_through_them(look: Callable[..., tuple[Look, Path]], tmp_path: Path) -> None:
    rows, members = clouds(300, 2)
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(16, 16)))
    np.save(tmp_path / "a.npy", rows)
    np.save(tmp_path / "b.npy", (rows @ turn).astype("float32"))
    (tmp_path / "labels.txt").write_text("\n".join(f"group {member}" for member in members), encoding="utf-8")
    report = report_audit([tmp_path / "a.npy", tmp_path / "b.npy"], labels=str(tmp_path / "labels.txt"))
    found, file = look(report)
    found.judge(file)
    slider = found.page.locator("input[type=range]")
    assert slider.get_attribute("max") == "1"
    slider.focus()
    slider.press("ArrowRight")
    assert found.page.locator("output").inner_text() == "b.npy"
    found.judge(file)


def test_a_comparison_and_a_run_are_drawn(look: Callable[..., tuple[Look, Path]], tmp_path: Path) -> None:
    for name, seed in (("old", 4), ("new", 5)):
        np.save(tmp_path / f"{name}.npy", clouds(600, seed)[0])
    found, file = look(report_comparison(tmp_path / "old.npy", tmp_path / "new.npy"))
    found.judge(file)
    assert "Reference against current".lower() in found.page.locator("main").inner_text().lower()
    record(tmp_path, range(10, 60, 10), broken)
    found, file = look(report_of_recording(read_recording(tmp_path)))
    found.judge(file)


def test_the_theme_switches_and_printing_is_light(look: Callable[..., tuple[Look, Path]]) -> None:
    found, file = look(full_report(), scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = found.page.evaluate(ground)
    found.page.click("#theme")
    assert found.page.locator("#theme").inner_text() == "☀ light"
    assert found.page.evaluate(ground) != dark
    found.page.click("#theme")
    assert found.page.evaluate(ground) == dark
    content = found.page.pdf()
    assert content.startswith(b"%PDF")
    assert found.page.evaluate("document.documentElement.dataset.theme") == "dark"  # as it was
    found.judge(file)


def test_nothing_keeps_people_out(look: Callable[..., tuple[Look, Path]]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for scheme in ("light", "dark"):
        found, _ = look(full_report(), scheme=scheme)
        # The policy of the page forbids foreign scripts, so the driver lends axe its own way in.
        report = Axe().run(found.page).response["violations"]
        grave = [
            (each["id"], node["html"][:100])
            for each in report
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]
        assert grave == []


def test_maps_of_small_spaces() -> None:
    kept = KeptRows()
    kept.offer(VectorBatch(torch.ones(12, 1)))
    (frame,) = lay_out([("alike", kept)])
    assert all(bool(layout.places.isfinite().all()) for layout in frame.layouts)
