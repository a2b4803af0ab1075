"""Checkpoints: safetensors and JSON, never pickle; written whole or not at all.

```
RUN/config.json, model.safetensors, tokenizer.json     the newest weights: RUN itself is a model directory
RUN/checkpoints/step-00000200/                          the same three, and what it takes to go on
    training.json                                       step, data position, schedule, settings
    optimizer.safetensors                               moments by parameter name, states of random generators
```

A checkpoint is written under a name that begins with a dot, synced to the disk and renamed. A rename is atomic: after a
kill -9 or a power cut at any moment the directory has its final name and is whole, or it does not count. What is lost
is the work since the last checkpoint; with one at every step, the step in progress.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from .errors import ModelError
from .storage import load_tensors, load_weights, read_json, save_weights, sync, write_json
from .text import save_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["checkpoint_path", "checkpoints", "latest", "publish", "read_checkpoint", "step_of", "write_checkpoint"]

FOLDER = "checkpoints"
CONFIG, WEIGHTS, TRAINING, OPTIMIZER = "config.json", "model.safetensors", "training.json", "optimizer.safetensors"
PUBLIC = (CONFIG, "tokenizer.json", "tokenizer_config.json", WEIGHTS)
"""What makes a model directory, the part that changes last."""
MODEL_TYPE = "embedwatch"
NAME = re.compile(r"step-(\d{8,})")
GROUP_KEPT = ("name", "names", "lr", "betas", "eps", "weight_decay")


def write_checkpoint(
    run: Path,
    *,
    step: int,
    model: nn.Module,
    tokenizer: Tokenizer | None,
    optimizer: torch.optim.Optimizer,
    training: dict[str, Any],
    keep: int = 3,
    spare: int | None = None,
) -> Path:
    """Write all that it takes to go on from here, atomically, and drop the oldest checkpoints.

    Args:
        run: directory of the run.
        step: number of steps that are done.
        model: has a `config` with `to_json`.
        tokenizer: of the corpus, where there is one.
        optimizer: made by `adamw`: its groups name their parameters.
        training: what else must come back, as JSON.
        keep: number of checkpoints that stay.
        spare: step of one that stays besides, such as the best.
    """
    parent = run / FOLDER
    parent.mkdir(parents=True, exist_ok=True)
    final = checkpoint_path(run, step)
    part = parent / f".{final.name}.{os.getpid()}"
    _remove_leftovers(parent)
    part.mkdir()
    write_json(part / CONFIG, {"model_type": MODEL_TYPE, **_config(model)})
    save_weights(model, part / WEIGHTS)
    if tokenizer is not None:
        save_tokenizer(tokenizer, part)
    save_file({**_moments(optimizer), **_generators()}, part / OPTIMIZER)
    groups = [{key: group[key] for key in GROUP_KEPT} for group in optimizer.param_groups]
    write_json(part / TRAINING, {"step": step, **training, "groups": groups})
    for file in part.iterdir():
        sync(file)
    sync(part)
    if final.exists():
        _remove(final)
    part.rename(final)
    sync(parent)
    for old in checkpoints(run)[:-keep]:
        if step_of(old) != spare:
            _remove(old)
    return final


def read_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Bring a model, an optimizer and torch's random generators to where they were; return `training` and `step`.

    Raises:
        ModelError: if a file is missing, damaged or of another model.
    """
    training: dict[str, Any] = read_json(path / TRAINING)
    load_weights(model, path / WEIGHTS)
    stored = load_tensors(path / OPTIMIZER)
    groups = [{key: group[key] for key in GROUP_KEPT} for group in optimizer.param_groups]
    saved = training.pop("groups", [])
    if [group["names"] for group in groups] != [group["names"] for group in saved]:
        raise ModelError(f"`{path}` must have the optimizer groups of this model, got others; start a new run")
    for group, old in zip(optimizer.param_groups, saved, strict=True):
        group.update({**old, "betas": tuple(old["betas"])})
        for name, parameter in zip(group["names"], group["params"], strict=True):
            prefix = f"{name}/"
            found = {key[len(prefix) :]: value for key, value in stored.items() if key.startswith(prefix)}
            if found:
                optimizer.state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device) for key, value in found.items()
                }
    _set_generators(stored)
    return training


def checkpoint_path(run: Path, step: int) -> Path:
    """Return where the checkpoint of a step lies."""
    return run / FOLDER / f"step-{step:08d}"


def checkpoints(run: Path) -> list[Path]:
    """Return the whole checkpoints of a run, the oldest first."""
    folder = run / FOLDER
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(found, key=step_of)


def latest(run: Path) -> Path | None:
    """Return the newest checkpoint of a run, or None."""
    return next(reversed(checkpoints(run)), None)


def publish(checkpoint: Path, run: Path) -> None:
    """Make the run directory itself a model directory with the weights of a checkpoint.

    Each file changes atomically.
    """
    for name in PUBLIC:
        if (checkpoint / name).exists():
            part = run / f".{name}.{os.getpid()}"
            for leftover in run.glob(f".{name}.*"):
                leftover.unlink()
            try:
                os.link(checkpoint / name, part)
            except OSError:  # a file system without hard links
                shutil.copyfile(checkpoint / name, part)
                sync(part)
            part.replace(run / name)
            part.unlink(missing_ok=True)  # renaming one link of a file to another one does nothing
    sync(run)


def _config(model: nn.Module) -> dict[str, Any]:
    config: Any = model.config
    settings: dict[str, Any] = config.to_json()
    return settings


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}/{key}": value.detach().contiguous()
        for group in optimizer.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
        for key, value in optimizer.state[parameter].items()
    }


def _generators() -> dict[str, Tensor]:
    states = {"/generator/cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"/generator/cuda/{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def _set_generators(stored: dict[str, Tensor]) -> None:
    torch.set_rng_state(stored["/generator/cpu"])
    for index in range(torch.cuda.device_count()):
        if (state := stored.get(f"/generator/cuda/{index}")) is not None:
            torch.cuda.set_rng_state(state, index)


def _remove(path: Path) -> None:
    """Take a checkpoint's name away first: one that is half deleted must not count."""
    doomed = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.rename(doomed)
    shutil.rmtree(doomed)


def _remove_leftovers(parent: Path) -> None:
    for path in parent.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)


def step_of(path: Path) -> int:
    """Return the number of steps that were done when a checkpoint was written."""
    return int(path.name.partition("-")[2])
