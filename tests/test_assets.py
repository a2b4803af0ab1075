"""Files of others are those that their authors published."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import pytest

from embedwatch.assets import DIGESTS, read_asset
from tests.checkout import ROOT


@pytest.mark.parametrize("name", DIGESTS)
def test_it_is_as_it_was_published(name: str) -> None:
    assert hashlib.sha256(read_asset(name)).hexdigest() == DIGESTS[name]


def test_every_file_is_known_and_has_its_licence() -> None:
    there = {path.name for path in files("embedwatch.assets").iterdir() if path.name.endswith((".js", ".css"))}
    assert there == set(DIGESTS)
    stems = {name.split(".")[0] for name in there}
    assert all((files("embedwatch.assets") / f"{stem}.LICENSE").is_file() for stem in stems)


@pytest.mark.parametrize("name", DIGESTS)
def test_the_page_about_it_tells_what_it_is(name: str) -> None:
    page = ROOT.joinpath("docs", "page.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page
    assert DIGESTS[name] in page
