"""What the tests of training share: a small corpus, and runs that are over in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from embedwatch_model.run import RunSettings, open_run
from embedwatch_model.schedules import Schedule
from embedwatch_model.storage import load_tensors
from embedwatch_model.training import Trainer
from embedwatch_model.training_settings import TrainingSettings

SENTENCES = ("the cat sat on the mat", "a dog ran over the hill", "der Hund lief über den Hügel", "猫坐在垫子上")


def corpus(folder: Path) -> Path:
    path = folder / "corpus.txt"
    path.write_text("".join(f"{number} {SENTENCES[number % 4]}.\n" for number in range(120)), encoding="utf-8")
    return path


def table(folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"Zahl {n} und {n * 7}\tnumber {n} and {n * 7}\n" for n in range(80)), encoding="utf-8")
    return path


def settings(path: Path, *, steps: int = 12, objective: str = "causal", **training: Any) -> RunSettings:
    defaults = {
        "rate": 0.01,
        "schedule": Schedule("cosine", steps=steps, warmup=2),
        "validate_every": 4,
        "save_every": 3,
    }
    return RunSettings(
        objective=objective,
        corpus=(str(path),),
        size=1,
        vocabulary=280,
        batch=4,
        model={"d_model": 16, "heads": 2, "length": 24, "dropout": 0.2, "positions": "rope"},
        training=TrainingSettings(**{**defaults, **training}),
    )


def trainer(folder: Path, chosen: RunSettings, *callbacks: Any) -> Trainer:
    return open_run(folder, chosen, callbacks=callbacks)


def same(left: Path, right: Path) -> bool:
    """Whether two safetensors files hold the same names and bits."""
    ours, theirs = load_tensors(left), load_tensors(right)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
