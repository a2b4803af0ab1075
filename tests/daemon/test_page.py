"""The page at `/` in a real Chromium: every state, nothing in the console, nobody asked but the daemon, no barriers."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.page_scenes import MINUTE, Minutes, reference_of_topics, scene, window
from tests.daemon.serving import Served, send

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of the driver's pipes, at its end
]
CHROMIUM = shutil.which("chromium")
TOKEN = "a-token-that-is-long-enough"
SIZES = {"desk": (1280, 900), "phone": (390, 844)}
HEALTHY, FAULTY = 12, 4
PATIENCE = 30_000
GRAVE_BARRIERS = ("serious", "critical")
UNREACHABLE = "Failed to load resource"
"""What Chromium itself writes where a request is refused or nobody answers."""


@dataclass
class Look:
    """One page in a browser, and what went on beside it."""

    page: Any
    told: list[str] = field(default_factory=list)
    """Lines in the console, and exceptions."""
    asked: list[str] = field(default_factory=list)
    """Addresses of requests."""

    def barriers(self) -> list[str]:
        """Return what axe finds that is serious."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {node['html'][:150]}"
            for each in found
            if each["impact"] in GRAVE_BARRIERS
            for node in each["nodes"]
        ]

    def picture(self, folder: Path, name: str) -> None:
        content = self.page.screenshot(path=str(folder / f"{name}.png"), full_page=True)
        assert len(content) > 5_000


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
def look(browser: Any) -> Iterator[Callable[..., Look]]:
    contexts = []

    def open_page(port: int, *, scheme: str = "light", size: str = "desk", path: str = "/") -> Look:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        found = Look(context.new_page())
        found.page.on("console", lambda message: found.told.append(message.text))
        found.page.on("pageerror", lambda error: found.told.append(str(error)))
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.goto(f"http://127.0.0.1:{port}{path}")
        return found

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def clock() -> Minutes:
    return Minutes(time.time() - (HEALTHY + FAULTY) * MINUTE)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory, clock: Minutes) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("failing")
    with scene(folder, clock, reference_of_topics(folder)) as served:
        for number in range(HEALTHY + FAULTY):
            window(served, clock, number, faulty=number >= HEALTHY)
        yield served


def space_path(model: str, place: str, segment: str = "all") -> str:
    return f"/#/space?model={model}&place={place}&segment={segment}"


def assert_only_the_daemon_was_asked(found: Look, port: int) -> None:
    assert found.asked
    assert {re.match(r"\w+://[^/]+", url)[0] for url in found.asked if not url.startswith("data:")} == {  # type: ignore[index]
        f"http://127.0.0.1:{port}"
    }


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_wrong_is_told_first_with_what_to_do(
    look: Callable[..., Look], failing: Served, tmp_path: Path, scheme: str, size: str
) -> None:
    found = look(failing.port, scheme=scheme, size=size)
    page = found.page
    page.wait_for_selector(".space")
    finding = page.locator(".finding").first
    assert "fail" in finding.inner_text()
    assert "Do" in finding.locator(".remedy").inner_text()
    assert page.locator(".space").first.locator(".badge").inner_text().endswith("fail")
    assert page.locator(".strip rect").count() >= HEALTHY + FAULTY
    assert page.locator(".changes li").count() >= 1
    assert "need" in page.locator(".sentence").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], "nothing sticks out"
    found.picture(tmp_path, f"overview-{size}-{scheme}")
    assert found.barriers() == []
    assert found.told == []
    assert_only_the_daemon_was_asked(found, failing.port)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_space_shows_its_map_its_course_and_its_numbers(
    look: Callable[..., Look], failing: Served, tmp_path: Path, scheme: str, size: str
) -> None:
    found = look(failing.port, scheme=scheme, size=size, path=space_path("faq", "pooled", "de"))
    page = found.page
    page.wait_for_selector(".chart.tall canvas")
    page.wait_for_selector(".chart.low canvas")
    told = page.locator(".chart.tall").get_attribute("aria-label")
    assert re.fullmatch(r"Map: 600 rows now, 600 rows of the reference, \d+ far from it", told)
    assert int(told.split()[-4]) > 50, "a hundred rows lie elsewhere"
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    page.locator("details summary").first.click()
    assert page.locator("details[open] dt").count() >= 3
    found.picture(tmp_path, f"space-{size}-{scheme}")
    assert found.barriers() == []
    assert found.told == []
    assert_only_the_daemon_was_asked(found, failing.port)


