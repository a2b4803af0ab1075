"""Whatever a file of a model says, it is read or refused in one line: never a traceback, never a hang."""

from __future__ import annotations

import copy as copying
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.loading import load_subject
from embedwatch.sources.subject import TokenTable
from embedwatch.testing.source_contract import hostile_variants
from tests.loading import tiny

Get = Callable[[str], Path]
ODD: list[Any] = [
    None, [], {}, -1, 0, 10**9, 10**30, 1.5, True, "x", "", [1], [None], {"a": 1}, "\x1b[31m\n", "\ud800",
]  # fmt: skip
LONGEST_MESSAGE = 600


def use(path: Path) -> None:
    """Use a model in every way."""
    subject = load_subject(path)
    assert subject.label
    assert len(subject.fingerprint()) == 16
    source = TokenTable(subject)
    assert len(source.names([0, 59])) == 2
    assert all(note.isprintable() for note in source.notes)
    assert subject.encode(["w1 w2", "w3"]).shape[0] == 2


def survives(path: Path) -> bool:
    """Return whether a model could be used; where not, it was refused in one line."""
    try:
        use(path)
    except EmbedwatchError as error:
        message = str(error)
    else:
        return True
    assert message.isprintable()
    assert len(message) <= LONGEST_MESSAGE
    return False


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value in a JSON file."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield (*before, key)
        yield from places(child, (*before, key))


def twisted(content: Any, count: int, seed: int = 0) -> Iterator[Any]:
    """Yield a JSON content with each of its values replaced by a few odd ones."""
    rng = random.Random(seed)
    for place in places(content):
        for odd in rng.sample(ODD, count):
            changed = copying.deepcopy(content)
            parent = changed
            for key in place[:-1]:
                parent = parent[key]
            parent[place[-1]] = odd
            yield changed


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with all the files that sentence-transformers writes; made by hand, so that it need not be installed."""
    path = tiny.save("bert", tmp_path_factory.mktemp("hostile") / "saved")
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    entries = [
        {"idx": number, "name": str(number), "path": folder, "type": f"sentence_transformers.models.{name}"}
        for number, (folder, name) in enumerate(modules.items())
    ]
    (path / "1_Pooling").mkdir()
    written: dict[str, Any] = {
        "modules.json": entries,
        "1_Pooling/config.json": {"word_embedding_dimension": 16, "pooling_mode": "mean", "include_prompt": False},
        "sentence_bert_config.json": {"max_seq_length": 20, "do_lower_case": True, "modality_config": {"text": {}}},
        "config_sentence_transformers.json": {"prompts": {"query": "w1 "}, "default_prompt_name": "query"},
    }
    for name, content in written.items():
        (path / name).write_text(json.dumps(content))
    return path


FILES = (
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer_config.json",
)


@pytest.mark.parametrize("name", FILES)
def test_odd_values(name: str, saved: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(saved, tmp_path / "model"))
    assert survives(path)
    for content in twisted(json.loads((saved / name).read_text()), 2):
        (path / name).write_text(json.dumps(content))
        survives(path)


@pytest.mark.parametrize("kind", ["clip", "llama", "t5"])
def test_odd_configurations(kind: str, copy: Get) -> None:
    path = copy(kind)
    for content in twisted(json.loads((path / "config.json").read_text()), 1):
        (path / "config.json").write_text(json.dumps(content))
        survives(path)


def test_keys_that_are_names_of_methods(copy: Get) -> None:
    """Every key of config.json becomes an attribute of the configuration, unless it is kept from it."""
    path = copy("bert")
    plain = json.loads((path / "config.json").read_text())
    methods = [name for name in dir(transformers.BertConfig) if callable(getattr(transformers.BertConfig, name))]
    assert len(methods) > 20
    (path / "config.json").write_text(json.dumps({**dict.fromkeys(methods, 5), **plain, "sub_configs": 5}))
    assert survives(path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "modules.json"])
def test_damaged_bytes(name: str, saved: Path, tmp_path: Path) -> None:
    for variant in hostile_variants(saved / name, tmp_path / "damaged"):
        path = Path(shutil.copytree(saved, tmp_path / "model", dirs_exist_ok=True))
        shutil.copyfile(variant, path / name)
        survives(path)


def test_no_directory_is_written_to(saved: Path) -> None:
    before = {file: file.read_bytes() for file in saved.rglob("*") if file.is_file()}
    assert survives(saved)
    assert {file: file.read_bytes() for file in saved.rglob("*") if file.is_file()} == before


def test_a_huge_index_is_refused(copy: Get) -> None:
    path = copy("bert")
    (path / "model.safetensors").unlink()
    with (path / "model.safetensors.index.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InputError, match="must be a file of at most 64 MiB"):
        load_subject(path)
