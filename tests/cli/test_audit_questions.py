"""What `embedwatch audit` is asked of a model or an index is refused at once where it cannot be answered."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from embedwatch.cli import main
from tests.ann.index_makers import built, written
from tests.loading import tiny
from tests.quiet import quiet_transformers


@pytest.fixture(scope="module", autouse=True)
def _silent() -> Iterator[None]:
    with quiet_transformers():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("asked")
    tiny.save("bert", place / "bert")
    for name in ("mute", "liar"):
        tiny.save("llama-lm", place / name)
    for file in (place / "mute").glob("tokenizer*"):
        file.unlink()
    config = place / "liar" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "intermediate_size": 48}))
    (place / "texts.txt").write_text("w1 w2\n")
    (place / "empty.txt").touch()
    os.mkfifo(place / "pipe.txt")
    rows = np.random.default_rng(0).standard_normal((50, 8)).astype("float32")
    np.save(place / "wide.npy", rows.repeat(2, 1))
    np.save(place / "none.npy", rows[:0])
    written(place, built("Flat", rows), "docs.faiss")
    return place


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bert --corpus no.txt", "`corpus` must be a readable file of texts, got no.txt: No such file"),
        ("bert --corpus bert", "`corpus` must be a readable file of texts, got bert: Is a directory"),
        ("bert --corpus empty.txt", "`corpus` must hold texts, got the empty file empty.txt"),
        (
            "bert --corpus pipe.txt",
            "`corpus` must be a regular file, got a pipe or device, pipe.txt; write it to a file",
        ),
        ("bert --corpus wide.npy", "`corpus` must hold texts, got bytes that are none in wide.npy"),
        ("bert --prompts no.txt", "no.txt does not exist"),
        ("bert --prompts texts.txt", "`prompts` must come with a model that writes, got bert, which only reads"),
        ("mute --prompts texts.txt", "`mute` must hold a tokenizer to encode texts or name tokens, got none"),
        ("mute --corpus texts.txt", "`mute` must hold a tokenizer"),
        ("mute --words en", "`mute` must hold a tokenizer"),
        ("liar --deep", "by its config.json, got"),
        ("bert --length 0", "`length` must be from 1 to 1,000,000,000 tokens, got 0"),
        ("bert --length 99999999999999999999", "`length` must be from 1 to 1,000,000,000 tokens"),
        ("docs.faiss --queries no.npy", "no.npy does not exist"),
        ("docs.faiss --queries wide.npy", "`queries` must have the 8 dimensions of docs.faiss, got 16 in wide.npy"),
        ("docs.faiss --present wide.npy", "`present` must have the 8 dimensions of docs.faiss, got 16 in wide.npy"),
        ("docs.faiss --queries none.npy", "`queries` must hold vectors, got none in none.npy"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    folder: Path, words: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(main, ["audit", *words.split()])
    assert done.exit_code == 2, done.output
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
