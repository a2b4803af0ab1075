"""Opening whatever lies at a path: the kind is found, or the message says how to name it."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.registry import registered
from embedwatch.core.source import Source
from embedwatch.sources import open_source
from tests.sources.makers import MAKERS, matrix, parquet_folder, word2vec_binary, word2vec_text
from tests.sources.refusals import message_of

NOBODY = 65534


@pytest.mark.parametrize("made", [made for made in MAKERS if made != "text matrix"])
def test_the_kind_is_found(made: str, tmp_path: Path) -> None:
    name, make, options = MAKERS[made]
    path = make(tmp_path, matrix())
    for source in (open_source(path, **options), open_source(str(path), name, **options)):
        assert source.name == name
        assert sum(len(batch) for batch in source.batches(10)) == 23


@pytest.mark.parametrize(
    "made", [made for made, (name, _, _) in MAKERS.items() if name in ("npy", "npz", "safetensors", "parquet")]
)
def test_the_kind_is_found_without_an_ending(made: str, tmp_path: Path) -> None:
    name, make, options = MAKERS[made]
    path = make(tmp_path, matrix())
    assert open_source(path.rename(tmp_path / "no_ending"), **options).name == name


def test_text_in_a_file_called_bin(tmp_path: Path) -> None:
    path = word2vec_text(tmp_path, matrix()).rename(tmp_path / "vectors.bin")
    assert open_source(path).name == "word2vec_text"


def test_small_binary_files_are_not_taken_for_text(tmp_path: Path) -> None:
    for dimension in (1, 2, 3):
        path = word2vec_binary(tmp_path, np.full((3, dimension), 0.3984, np.float32))
        assert open_source(path).name == "word2vec_binary"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("0.1 0.2 0.3\n0.4 0.5 0.6\n", ("csv", "glove")),
        ("1 2 3\n4 5 6\n", ("csv", "glove")),
        ("2 1\n7 0.5\n8 0.25\n", ("csv", "word2vec_text")),
    ],
)
def test_ambiguous_files_are_refused(text: str, kinds: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_text(text)
    message = message_of(lambda: open_source(path), path, UsageError)
    assert f"could be {kinds[0]} or {kinds[1]}" in message
    shapes = set()
    for kind in kinds:
        assert f"`--as {kind}`" in message
        source = open_source(path, kind)
        shapes.add((sum(len(batch) for batch in source.batches(9)), source.dimension))
    assert len(shapes) == 2, "the choice matters"


def test_a_remark_makes_it_a_matrix(tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    np.savetxt(path, matrix(), header="made today")
    assert open_source(path).name == "csv"


def test_an_ending_and_content_that_disagree(tmp_path: Path) -> None:
    path = MAKERS["parquet"][1](tmp_path, matrix()).rename(tmp_path / "vectors.npy")
    assert "could be npy or parquet" in message_of(lambda: open_source(path), path, UsageError)
    assert open_source(path, "parquet").rows == 23


def test_a_wrong_kind(tmp_path: Path) -> None:
    path = MAKERS["npy"][1](tmp_path, matrix())
    with pytest.raises(UsageError, match='did you mean "parquet"'):
        open_source(path, "parket")
    message_of(lambda: open_source(path, "npz"), path)


def test_missing(tmp_path: Path) -> None:
    for name in ("no_such_file", "no_such.npy", "no_such.txt", "a/b/c.csv"):
        for kind in (None, "npy", "parquet", "glove"):
            path = tmp_path / name
            assert "does not exist" in message_of(lambda path=path, kind=kind: open_source(path, kind), path)  # type: ignore[misc]


@pytest.mark.parametrize("kind", [None, "npy", "parquet"])
def test_an_empty_name_is_not_the_folder_that_one_is_in(kind: str | None) -> None:
    with pytest.raises(UsageError, match="must be a file, a folder or a model, got an empty name; name one"):
        open_source("", kind)


@pytest.mark.parametrize(
    "name", ["x.npy", "x.npz", "x.safetensors", "x.csv", "x.txt", "x.bin", "x.vec", "x.parquet", "x"]
)
def test_empty(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.touch()
    assert "is empty (0 bytes)" in message_of(lambda: open_source(path), path)


def test_folders(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    message = message_of(lambda: open_source(folder), folder, UsageError)
    assert "is a folder that no source takes" in message
    folder.joinpath("notes.txt").write_text("nothing\n")
    message_of(lambda: open_source(folder), folder, UsageError)
    for kind in ("npy", "npz", "safetensors", "csv", "glove", "word2vec_text", "word2vec_binary"):
        assert "is a folder" in message_of(lambda kind=kind: open_source(folder, kind), folder)  # type: ignore[misc]
    assert open_source(parquet_folder(tmp_path, matrix())).name == "parquet"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
@pytest.mark.parametrize("name", ["pipe", "pipe.npy", "pipe.csv", "pipe.parquet", "pipe.bin", "pipe.txt"])
def test_a_pipe_does_not_wait_for_ever(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    for kind in (None, *(name for name, _, _ in MAKERS.values())):
        assert "pipe" in message_of(lambda kind=kind: open_source(path, kind), path)  # type: ignore[misc]


def test_unreadable(tmp_path: Path) -> None:
    path = MAKERS["npy"][1](tmp_path, matrix())
    path.chmod(0)
    user = os.geteuid() if hasattr(os, "geteuid") else None
    if user == 0:  # root may read everything: become nobody for a moment
        os.seteuid(NOBODY)
    try:
        message = message_of(lambda: open_source(path), path)
        assert "may not be read" in message
    finally:
        if user == 0:
            os.seteuid(0)
        path.chmod(0o600)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (pickle.dumps([1.0]), "a pickle, which is never loaded"),
        (gzip.compress(b"the 0.1 0.2\n", mtime=0), "gunzip"),
        (b"BZh91AY&SY" + bytes(50), "bunzip2"),
        (b"\x89HDF\r\n\x1a\n" + bytes(50), "HDF5"),
        (b"ARROW1\0\0" + bytes(50), "Arrow IPC"),
        ("0.1 0.2\n".encode("utf-16"), "iconv"),
        (b"Dear all,\nthis is a letter.\n", "no kind that is known"),
        (bytes(range(256)), "no kind that is known"),
    ],
)
def test_what_is_no_vectors_is_named(data: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.dat"
    path.write_bytes(data)
    message = message_of(lambda: open_source(path), path, UsageError)
    assert word in message
    assert "--as KIND" in message
    assert "word2vec_binary" in message, "says what is known"


def test_bin_files_that_are_not_word2vec(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save({"x": torch.zeros(3)}, path)
    assert "PyTorch pickle" in message_of(lambda: open_source(path), path, UsageError)
    path.write_bytes(np.arange(1000, dtype=np.float32).tobytes())
    message = message_of(lambda: open_source(path), path)
    assert "must with a line of counts such as `3000000 300`" in message


def test_accepting_never_raises(tmp_path: Path) -> None:
    odd = [tmp_path, tmp_path / "none", Path("\0"), Path("x" * 5000), Path("sentence-transformers/all-MiniLM-L6-v2")]
    for number, data in enumerate((b"", b"\0", b"PK\x03\x04", b"9" * 100_000, b"\n" * 100_000, b'"' * 1000, b"1 1\n")):
        odd.append(tmp_path / f"{number}")
        odd[-1].write_bytes(data)
    for path in odd:
        for source in registered(Source).values():
            assert source.accepts(path) in (True, False)


def test_a_path_that_no_system_takes() -> None:
    with pytest.raises(InputError):
        open_source("x" * 5000)
    with pytest.raises(InputError):
        open_source("a\0b")


def test_importing_loads_nothing_heavy() -> None:
    code = "import sys, embedwatch.sources; print([m for m in ('torch', 'pyarrow', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
