"""Every directory that is not what it claims to be is refused in one line, with the value, the rule and the fix."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from embedwatch.core.errors import InputError
from embedwatch.loading import load_subject
from embedwatch.loading.find import label_of
from tests.loading import tiny

Get = Callable[[str], Path]
WEIGHTS = "model.safetensors"


def rewrite(file: Path, **keys: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def cut(file: Path, *, size: int) -> None:
    file.write_bytes(file.read_bytes()[:size])


def lie(path: Path) -> None:
    """Claim another shape than the bytes hold."""
    data = (path / WEIGHTS).read_bytes()
    (path / WEIGHTS).write_bytes(data.replace(b'"shape":[60,16]', b'"shape":[61,16]', 1))


CONFIG_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "not JSON": (
        lambda path: (path / "config.json").write_text('{"model_type": '),
        r"`copy-bert/config.json` must be JSON, got expecting value at line 1, column 16; restore the file",
    ),
    "not UTF-8": (lambda path: (path / "config.json").write_bytes(b'{"a": "\xe9"}'), "got byte 0xE9 at 7"),
    "too deep": (lambda path: (path / "config.json").write_text("[" * 200_000), "brackets nested too deep"),
    "a list": (lambda path: (path / "config.json").write_text("[1]"), "must be a JSON object, got list"),
    "no model type": (lambda path: (path / "config.json").write_text("{}"), "must name a `model_type`, got None"),
    "a model type that is a number": (
        lambda path: rewrite(path / "config.json", model_type=7),
        "must name a `model_type`, got 7",
    ),
    "an unknown model type": (
        lambda path: rewrite(path / "config.json", model_type="brt"),
        "got 'brt'; did you mean \"bert\"?",
    ),
    "a model type of the future": (
        lambda path: rewrite(path / "config.json", model_type="zzzzzz"),
        "got 'zzzzzz'; a newer transformers may know it",
    ),
    "a size that is a text": (
        lambda path: rewrite(path / "config.json", hidden_size="wide"),
        "must be a whole bert configuration, got Validation error for field 'hidden_size': TypeError: Field",
    ),
    "sizes that do not divide": (
        lambda path: rewrite(path / "config.json", hidden_size=17),
        "must describe a whole bert model",
    ),
    "a pipe": (lambda path: ((path / "config.json").unlink(), os.mkfifo(path / "config.json")), "got no config.json"),
    "a long number": (
        lambda path: (path / "config.json").write_text('{"a": ' + "9" * 5000 + "}"),
        "must be JSON, got Exceeds the limit",
    ),
    "a huge file": (
        lambda path: os.truncate(path / "config.json", 1 << 30),
        "must be a file of at most 64 MiB, got none; restore the file",
    ),
    "a billion layers": (
        lambda path: rewrite(path / "config.json", num_hidden_layers=10**9),
        "must have at most 10,000 layers, got 1,000,000,000",
    ),
    "a base of rotary positions that is a text": (
        lambda path: rewrite(path / "config.json", rope_theta="10000"),
        "must have a positive number as `rope_theta`, got '10000'; restore the file",
    ),
    "a base of rotary positions that turns nothing": (
        lambda path: rewrite(path / "config.json", rope_parameters={"full_attention": {"rope_theta": 0}}),
        "must have a positive number as `rope_theta`, got 0",
    ),
    "a factor of no size": (
        lambda path: rewrite(path / "config.json", rope_scaling={"type": "yarn", "factor": -4}),
        "must have a positive number as `factor`, got -4",
    ),
    "an unreadable config": (lambda path: (path / "config.json").chmod(0), "must be readable, got Permission denied"),
}
WEIGHT_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda path: (path / WEIGHTS).unlink(), "got no weights at all; download or save the whole model"),
    "empty": (lambda path: cut(path / WEIGHTS, size=0), "must be a whole safetensors file"),
    "cut in the header": (lambda path: cut(path / WEIGHTS, size=100), "must be a whole safetensors file"),
    "cut in the data": (lambda path: cut(path / WEIGHTS, size=9000), "must be a whole safetensors file"),
    "noise": (lambda path: (path / WEIGHTS).write_bytes(b"\xff" * 9000), "must be a whole safetensors file"),
    "a lying header": (lie, "must be a whole safetensors file"),
    "a pickle": (
        lambda path: (path / WEIGHTS).rename(path / "pytorch_model.bin"),
        "got only pytorch_model.bin, a pickle, which can run code when it is read; where you trust it, save",
    ),
    "ONNX": (
        lambda path: (path / WEIGHTS).rename(path / "model.onnx"),
        "got only model.onnx, weights in ONNX; where you trust it",
    ),
}


@pytest.mark.parametrize("damage", [*CONFIG_DAMAGE, *WEIGHT_DAMAGE])
def test_a_damaged_directory(damage: str, copy: Get) -> None:
    path = copy("bert")
    harm, message = {**CONFIG_DAMAGE, **WEIGHT_DAMAGE}[damage]
    if "unreadable" in damage and os.geteuid() == 0:
        return  # nothing is unreadable for root
    harm(path)
    with pytest.raises(InputError, match=message) as error:
        load_subject(path)
    assert "\n" not in str(error.value)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return tiny.save("llama-lm-untied", tmp_path / "sharded", max_shard_size="5KB")


INDEX = "model.safetensors.index.json"
SHARD_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a missing shard": (
        lambda path: sorted(path.glob("model-*"))[0].unlink(),
        r"names \d files, 1 of them missing, first model-00001-of-0000\d.safetensors; download the rest",
    ),
    "a shard of another model": (
        lambda path: save_file({"other": torch.ones(2)}, sorted(path.glob("model-*"))[0]),
        "which does not hold it; the files are of different models",
    ),
    "no map": (lambda path: (path / INDEX).write_text("{}"), "must map tensors to files under `weight_map`"),
    "a map that is a list": (
        lambda path: (path / INDEX).write_text('{"weight_map": ["a"]}'),
        "must map tensors to files under `weight_map`",
    ),
    "a file outside": (
        lambda path: (path / INDEX).write_text('{"weight_map": {"a": "../model.safetensors"}}'),
        "must name safetensors files beside it, got '../model.safetensors'",
    ),
    "a shard that is a pickle": (
        lambda path: (path / INDEX).write_text('{"weight_map": {"a": "pytorch_model.bin"}}'),
        "must name safetensors files beside it, got 'pytorch_model.bin'",
    ),
}


@pytest.mark.parametrize("damage", SHARD_DAMAGE)
def test_damaged_shards(damage: str, sharded: Path) -> None:
    harm, message = SHARD_DAMAGE[damage]
    harm(sharded)
    with pytest.raises(InputError, match=message) as error:
        load_subject(sharded)
    assert "\n" not in str(error.value)


def _touch(path: Path) -> Path:
    path.write_bytes(b"GGUF")
    return path


def _hub(path: Path) -> Path:
    (path / "snapshots" / "0123").mkdir(parents=True)
    _touch(path / "snapshots" / "0123" / "config.json")
    return path


NO_MODEL: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a missing name": (
        lambda _: Path("some-org/no-such-model"),
        "is neither a file nor a model in the local cache; download it first with `hf download some-org/no-such-model`",
    ),
    "a missing path": (lambda path: path / "a" / "b", "got nothing at that path; check the spelling"),
    "an empty directory": (
        lambda path: path,
        "must be a directory with config.json and model.safetensors, got no config",
    ),
    "a GGUF file": (
        lambda path: _touch(path / "model.Q4.gguf"),
        "got weights in GGUF; give the directory that `save_pretrained` wrote",
    ),
    "a folder of GGUF": (
        lambda path: _touch(path / "model.Q4.gguf").parent,
        "got only weights in GGUF; give the directory",
    ),
    "an ONNX file": (lambda path: _touch(path / "model.onnx"), "got weights in ONNX"),
    "a pickle": (lambda path: _touch(path / "model.pt"), "got a pickle, which can run code when it is read"),
    "weights alone": (lambda path: _touch(path / "model.safetensors"), "got a file; give the directory"),
    "a folder of the hub cache": (_hub, "got a folder of the hub cache; give the name of the model"),
    "an adapter": (lambda path: _touch(path / "adapter_config.json").parent, "got an adapter alone; merge it"),
    "a name that is too long": (lambda _: Path("x" * 5000), "neither a file nor a model"),
}


@pytest.mark.parametrize("case", NO_MODEL)
def test_what_is_no_model(case: str, tmp_path: Path) -> None:
    make, message = NO_MODEL[case]
    with pytest.raises(InputError, match=message) as error:
        load_subject(make(tmp_path))
    assert "\n" not in str(error.value)


def test_a_zero_byte_in_the_name() -> None:
    with pytest.raises(InputError, match="got nothing at that path"):
        load_subject("a\0b")


TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@pytest.mark.parametrize("kept", [(), ("tokenizer_config.json",)])
@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5", "llama"])
def test_no_tokenizer(kind: str, kept: tuple[str, ...], copy: Get) -> None:
    """The table needs none; texts do. transformers would make up one that knows its special tokens alone."""
    path = copy(kind)
    for name in TOKENIZER_FILES:
        if name not in kept:
            (path / name).unlink(missing_ok=True)
    subject = load_subject(path)
    assert len(subject.token_table()) == tiny.VOCABULARY
    with pytest.raises(InputError, match="must hold a tokenizer to encode texts or name tokens") as error:
        subject.encode(["w1"])
    assert "\n" not in str(error.value)


def test_a_damaged_tokenizer(copy: Get) -> None:
    path = copy("bert")
    (path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="must hold a tokenizer to encode texts or name tokens") as error:
        load_subject(path).encode(["w1"])
    assert "\n" not in str(error.value)


def test_quantised_weights_are_not_encoded_with(copy: Get) -> None:
    path = copy("bert")
    rewrite(path / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    subject = load_subject(path)
    assert len(subject.token_table()) == tiny.VOCABULARY  # which is plain
    with pytest.raises(InputError, match="must have plain weights to encode texts, got gptq ones"):
        subject.encode(["w1"])


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_integers_are_not_taken_for_weights(dtype: torch.dtype, copy: Get) -> None:
    """Quantised weights of the same shape, and no word of it in config.json: they would be cast, silently."""
    path = copy("bert")
    tensors = load_file(path / WEIGHTS)
    tensors["encoder.layer.0.output.dense.weight"] = tensors["encoder.layer.0.output.dense.weight"].to(dtype)
    save_file(tensors, path / WEIGHTS)
    with pytest.raises(InputError, match=r"got encoder\.layer\.0\.output\.dense\.weight in (I8|F8_E4M3); open"):
        load_subject(path).encode(["w1"])


def test_an_adapter_beside_the_model_is_a_note(copy: Get) -> None:
    path = copy("bert")
    (path / "adapter_config.json").write_text("{}")
    assert load_subject(path).notes == ("the adapter in the directory was not applied",)


def test_a_single_file_goes_before_shards(copy: Get) -> None:
    """As in transformers; and an index that is left over from another save does no harm."""
    path = copy("bert")
    (path / INDEX).write_text('{"weight_map": {"a": "missing.safetensors"}}')
    assert len(load_subject(path).weights) == len(load_file(path / WEIGHTS))


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/data/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("/runs/exp7/checkpoint", "exp7/checkpoint"),
        ("/cache/models--org--name/snapshots/0123abcd", "org/name"),
        ("/cache/models--gpt2/snapshots/0123abcd", "gpt2"),
    ],
)
def test_labels_are_short(path: str, label: str) -> None:
    assert label_of(Path(path)) == label
