"""Every file source keeps its contract, with good files and with damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedwatch.core.registry import registered
from embedwatch.core.source import Source
from embedwatch.sources._file_source import FileSource
from embedwatch.testing.source_contract import SOURCE_CONTRACT, hostile_variants, refuses_damage, source_contract
from tests.sources.makers import MAKERS, matrix

FILE_SOURCES = {name: source for name, source in registered(Source).items() if issubclass(source, FileSource)}


def test_every_file_source_is_made() -> None:
    assert {name for name, _, _ in MAKERS.values()} == set(FILE_SOURCES)


@pytest.mark.parametrize("clause", SOURCE_CONTRACT)
@pytest.mark.parametrize("made", MAKERS)
def test_clause(made: str, clause: str, tmp_path: Path) -> None:
    name, make, options = MAKERS[made]
    SOURCE_CONTRACT[clause](FILE_SOURCES[name], make(tmp_path, matrix()), **options)


@pytest.mark.parametrize("made", MAKERS)
def test_one_row_of_one_dimension(made: str, tmp_path: Path) -> None:
    name, make, options = MAKERS[made]
    source_contract(FILE_SOURCES[name], make(tmp_path, matrix(1, 1)), **options)


@pytest.mark.parametrize("made", MAKERS)
def test_damage_is_refused(made: str, tmp_path: Path) -> None:
    name, make, options = MAKERS[made]
    refuses_damage(FILE_SOURCES[name], make(tmp_path, matrix()), tmp_path / "damaged", **options)


def test_damage_is_the_same_every_time(tmp_path: Path) -> None:
    path = MAKERS["npy"][1](tmp_path, matrix())
    first, second = (
        {variant.parent.name: variant.read_bytes() for variant in hostile_variants(path, tmp_path / folder)}
        for folder in ("a", "b")
    )
    assert first == second
    assert len(first) > 50
    assert path.read_bytes() not in list(first.values())[:10]


@pytest.mark.parametrize("name", FILE_SOURCES)
def test_describes_itself(name: str) -> None:
    source = FILE_SOURCES[name]
    assert source.title
    assert source.suffixes
    assert all(suffix.startswith(".") for suffix in source.suffixes)
