"""faiss: what a reader of the rows is told, their names, and files that are no index."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import pytest

from embedwatch.align.indexing import align_index
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.sources import open_source
from embedwatch.sources.faiss import FaissSource
from embedwatch.testing.source_contract import refuses_damage, source_contract
from tests.align.spaces import aligner
from tests.ann.index_makers import built, rows, written
from tests.sources.refusals import refusal


@pytest.mark.parametrize("recipe", ["IVF2,Flat", "HNSW8", "PQ4x4np"])
def test_other_kinds_keep_the_contract(recipe: str, tmp_path: Path) -> None:
    ids = np.arange(40) * 3 + 7 if recipe.startswith("IVF") else None
    path = written(tmp_path, built(recipe, rows(40, 8), ids))
    source_contract(FaissSource, path)
    refuses_damage(FaissSource, path, tmp_path / "damaged")


def test_notes_say_what_was_lost(tmp_path: Path) -> None:
    x = rows()
    path = written(tmp_path, built("IVF4,PQ4x4np", x, np.arange(len(x)) + 100))
    kind, lossy, ids = FaissSource.open(path).notes
    assert kind == "FAISS index IVF4,PQ4x4np, compared by inner product"
    assert lossy.startswith("lossy: the index keeps 16 of 512 bits a vector (product quantiser 4x4); these are the ")
    assert ids == "rows are numbered here; their names are the ids of the index"
    assert "rounded: the index keeps 8 bits" in FaissSource.open(written(tmp_path, built("SQ8", x))).notes[1]


def test_unequal_lengths_under_an_inner_product_are_told(tmp_path: Path) -> None:
    """Their order is not that of cosine: of the first ten, 45 % were the same."""
    x = rows() * np.linspace(0.5, 2, 600, dtype=np.float32)[:, None]
    assert "of unequal length (0.5 to 2 in a sample)" in FaissSource.open(written(tmp_path, built("Flat", x))).notes[-1]
    quiet = FaissSource.open(written(tmp_path, built("Flat", x, metric=faiss.METRIC_L2)))
    assert quiet.notes == ("FAISS index Flat, compared by euclidean",)


def test_any_name_will_do(tmp_path: Path) -> None:
    for name in ("docs.faiss", "docs.index", "docs", "docs.bin"):
        source: Source = open_source(written(tmp_path, built("Flat", rows()), name))
        assert isinstance(source, FaissSource), name
    text = tmp_path / "words.txt"
    text.write_text("IxF2 0.1 0.2\nIwFl 0.3 0.4\n")
    assert not FaissSource.accepts(text)


def test_what_is_no_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.faiss"
    path.write_bytes(b"IxF2" + bytes(60))
    assert "must begin like an index of FAISS" in refusal(FaissSource, path)
    path.write_bytes(
        b"IxF2" + (8).to_bytes(4, "little") + (9).to_bytes(8, "little") + (1 << 20).to_bytes(8, "little") * 2
    )
    assert "must begin like an index of FAISS" in refusal(FaissSource, path)
    path.write_bytes(path.read_bytes() + b"\1\0\0\0\0" + bytes(9))
    assert "docs" not in refusal(FaissSource, path)


def test_lists_in_a_file_elsewhere_are_read_from_the_same_folder_only(tmp_path: Path) -> None:
    index = built("IVF4,Flat", rows())
    lists = faiss.OnDiskInvertedLists(4, index.code_size, str(tmp_path / "lists.ivfdata"))
    lists.merge_from(index.invlists, 0)
    index.replace_invlists(lists, False)
    path = written(tmp_path, index)
    assert next(FaissSource.open(path).batches(9)).rows.shape == (9, 16)
    turn = aligner(rows(), rows(), np.eye(16), side="query")
    with pytest.raises(InputError, match=r"docs\.faiss keeps its lists in a file of their own.*`--mode migrate`"):
        align_index(turn, path, tmp_path / "new.faiss")
    (tmp_path / "moved").mkdir()
    with pytest.raises(InputError, match=r"docs\.faiss "):
        FaissSource.open(path.rename(tmp_path / "moved" / "docs.faiss"))


def test_options(tmp_path: Path) -> None:
    path = written(tmp_path, built("Flat", rows()))
    with pytest.raises(UsageError, match="`select` must be 'stored' or be left out for faiss"):
        FaissSource.open(path, select="other")
    with pytest.raises(UsageError, match="`labels` must be left out for faiss"):
        FaissSource.open(path, labels="x")
    assert FaissSource.open(path, select="stored").dimension == 16
