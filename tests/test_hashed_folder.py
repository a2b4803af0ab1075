"""A folder whose manifest knows the hash of each file says why it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedwatch import hashed_folder
from embedwatch.core.errors import InputError
from embedwatch.hashed_folder import HashedFolder

FOLDER = HashedFolder(manifest="a.json", noun="an a", command="make a", usage="make a -o A", again="make it again")


def test_a_file_that_is_too_large_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDER.write(tmp_path / "a", {}, {"rows": b"12345"}, replace=False)
    assert FOLDER.read(tmp_path / "a", needed=("rows",), known=())[1] == {"rows": b"12345"}
    monkeypatch.setattr(hashed_folder, "MOST_BYTES", 4)
    with pytest.raises(InputError, match="rows must have at most 4 bytes, got 5; make it again"):
        FOLDER.read(tmp_path / "a", needed=("rows",), known=())


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed_folder, "MOST_BYTES", 4)
    with pytest.raises(InputError, match="rows must have at most 4 bytes, got 5; give fewer rows"):
        FOLDER.write(tmp_path / "a", {}, {"rows": b"12345"}, replace=False)
    monkeypatch.setattr(hashed_folder, "MOST_MANIFEST", 40)
    with pytest.raises(InputError, match=r"a\.json must have at most 40 bytes"):
        FOLDER.write(tmp_path / "a", {"name": "\udc80" * 9}, {"rows": b"1234"}, replace=False)
    assert list(tmp_path.iterdir()) == []