def test_t_sne_comes_when_somebody_looks(look: Callable[..., Look], failing: Served, tmp_path: Path) -> None:
    found = look(failing.port, path=space_path("faq", "pooled", "en"))
    found.page.get_by_label("t-SNE").check()
    found.page.wait_for_selector(".chart.tall canvas")
    assert found.page.locator("text=Neighbours count").count() == 1
    found.picture(tmp_path, "tsne")
    assert found.told == []


def test_rows_that_speak_for_a_finding_are_listed(look: Callable[..., Look], failing: Served) -> None:
    found = look(failing.port, path=space_path("sentence-transformers%2Fall-MiniLM-L6-v2", "pooled"))
    found.page.wait_for_selector(".finding.fail")
    assert "NaN" in found.page.locator(".finding.fail .reason").first.inner_text()
    assert "no reference" in found.page.locator(".head").inner_text()
    assert found.told == []


def test_it_goes_by_keyboard(look: Callable[..., Look], failing: Served) -> None:
    page = look(failing.port).page
    page.wait_for_selector(".space")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.space') !== null"):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("nav[aria-label=Breadcrumb]")
    page.wait_for_selector("#title:focus")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".tiles")


def test_spaces_are_found_by_name_and_by_verdict(look: Callable[..., Look], failing: Served) -> None:
    page = look(failing.port).page
    page.wait_for_selector(".space")
    page.get_by_label("Find a Space by its name").fill("search vectors")
    page.locator(".space").nth(1).wait_for(state="detached")
    assert "search-index / vectors" in page.locator(".space .who").inner_text()
    page.get_by_label("Find a Space by its name").fill("")
    page.locator(".tile.fail").click()
    page.locator(".space .badge:not(.fail)").first.wait_for(state="detached")
    assert str(page.locator(".space").count()) == page.locator(".tile.fail .big").inner_text()
    assert page.locator(".tile.fail").get_attribute("aria-pressed") == "true"


def test_it_follows_what_happens_without_losing_the_place(look: Callable[..., Look], tmp_path: Path) -> None:
    clock = Minutes(time.time() - 10 * MINUTE)
    with scene(tmp_path, clock) as served:
        found = look(served.port)
        page = found.page
        page.wait_for_selector("text=Nothing was sent yet")
        found.picture(tmp_path, "empty")
        assert found.barriers() == []
        window(served, clock, 0, faulty=False)
        page.wait_for_selector(".space")
        assert page.locator("text=No check warns or fails anywhere").count() == 1
        found.picture(tmp_path, "healthy")
        page.get_by_label("Find a Space by its name").fill("MiniLM")
        window(served, clock, 1, faulty=True)
        page.wait_for_selector(".space .badge.fail")
        assert page.get_by_label("Find a Space by its name").input_value() == "MiniLM"
        assert page.evaluate("document.activeElement.type") == "search", "what has the focus keeps it"
        assert found.told == []


def test_a_daemon_that_is_away_is_said_to_be(look: Callable[..., Look], tmp_path: Path) -> None:
    clock = Minutes(time.time() - MINUTE)
    with scene(tmp_path, clock) as served:
        window(served, clock, 0, faulty=False)
        found = look(served.port)
        found.page.wait_for_selector(".space")
    found.page.wait_for_selector("[role=alert]")
    assert "does not answer" in found.page.locator("[role=alert]").inner_text()
    assert found.page.locator(".space").count() == 4, "what was known stays"
    assert "when last heard" in found.page.locator(".sentence .badge.unknown").inner_text()
    found.picture(tmp_path, "away")
    assert found.barriers() == []
    assert [line for line in found.told if UNREACHABLE not in line] == []


def test_nobody_sees_anything_without_the_token(look: Callable[..., Look], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN + "\n")
    with scene(tmp_path, Minutes(time.time()), auth={"token_file": str(tokens)}) as served:
        body = b'{"vectors": [[1, 2], [3, 4]]}'
        assert send(served.port, body, kind="application/json", Authorization=f"Bearer {TOKEN}").status == 202
        found = look(served.port)
        page = found.page
        page.wait_for_selector("form")
        assert page.locator("footer").inner_text() == "metrics · API", "not even the version"
        found.picture(tmp_path, "refused")
        assert found.barriers() == []
        page.get_by_label("Token or password").fill("another word than the right one")
        page.keyboard.press("Enter")
        page.wait_for_selector("[role=alert]")
        page.get_by_label("Token or password").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector(".space")
        page.reload()
        page.wait_for_selector(".space")
        page.get_by_role("button", name="sign out").click()
        page.wait_for_selector("form")
        assert [line for line in found.told if UNREACHABLE not in line] == []
