"""Tiny models, made once for each run. Tests that change one copy it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.loading import tiny
from tests.quiet import quiet_transformers


@pytest.fixture(scope="session", autouse=True)
def _silent() -> Iterator[None]:
    """Keep the reports of transformers out of the test run: what we silence ourselves has its own test."""
    with quiet_transformers():
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the directory of a tiny model by its name. Read only."""
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            made[kind] = tiny.save(kind, tmp_path_factory.mktemp("models") / f"tiny-{kind}")
        return made[kind]

    return get


@pytest.fixture
def copy(model: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of a tiny model's directory, to be changed."""

    def get(kind: str) -> Path:
        return Path(shutil.copytree(model(kind), tmp_path / f"copy-{kind}"))

    return get
