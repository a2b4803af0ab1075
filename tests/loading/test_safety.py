"""A directory is data: nothing in it is imported, run or unpickled, and no hub is asked."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from embedwatch.core.errors import InputError
from embedwatch.loading import load_subject
from embedwatch.sources.subject import TokenTable
from tests.loading import tiny

Get = Callable[[str], Path]


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Path]:
    """A file that code from a directory would create."""
    yield tmp_path / "executed"
    assert not (tmp_path / "executed").exists()


def set_trap(folder: Path, trap: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(f"open({str(trap)!r}, 'w').write('run')\nclass Model: ...\nclass Pooling: ...\n")


def rewrite(file: Path, **keys: object) -> None:
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**content, **keys}))


AUTO_MAP = {
    "AutoConfig": "configuration_x.Model",
    "AutoModel": "modeling_x.Model",
    "AutoTokenizer": ["tokenization_x.Model", "tokenization_x.Model"],
}


def test_code_for_an_unknown_architecture(copy: Get, trap: Path) -> None:
    path = copy("bert")
    set_trap(path, trap, "configuration_x.py", "modeling_x.py")
    rewrite(path / "config.json", model_type="x", auto_map=AUTO_MAP)
    with pytest.raises(
        InputError, match="needs code from the directory for model type 'x', which is never run"
    ) as error:
        load_subject(path)
    assert "\n" not in str(error.value)


def test_code_for_a_known_architecture(copy: Get, trap: Path) -> None:
    """The built-in class reads it, and a note says so."""
    path = copy("bert")
    expected = load_subject(path).encode(["w1 w2"])
    set_trap(path, trap, "configuration_x.py", "modeling_x.py", "tokenization_x.py")
    rewrite(path / "config.json", auto_map=AUTO_MAP)
    rewrite(path / "tokenizer_config.json", auto_map=AUTO_MAP)
    subject = load_subject(path)
    assert torch.equal(subject.encode(["w1 w2"]), expected)
    assert subject.notes == ("config.json names code of its own, which was not run; BertModel reads it",)


def test_code_that_the_built_in_class_cannot_stand_for(copy: Get, trap: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = copy("bert")
    set_trap(path, trap, "modeling_x.py")
    rewrite(path / "config.json", auto_map=AUTO_MAP)
    tensors = load_file(path / "model.safetensors")
    save_file({**tensors, "encoder.layer.0.gate.weight": torch.ones(2)}, path / "model.safetensors")
    with pytest.raises(InputError, match="needs its own code, which is never run: BertModel has no place for encoder"):
        load_subject(path).encode(["w1"])


def test_code_for_a_tokenizer(copy: Get, trap: Path) -> None:
    path = copy("bert")
    set_trap(path, trap, "tokenization_x.py")
    (path / "tokenizer.json").unlink()
    rewrite(path / "tokenizer_config.json", auto_map=AUTO_MAP, tokenizer_class="Model")
    with pytest.raises(InputError, match="tokenizer") as error:
        load_subject(path).encode(["w1"])
    assert "\n" not in str(error.value)


def test_code_for_a_module(copy: Get, trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copy("bert")
    set_trap(path, trap, "my_pooling.py")
    monkeypatch.syspath_prepend(path)
    (path / "modules.json").write_text(
        json.dumps(
            [
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "", "type": "my_pooling.Pooling"},
            ]
        )
    )
    with pytest.raises(InputError, match=r"'my_pooling\.Pooling', which is never run; choose a pooling yourself"):
        load_subject(path).encode(["w1"])
    assert load_subject(path).encode(["w1"], pooling="cls").shape == (1, 16)


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("beside", [True, False])
def test_a_pickle_is_never_read(beside: bool, copy: Get, trap: Path) -> None:
    path = copy("bert")
    for name in ("pytorch_model.bin", "training_args.bin", "rng_state.pth", "scheduler.pt", ".metadata"):
        (path / name).write_bytes(pickle.dumps(Bomb(trap)))
    if beside:
        assert load_subject(path).encode(["w1"]).shape == (1, 16)
        return
    (path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"got only pytorch_model\.bin, a pickle, which can run code"):
        load_subject(path)


def test_keys_that_name_code_or_files_are_not_followed(copy: Get, trap: Path) -> None:
    """config.json may name kernels of a hub, another weights file, or what a forward pass returns."""
    path = copy("bert")
    expected = load_subject(path).encode(["w1 w2"])
    (path / "evil.bin").write_bytes(pickle.dumps(Bomb(trap)))
    rewrite(
        path / "config.json",
        transformers_weights="evil.bin",
        attn_implementation="some-org/some-kernel",
        _attn_implementation="some-org/some-kernel",
        fusion_config={"a": True},
        return_dict=False,
        output_attentions=True,
        output_hidden_states=True,
    )
    assert torch.equal(load_subject(path).encode(["w1 w2"]), expected)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every connection fail loudly, and the libraries believe that they are online."""

    def refuse(*address: object) -> None:
        pytest.fail(f"the network was asked: {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


@pytest.mark.usefixtures("no_network")
def test_no_hub_is_asked(model: Get, copy: Get) -> None:
    assert load_subject(model("mistral")).encode(["w1"]).shape == (1, 16)
    with pytest.raises(InputError, match="hf download"):
        load_subject("some-org/no-such-model")
    path = copy("gpt2")
    (path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="tokenizer"):
        load_subject(path).encode(["w1"])


@pytest.mark.usefixtures("no_network")
def test_a_second_model_is_not_fetched(tmp_path: Path) -> None:
    """Some configurations ask a hub about another model while they are read."""
    raw = {"model_type": "dpt", "backbone": "some-org/some-model", "use_pretrained_backbone": True, "is_hybrid": True}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    shutil.copy(tiny.save("bert", tmp_path / "bert") / "model.safetensors", tmp_path)
    with pytest.raises(InputError) as error:
        load_subject(tmp_path).encode(["w1"])
    assert "\n" not in str(error.value)


@pytest.fixture
def cache(tmp_path: Path, model: Get, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds `some-org/tiny`, as `hf download` leaves it: a snapshot of links to blobs."""
    repository = tmp_path / "hub" / "models--some-org--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123456789abcdef0123456789abcdef01234567")
    snapshot = repository / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for file in model("bert").iterdir():
        blob = repository / "blobs" / f"blob-of-{file.stem}{file.suffix}"
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(blob)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return snapshot


@pytest.mark.usefixtures("no_network")
def test_a_name_in_the_cache(cache: Path, model: Get) -> None:
    subject = load_subject("some-org/tiny")
    assert subject.label == "some-org/tiny"
    assert load_subject(cache).label == "some-org/tiny"
    assert torch.equal(subject.encode(["w1"]), load_subject(model("bert")).encode(["w1"]))
    assert subject.fingerprint() == load_subject(model("bert")).fingerprint()
    assert TokenTable.accepts(Path("some-org/tiny"))
    assert not TokenTable.accepts(Path("some-org/other"))


@pytest.mark.usefixtures("no_network")
def test_a_half_download_is_refused(cache: Path) -> None:
    (cache / "model.safetensors").unlink()
    with pytest.raises(InputError, match="got no weights at all; download or save the whole model"):
        load_subject("some-org/tiny")
