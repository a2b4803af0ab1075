"""Drift on real embeddings: sentences of one source, in order and with others among them."""

from __future__ import annotations

import pydoc_data.topics
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from embedwatch import compare
from tests.checkout import ROOT

pytestmark = [pytest.mark.real, pytest.mark.slow]
OLD, NEW = 700, 400
SEED = 3
EVERY = 4


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Files of texts: two of one source, and the second with one text in four from another."""
    folder = tmp_path_factory.mktemp("texts")
    script = ROOT / "examples" / "stdlib_sentences.py"
    subprocess.run([sys.executable, str(script), str(folder / "all.txt"), "--limit", str(OLD + NEW)], check=True)
    lines = folder.joinpath("all.txt").read_text(encoding="utf-8").splitlines()
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(SEED)).tolist()
    mixed = [lines[place] for place in order]
    prose = " ".join(" ".join(pydoc_data.topics.topics.values()).split())
    others = [text for text in re.split(r"(?<=\.) ", prose) if 5 <= len(text.split()) <= 40]
    new = mixed[OLD:]
    changed = [others[place] if place % EVERY == 0 else text for place, text in enumerate(new)]
    found = []
    for name, content in (("old.txt", mixed[:OLD]), ("new.txt", new), ("changed.txt", changed)):
        folder.joinpath(name).write_text("\n".join(content), encoding="utf-8")
        found.append(folder / name)
    return found[0], found[1], found[2]


def test_real_sentences_of_one_source_and_of_two(minilm: Path, texts: tuple[Path, Path, Path]) -> None:
    old, new, changed = texts
    same = compare(old, new, model=minilm)
    assert {verdict.status for verdict in same.verdicts} == {"ok"}
    assert same.snapshot.number("drift_decay_length") == 1
    other = compare(old, changed, model=minilm)
    assert other.status in ("warn", "fail")
    (foreign,) = [exhibit for exhibit in other.exhibits if exhibit.name == "foreign_rows"]
    assert all(str(row[1]).startswith("line ") for row in foreign.rows)
