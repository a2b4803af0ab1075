"""Writes the same matrix in every format, with libraries of other people wherever there are any."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch

Matrix = Any
Maker = Callable[[Path, Matrix], Path]

WORDS = ("the", "of", "猫", "naïve", "2024", "o'clock", "a,b", 'say "no"', "…")


def words(count: int) -> list[str]:
    """Words as files have them: not only ASCII, with quotes, some of them numbers; none twice."""
    return [WORDS[i] if i < len(WORDS) else f"word{i}" for i in range(count)]


def text(value: Any) -> str:
    """A number in full: the shortest text of a float16 is that of another float32."""
    return repr(float(value))


def npy(folder: Path, x: Matrix) -> Path:
    path = folder / "vectors.npy"
    np.save(path, x)
    return path


def npy_column_major(folder: Path, x: Matrix) -> Path:
    path = folder / "columns.npy"
    np.save(path, np.asfortranarray(x))
    return path


def npy_big_endian(folder: Path, x: Matrix) -> Path:
    path = folder / "big.npy"
    np.save(path, x.astype(x.dtype.newbyteorder(">")))
    return path


def npz(folder: Path, x: Matrix) -> Path:
    path = folder / "vectors.npz"
    np.savez(path, vectors=x)
    return path


def npz_packed(folder: Path, x: Matrix) -> Path:
    path = folder / "packed.npz"
    np.savez_compressed(path, vectors=x, words=np.array(words(len(x))), counts=np.arange(len(x)))
    return path


def npz_column_major(folder: Path, x: Matrix) -> Path:
    path = folder / "columns.npz"
    np.savez_compressed(path, vectors=np.asfortranarray(x))
    return path


def safetensors_file(folder: Path, x: Matrix) -> Path:
    path = folder / "vectors.safetensors"
    safetensors.torch.save_file({"vectors": torch.from_numpy(x.copy()), "bias": torch.zeros(3)}, path)
    return path


def word2vec_binary(folder: Path, x: Matrix, *, newline: bytes = b"\n") -> Path:
    path = folder / "vectors.bin"
    rows = [
        word.replace(" ", "_").encode() + b" " + row.astype("<f4").tobytes() + newline
        for word, row in zip(words(len(x)), x, strict=True)
    ]
    path.write_bytes(f"{len(x)} {x.shape[1]}\n".encode() + b"".join(rows))
    return path


def word2vec_binary_without_newlines(folder: Path, x: Matrix) -> Path:
    return word2vec_binary(folder, x, newline=b"")


def text_rows(x: Matrix, names: Sequence[str], separator: str = " ", end: str = "\n") -> str:
    return "".join(separator.join([name, *map(text, row)]) + end for name, row in zip(names, x, strict=True))


def word2vec_text(folder: Path, x: Matrix) -> Path:
    path = folder / "vectors.vec"
    path.write_text(f"{len(x)} {x.shape[1]}\n" + text_rows(x, words(len(x)), end=" \n"), encoding="utf-8")
    return path


def glove(folder: Path, x: Matrix) -> Path:
    path = folder / "glove.txt"
    names = [". . ." if name == "…" else name for name in words(len(x))]
    path.write_text(text_rows(x, names), encoding="utf-8")
    return path


def csv_file(folder: Path, x: Matrix, *, delimiter: str = ",", name: str = "vectors.csv") -> Path:
    lines = io.StringIO()
    writer = csv.writer(lines, delimiter=delimiter)
    writer.writerow(["id", "word", "lang", *(f"x{i}" for i in range(x.shape[1]))])
    for index, (word, row) in enumerate(zip(words(len(x)), x, strict=True)):
        writer.writerow([index + 100, word, ("de", "fr", "")[index % 3], *map(text, row)])
    path = folder / name
    path.write_text(lines.getvalue(), encoding="utf-8", newline="")
    return path


def tsv(folder: Path, x: Matrix) -> Path:
    return csv_file(folder, x, delimiter="\t", name="vectors.tsv")


def csv_plain(folder: Path, x: Matrix) -> Path:
    path = folder / "plain.csv"
    path.write_text("".join(",".join(map(text, row)) + "\n" for row in x))
    return path


def text_matrix(folder: Path, x: Matrix) -> Path:
    path = folder / "matrix.txt"
    np.savetxt(path, x)
    return path


def columns(x: Matrix) -> dict[str, Any]:
    count = len(x)
    return {
        "id": pa.array(range(100, 100 + count), pa.int64()),
        "word": words(count),
        "lang": [("de", "fr", None)[i % 3] for i in range(count)],
    }


def parquet(folder: Path, x: Matrix) -> Path:
    path = folder / "vectors.parquet"
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    pq.write_table(pa.table({**columns(x), "vector": lists}), path, row_group_size=4)
    return path


def parquet_lists(folder: Path, x: Matrix) -> Path:
    path = folder / "lists.parquet"
    kind = pa.large_list(pa.from_numpy_dtype(x.dtype))
    pq.write_table(pa.table({**columns(x), "vector": pa.array(list(x), kind)}), path, row_group_size=5)
    return path


def parquet_wide(folder: Path, x: Matrix) -> Path:
    path = folder / "wide.parquet"
    pq.write_table(pa.table({**columns(x), **{f"x{i}": x[:, i] for i in range(x.shape[1])}}), path)
    return path


def parquet_folder(folder: Path, x: Matrix) -> Path:
    path = folder / "parts"
    path.mkdir()
    table = pa.table({**columns(x), "vector": pa.array(list(x), pa.list_(pa.from_numpy_dtype(x.dtype)))})
    for part, start in enumerate(range(0, max(len(x), 1), 5)):
        pq.write_table(table.slice(start, 5), path / f"part-{part:04}.parquet")
    return path


def faiss_flat(folder: Path, x: Matrix) -> Path:
    path = folder / "vectors.faiss"
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(np.ascontiguousarray(x, np.float32))
    faiss.write_index(index, str(path))
    return path


def faiss_ids(folder: Path, x: Matrix) -> Path:
    path = folder / "ids.faiss"
    index = faiss.IndexIDMap2(faiss.IndexFlatL2(x.shape[1]))
    index.add_with_ids(np.ascontiguousarray(x, np.float32), np.arange(len(x), dtype=np.int64) * 3 + 7)
    faiss.write_index(index, str(path))
    return path


MAKERS: dict[str, tuple[str, Maker, dict[str, str]]] = {
    "npy": ("npy", npy, {}),
    "npy column-major": ("npy", npy_column_major, {}),
    "npy big-endian": ("npy", npy_big_endian, {}),
    "npz": ("npz", npz, {}),
    "npz packed": ("npz", npz_packed, {}),
    "npz column-major": ("npz", npz_column_major, {}),
    "safetensors": ("safetensors", safetensors_file, {}),
    "word2vec binary": ("word2vec_binary", word2vec_binary, {}),
    "word2vec binary without newlines": ("word2vec_binary", word2vec_binary_without_newlines, {}),
    "word2vec text": ("word2vec_text", word2vec_text, {}),
    "glove": ("glove", glove, {}),
    "csv": ("csv", csv_file, {"labels": "lang"}),
    "csv plain": ("csv", csv_plain, {}),
    "tsv": ("csv", tsv, {}),
    "text matrix": ("csv", text_matrix, {}),
    "parquet": ("parquet", parquet, {"labels": "lang"}),
    "parquet lists": ("parquet", parquet_lists, {"select": "vector"}),
    "parquet wide": ("parquet", parquet_wide, {}),
    "parquet folder": ("parquet", parquet_folder, {}),
    "faiss": ("faiss", faiss_flat, {}),
    "faiss with ids": ("faiss", faiss_ids, {}),
}
"""What is made, to the source that reads it, the function that writes it, and options to read it with."""

TEXT = ("word2vec_text", "glove", "csv", "word2vec_binary", "faiss")
"""Sources that give float32 whatever was written."""


def matrix(rows: int = 23, dimension: int = 5, dtype: str = "float32", seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).standard_normal((rows, dimension)).astype(dtype)


def rewrite_member(path: Path, name: str, data: bytes, method: int = zipfile.ZIP_DEFLATED) -> None:
    """Write a zip of one member."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, data)
