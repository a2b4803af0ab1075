"""Rows that have names: words in files of vectors."""

from __future__ import annotations

from pathlib import Path

import torch

from embedwatch.lexicons import Lexicon, WordGroup
from embedwatch.meaning.measuring import measure
from embedwatch.meaning.rows import named_words
from embedwatch.sources import open_source

LEXICON = Lexicon("xx", (WordGroup("topics", "t", ("paris", "new york", "Berlin", "rome", "oslo")),))


def test_words_are_found_by_their_names(tmp_path: Path) -> None:
    names = ["Paris", "paris", "New_York", "berlin", "BERLIN", "bonn", "rome"]
    lines = [f"{name} {number}.5 {number}.25" for number, name in enumerate(names)]
    path = tmp_path / "vectors.glove"
    path.write_text("\n".join(lines) + "\n")
    found = named_words(open_source(path, "glove"), [LEXICON])
    assert found.words == ("paris", "new york", "Berlin", "rome")
    assert found.vectors[:, 0].tolist() == [1.5, 2.5, 3.5, 6.5]


def test_a_source_without_names_knows_no_word(tmp_path: Path) -> None:
    import numpy as np

    np.save(tmp_path / "rows.npy", np.ones((4, 3), dtype=np.float32))
    found = named_words(open_source(tmp_path / "rows.npy"), [LEXICON])
    assert found.words == ()
    assert found.vectors.shape == (0, 3)
    measurements, exhibits = measure(found.words, found.vectors, lexicons=LEXICON)
    assert [measurement.number for measurement in measurements] == [0.0]
    assert not exhibits
    assert torch.is_tensor(found.vectors)
