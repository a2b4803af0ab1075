"""Word vectors in a file are asked for groups of words as a model is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from embedwatch import audit
from embedwatch.auditing import Audit
from embedwatch.core.errors import UsageError

WORDS = [f"word{number}" for number in range(64)]


@pytest.fixture(scope="module")
def lexicon(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "words.tsv"
    groups = [("topics", f"topic{at}", *WORDS[at : at + 8]) for at in range(0, 64, 8)]
    path.write_text("".join("\t".join(group) + "\n" for group in groups))
    return path


def vectors(path: Path, *, together: bool) -> Path:
    """Write word vectors whose groups lie together, or do not."""
    rows = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    if together:
        rows = rows + 2 * rows[::8].repeat_interleave(8, 0)
    lines = [
        " ".join([word, *(f"{value:.5f}" for value in row)]) for word, row in zip(WORDS, rows.tolist(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def status(found: Audit) -> str:
    (judged,) = [each for each in found.spaces if each.snapshot.space.place == "meaning"]
    return next(verdict.status for verdict in judged.verdicts if verdict.check == "meaning_related")


@pytest.mark.parametrize(("together", "expected"), [(True, "ok"), (False, "fail")])
def test_groups_that_lie_together_are_well(tmp_path: Path, lexicon: Path, together: bool, expected: str) -> None:
    found = audit(vectors(tmp_path / "vectors.txt", together=together), kind="glove", words=lexicon)
    assert status(found) == expected


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be one of en, zh, default or a file"):
        audit(vectors(tmp_path / "vectors.txt", together=True), kind="glove", words=tmp_path / "no.tsv")
