"""What changed, told from real sentences: the model's settings, the rows, and nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from embedwatch import Provenance, Snapshot, Space, load_subject
from embedwatch.batch import VectorBatch
from embedwatch.checks.what_changed import WhatChanged
from embedwatch.stats.drift import Drift
from embedwatch.stats.transformation import Transformation
from tests.checkout import ROOT

pytestmark = [pytest.mark.real, pytest.mark.slow]
OLD, NEW = 1_200, 500
SEED = 3
BATCH = 64


class Vectors(NamedTuple):
    """Rows of a reference and of a window, and the window's texts pooled by their first token."""

    old: Tensor
    new: Tensor
    first: Tensor


@pytest.fixture(scope="module")
def vectors(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Vectors:
    """Encode sentences of one source in random order."""
    path = tmp_path_factory.mktemp("texts") / "all.txt"
    script = ROOT / "examples" / "stdlib_sentences.py"
    subprocess.run([sys.executable, str(script), str(path), "--limit", str(OLD + NEW)], check=True)
    lines = path.read_text(encoding="utf-8").splitlines()
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(SEED)).tolist()
    texts = [lines[place] for place in order]
    subject = load_subject(minilm)

    def encode(part: list[str], pooling: str) -> Tensor:
        encoder = subject.encoder(pooling=pooling)
        parts = [encoder.encode(part[start : start + BATCH]).vectors for start in range(0, len(part), BATCH)]
        found: Tensor = normalize(torch.cat(parts).float(), dim=1)
        return found

    rows = encode(texts, "mean")
    return Vectors(rows[:OLD], rows[OLD:], encode(texts[OLD:], "cls"))


def changed(vectors: Vectors, kind: str) -> Tensor:
    """Return the window, changed in one way."""
    rows, generator = vectors.new, torch.Generator().manual_seed(0)
    width = rows.shape[1]
    changes: dict[str, Tensor] = {
        "nothing": rows,
        "precision": rows.bfloat16().float(),
        "truncation": pad(normalize(rows[:, :256], dim=1), (0, width - 256)),
        "norms": 1.05 * rows,
        "noise": normalize(rows + 0.1 * normalize(torch.randn(rows.shape, generator=generator), dim=1), dim=1),
        "collapse": normalize(0.7 * rows + 0.3 * vectors.old.mean(0), dim=1),
        "pooling": vectors.first,
        "rotation": rows @ torch.linalg.qr(torch.randn(width, width, generator=generator))[0],
    }
    return changes[kind]


@pytest.mark.parametrize(
    "kind", ["nothing", "precision", "truncation", "norms", "noise", "collapse", "pooling", "rotation"]
)
def test_each_change_of_real_rows_has_its_name(vectors: Vectors, kind: str) -> None:
    measured = []
    for statistic in (Drift, Transformation):
        frozen = statistic.fit([VectorBatch(vectors.old, torch.arange(OLD), source="old")], rows=OLD)
        seen = statistic(frozen=frozen)
        seen.update(VectorBatch(changed(vectors, kind), torch.arange(NEW), source="new"))
        measured += seen.compute()
    snapshot = Snapshot(Space("m", "p"), tuple(measured), Provenance(time=0, rows=NEW))
    assert WhatChanged().named(snapshot) == kind, WhatChanged().evaluate(snapshot).reason
