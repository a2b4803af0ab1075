"""The page: escaped, self-contained, bounded, and with the verdicts of the JSON."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from embedwatch.core import Space
from embedwatch.core.exhibit import Exhibit
from embedwatch.report import Report, page, to_page
from tests.report.inputs import HOSTILE, full_report, section, verdict

EMPTY = {"meta", "br", "input"}


class Reading(HTMLParser):
    """Reads a page as a browser does: what is an element, and what text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "script":
            self._script = found.get("id") or f"code-{len(self.scripts)}"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._script = None if tag == "script" else self._script

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.text.append(data)


@pytest.fixture(scope="module")
def text() -> str:
    return to_page(full_report(), now=0.0)


@pytest.fixture(scope="module")
def read(text: str) -> Reading:
    return Reading(text)


def test_hostile_names_are_text(text: str, read: Reading) -> None:
    assert read.open == []  # every element ends
    assert {name for name, _ in read.elements}.isdisjoint({"img", "iframe", "link", "base", "object"})
    assert HOSTILE not in text
    assert HOSTILE in "".join(read.text)  # it is told, as it is
    assert not any(name.startswith("on") for _, attributes in read.elements for name in attributes)


def test_data_are_json_in_which_nothing_ends_a_script(read: Reading) -> None:
    data = {name: body for name, body in read.scripts.items() if not name.startswith("code-")}
    assert data
    for body in data.values():
        assert "<" not in body
        json.loads(body)
    assert any(HOSTILE in json.dumps(json.loads(body), ensure_ascii=False) for body in data.values())


def test_only_its_own_scripts_may_run(text: str, read: Reading) -> None:
    policy = next(a["content"] for tag, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    code = [body for name, body in read.scripts.items() if name.startswith("code-")]
    assert len(code) == 3
    assert all(f"'sha256-{page._digest(body)}'" in policy for body in code)
    assert text.index("Content-Security-Policy") < text.index("<script")


def test_nothing_points_out_of_the_file(read: Reading) -> None:
    for _, attributes in read.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_every_link_has_its_target_once(read: Reading) -> None:
    names = [attributes["id"] for _, attributes in read.elements if attributes.get("id")]
    assert len(names) == len(set(names))
    links = {str(attributes["href"])[1:] for _, attributes in read.elements if attributes.get("href")}
    assert links <= set(names)
    assert {"exhibit-0-hubs", "exhibit-0-curve_of_somebody"} <= links  # cited, and there
    assert not any("not_there" in link for link in links)


def test_the_verdicts_are_those_of_the_report(read: Reading) -> None:
    report = full_report()
    data = json.loads(read.scripts["verdicts-json"])
    assert (data["status"], data["counts"]) == (report.status, report.counts())
    told = [{k: v for k, v in each.to_json().items() if k not in ("meaning", "title")} for each in report.verdicts]
    assert data["verdicts"] == json.loads(json.dumps(told))


def test_what_is_wrong_comes_first_with_its_remedy(read: Reading) -> None:
    words = "".join(read.text)
    order = [words.index(part) for part in ("✕ failcollapse title", "▲ warnzero_rows title", "? 1 could not")]
    assert order == sorted(order)
    assert words.rindex("✓ 1 ok") > order[-1]
    assert words.index("collapse title") < words.index("It means.") < words.index("Do.") < words.index("Norm")


def test_one_finding_at_many_places_is_one_card() -> None:
    spaces = [Space("m", f"layers.{layer}") for layer in range(20)]
    report = Report("m", "audit", tuple(section([verdict(space=space)], space=space) for space in spaces))
    read = Reading(to_page(report))
    cards = [a for tag, a in read.elements if tag == "article"]
    assert len(cards) == 1
    assert "8 more places" in "".join(read.text)


def test_our_own_errors_are_told(read: Reading) -> None:
    assert "statistic 'norms' failed, 2 in all" in "".join(read.text)


def test_nothing_judged_is_not_called_fine() -> None:
    words = "".join(Reading(to_page(Report("m", "audit", (section(),)))).text)
    assert "Nothing could be judged." in words
    assert "Nothing is wrong" not in words


def test_a_page_stays_below_its_limit_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_BYTES", 1_700_000)
    wide = [
        Exhibit.build(
            f"wide_{n}", "matrix", "x", ("a", "b", "v"), [(i, j, i / 70) for i in range(70) for j in range(70)]
        )
        for n in range(8)
    ]
    grave = Exhibit.build("grave", "curve", "x", ("a", "b"), [(1, 2.0), (2, 3.0)])
    sections = (section([verdict(status="ok")], wide), section([verdict(exhibits=["grave"])], [grave]))
    text = to_page(Report("m", "audit", sections))
    assert len(text.encode()) < page.MOST_BYTES
    words = "".join(Reading(text).text)
    assert "Left out, so that the page stays below 1.7 MB" in words
    assert '"name":"grave"' in text  # what a verdict names takes its room first


def test_no_surrogate_stops_the_page() -> None:
    broken = "half \ud800 pair\u202e"
    text = to_page(Report(broken, "audit", (section([verdict(reason=broken)]),), lead=(broken,)))
    assert re.search(r"half . pair", text)
    text.encode()
