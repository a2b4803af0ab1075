"""Checkpoints: whole or not there, also after kill -9; tied weights stored once; damage is told in one line."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from embedwatch_model.checkpoint import checkpoints, latest, read_checkpoint, step_of
from embedwatch_model.config import ModelConfig
from embedwatch_model.errors import ModelError
from embedwatch_model.optimizer import adamw
from embedwatch_model.storage import load_tensors, load_weights, save_weights
from embedwatch_model.transformer import Transformer
from tests.model import training as tiny

ROOT = Path(__file__).parents[2]
SAVE_FOR_EVER = """
import sys
from pathlib import Path
from tests.model import training as tiny
folder = Path(sys.argv[1])
chosen = tiny.settings(folder / "corpus.txt", steps=10**6, save_every=1, validate_every=7)
trainer = tiny.trainer(folder / "run", chosen)
print(trainer.latest_step, flush=True)
trainer.fit()
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_a_whole_checkpoint_and_a_whole_model(tmp_path: Path) -> None:
    tiny.corpus(tmp_path)
    run = tmp_path / "run"
    moments = random.Random(0)
    reached = 0
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        begun = process.stdout.readline()  # resumed where the last one was killed
        assert int(begun) >= reached, process.wait()
        deadline = time.monotonic() + 60
        while step_of(latest(run) or Path("step-0")) < reached + 3 and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(moments.random() * 0.05)
        process.kill()
        process.wait()
        process.stdout.close()
        newest = latest(run)
        assert newest is not None
        reached = step_of(newest)
        model = Transformer(ModelConfig.from_json(json.loads((newest / "config.json").read_text())))
        training = read_checkpoint(newest, model, adamw(model, rate=1.0))
        assert training["progress"]["step"] == reached
        load_weights(model, run / "model.safetensors")  # what is published is whole too, and of one of the last steps
        history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()[:-1]]
        assert history[-1]["step"] <= reached + 1  # at most the step in progress is lost


def test_a_checkpoint_is_a_model_directory_and_so_is_the_run(tmp_path: Path) -> None:
    tiny.trainer(tmp_path / "run", tiny.settings(tiny.corpus(tmp_path))).fit()
    newest = latest(tmp_path / "run")
    assert newest is not None
    for folder in (newest, tmp_path / "run"):
        config = json.loads((folder / "config.json").read_text())
        assert config["model_type"] == "embedwatch"
        model = Transformer(ModelConfig.from_json(config))
        load_weights(model, folder / "model.safetensors")
        assert (folder / "tokenizer.json").exists()
    assert tiny.same(newest / "model.safetensors", tmp_path / "run" / "model.safetensors")
    assert not [path.name for path in (tmp_path / "run").rglob(".*")]  # nothing half done is left


def test_the_last_few_stay(tmp_path: Path) -> None:
    tiny.trainer(tmp_path / "run", tiny.settings(tiny.corpus(tmp_path), save_every=1, validate_every=100, keep=2)).fit()
    assert [step_of(path) for path in checkpoints(tmp_path / "run")] == [11, 12]
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [
        "step-00000011",
        "step-00000012",
    ]


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder_decoder"])
def test_tied_weights_are_stored_once_and_are_one_object_after_loading(kind: str, tmp_path: Path) -> None:
    config = ModelConfig(vocabulary=20, kind=kind, d_model=8, layers=1, heads=2, length=8)
    torch.manual_seed(0)
    first, second = Transformer(config), Transformer(config)
    save_weights(first, tmp_path / "model.safetensors")
    stored = load_tensors(tmp_path / "model.safetensors")
    assert [name for name, tensor in stored.items() if tensor.shape == (20, 8)] == ["embedding.tokens.weight"]
    load_weights(second, tmp_path / "model.safetensors")
    assert second.projection.weight is second.embedding.tokens.weight
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    settings = {"vocabulary": 20, "d_model": 8, "layers": 1, "heads": 2, "length": 8}
    model = Transformer(ModelConfig(**settings))
    save_weights(model, tmp_path / "w.safetensors")
    for other, words in (
        ({"layers": 2}, "got no layers"),
        ({"layers": 1, "vocabulary": 21}, "of shape"),
        ({"tied": False}, "got no head"),
    ):
        with pytest.raises(ModelError, match=words):
            load_weights(Transformer(ModelConfig(**{**settings, **other})), tmp_path / "w.safetensors")


@pytest.mark.parametrize("name", ["training.json", "optimizer.safetensors", "model.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"{"])
def test_damage_is_told_in_one_line(name: str, content: bytes | None, tmp_path: Path) -> None:
    chosen = tiny.settings(tiny.corpus(tmp_path), steps=1)
    tiny.trainer(tmp_path / "run", chosen).fit()
    newest = latest(tmp_path / "run")
    assert newest is not None
    if content is None:
        (newest / name).unlink()
    else:
        (newest / name).write_bytes(content)
    with pytest.raises(ModelError, match=name) as caught:
        tiny.trainer(tmp_path / "run", chosen).fit()
    assert "\n" not in str(caught.value)
