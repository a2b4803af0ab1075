"""The examples of trainers: a sound training is recorded, and what is said about a bad one is printed."""

from __future__ import annotations

import ast
import logging
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from embedwatch.recording import read_recording
from examples import (
    fine_tune_lightning,
    fine_tune_sentence_transformers,
    fine_tune_transformers,
    serve_embeddings,
    upgrade_model,
    watch_plain_loop,
)
from tests.loading import tiny
from tests.quiet import quiet_transformers

EXAMPLES = [
    watch_plain_loop,
    fine_tune_transformers,
    fine_tune_sentence_transformers,
    fine_tune_lightning,
    serve_embeddings,
    upgrade_model,
]
MOST_LINES = 60
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with quiet_transformers():
        yield


def run(example: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [example.__name__, *map(str, arguments)])
    example.main()


def code_lines(example: ModuleType) -> int:
    """Return the lines of code: neither empty nor in the docstring of the module."""
    text = Path(example.__file__ or "").read_text(encoding="utf-8")
    first = ast.parse(text).body[0].end_lineno or 0
    return sum(bool(line.strip()) for line in text.splitlines()[first:])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__.rpartition(".")[2])
def test_an_example_is_short_and_says_how_it_is_run(example: ModuleType) -> None:
    assert code_lines(example) < MOST_LINES
    assert f"python examples/{Path(example.__file__ or '').name}" in (example.__doc__ or "")


def test_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny.save("llama-lm", tmp_path / "model")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(tiny.texts(60)), encoding="utf-8")
    run(fine_tune_transformers, monkeypatch, model, texts, "--steps", 20)
    told = capsys.readouterr().out
    assert "step 20, detached" in told
    assert "embedwatch show fine-tuned" in told
    assert read_recording("fine-tuned").counts()["ok"] > 5


@pytest.mark.slow
def test_sentence_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, texts = tiny.save("bert", tmp_path / "model"), tiny.texts(80)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("\n".join(f"{one}\t{two}" for one, two in pairwise(texts)), encoding="utf-8")
    run(fine_tune_sentence_transformers, monkeypatch, model, pairs, "--steps", 10)
    assert "step 10, detached" in capsys.readouterr().out
    assert any(each.space.place == "sentence_embedding" for each in read_recording("fine-tuned").spaces)


def test_lightning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(fine_tune_lightning, monkeypatch, "--steps", 20)
    assert "step 20, detached" in capsys.readouterr().out
    sound = read_recording("watched")
    assert (sound.counts()["fail"], sound.counts()["warn"]) == (0, 0)
    assert sound.counts()["ok"] > 5
