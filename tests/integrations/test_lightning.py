"""The callback for the Trainer of Lightning, in real trainings of a tiny model, under both of its names."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from embedwatch import UsageError
from embedwatch.core.snapshot import Snapshot
from embedwatch.recording import read_recording
from embedwatch.sinks.memory import Memory

pytest.importorskip("lightning", reason="the extra `lightning` is not installed")

VOCABULARY, LENGTH, BATCH, BATCHES, ACCUMULATED = 60, 6, 4, 12, 2
STEPS = BATCHES // ACCUMULATED
CLIP = 0.05
"""Far below the norm of the gradient, so that raw and clipped differ."""


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def framework(request: pytest.FixtureRequest) -> ModuleType:
    logging.getLogger(request.param).setLevel(logging.ERROR)
    return importlib.import_module(request.param)


# Lightning warns of idle cores and few workers.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


def batches(number: int, seed: int) -> DataLoader[Any]:
    ids = torch.randint(VOCABULARY, (number * BATCH, LENGTH), generator=torch.Generator().manual_seed(seed))
    return DataLoader(list(ids), batch_size=BATCH)  # type: ignore[arg-type]


def module_of(framework: ModuleType) -> Any:
    class Module(framework.LightningModule):  # type: ignore[misc, name-defined]
        """Calls a part of itself, as most do, and notes what it computed."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.network = nn.Sequential(nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY))
            self.losses: list[float] = []
            self.validated: list[float] = []

        def training_step(self, batch: Tensor, index: int) -> Tensor:
            loss = nn.functional.cross_entropy(self.network(batch).flatten(0, 1), batch.flatten())
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Tensor, index: int) -> None:
            loss = nn.functional.cross_entropy(self.network(batch).flatten(0, 1), batch.flatten())
            self.log("val_loss", loss)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    return Module()


def fit(framework: ModuleType, folder: Path, *callbacks: Any, module: Any = None, **options: Any) -> Any:
    """Train, validate every 4th batch, save every 2nd step; return the trainer and the module."""
    callbacks_module = importlib.import_module(f"{framework.__name__}.callbacks")
    loggers = importlib.import_module(f"{framework.__name__}.loggers")
    saving = callbacks_module.ModelCheckpoint(dirpath=folder / "saved", every_n_train_steps=2, save_top_k=-1)
    start = options.pop("ckpt_path", None)
    trainer = framework.Trainer(
        **{
            "max_epochs": 1,
            "accelerator": "cpu",
            "accumulate_grad_batches": ACCUMULATED,
            "gradient_clip_val": CLIP,
            "val_check_interval": 4,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": loggers.CSVLogger(folder),
            "log_every_n_steps": 1,
            **options,
        },
        callbacks=[*callbacks, saving],
    )
    module = module or module_of(framework)
    trainer.fit(module, batches(BATCHES, 0), batches(2, 1), ckpt_path=start)
    return trainer, module


def callback(memory: Memory | None = None, **options: Any) -> Any:
    from embedwatch.integrations.lightning import EmbedwatchCallback

    sinks = {} if memory is None else {"sinks": [memory]}
    given = {"places": ["network.0"], "every": 1, "window": 2, "budget": None, "on_error": "raise", **sinks, **options}
    return EmbedwatchCallback(**given)


def windows(memory: Memory, place: str) -> list[Snapshot]:
    return [snapshot for snapshot, _, _ in memory.deliveries if snapshot.space.place == place]


def test_steps_scalars_and_checkpoints_are_handed_on(framework: ModuleType, tmp_path: Path) -> None:
    memory = Memory()
    watching = callback(memory)
    _, plain = fit(framework, tmp_path / "plain")
    trainer, module = fit(framework, tmp_path / "watched", watching)
    weights = zip(module.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in weights)
    monitor = watching.monitor
    assert monitor.detached
    assert monitor.errors == {}
    assert monitor.blind() == {}
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.network.modules())
    assert trainer.global_step == STEPS

    training = windows(memory, "training")
    assert sum(int(each.number("steps_total") or 0) for each in training) == STEPS
    assert training[0].number("loss_last") == pytest.approx(sum(module.losses[:2]) / 2)  # not divided by two
    assert training[-1].number("loss_last") == pytest.approx(sum(module.losses[-2:]) / 2)
    assert training[-1].number("learning_rate") == 0.5
    assert training[-1].number("batch_size") == BATCH * ACCUMULATED
    assert training[-1].number("validation_loss") == pytest.approx(float(trainer.callback_metrics["val_loss"]))
    assert training[-1].number("gradient_norm_mean") > 2 * CLIP  # type: ignore[operator]
    assert training[-1].number("gradient_norm_applied_mean") == pytest.approx(CLIP, rel=1e-3)
    assert training[-1].number("gradient_norm_limit") == CLIP
    assert [each.provenance.step for each in windows(memory, "token_table")] == [0, 2, 4, STEPS]


def patient(framework: ModuleType, watching: Any) -> Any:
    class Patient(framework.Callback):  # type: ignore[misc, name-defined]
        """Waits after each batch until windows that closed are judged: on a busy machine that takes longer."""

        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            assert watching.monitor._rounds.evaluator.wait(60)

    return Patient()


def test_windows_are_logged_once_and_recorded(framework: ModuleType, tmp_path: Path) -> None:
    watching = callback(renormalize=3.0)
    trainer, _ = fit(framework, tmp_path, watching, patient(framework, watching), max_epochs=1)
    logged = [line.split(",") for line in (Path(trainer.log_dir) / "metrics.csv").read_text().splitlines()]
    column = logged[0].index("embedwatch/network.0/norm_mean")
    values = [line[column] for line in logged[1:] if line[column]]
    recorded = read_recording(Path(trainer.log_dir) / "embedwatch.jsonl")
    assert len(values) == len(set(values)) > 1
    assert {"embedwatch/warn", "embedwatch/fail", "embedwatch/renormalized"} <= set(logged[0])
    assert {each.space.place for each in recorded.spaces} >= {"network.0", "training", "token_table"}


def test_a_training_that_is_resumed_counts_on(framework: ModuleType, tmp_path: Path) -> None:
    fit(framework, tmp_path, max_steps=4, max_epochs=-1)
    saved = max((tmp_path / "saved").glob("*step=4*"))
    memory = Memory()
    fit(framework, tmp_path, callback(memory), ckpt_path=saved, max_epochs=2)
    steps = [each.provenance.step for each in windows(memory, "training")]
    assert steps[0] == 5
    assert steps[-1] == 2 * STEPS


def test_a_part_is_watched_by_its_own_names(framework: ModuleType, tmp_path: Path) -> None:
    memory = Memory()
    watching = callback(memory, part="network", places=["0"])
    fit(framework, tmp_path, watching)
    assert windows(memory, "0")
    with pytest.raises(UsageError, match="has network"):
        fit(framework, tmp_path, callback(Memory(), part="net"))


def test_a_training_that_fails_lets_the_model_go(framework: ModuleType, tmp_path: Path) -> None:
    class Stop(importlib.import_module(f"{framework.__name__}.callbacks").Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *more: Any) -> None:
            if trainer.global_step == 2:
                raise ArithmeticError("stop")

    memory = Memory()
    watching = callback(memory)
    with pytest.raises(ArithmeticError):
        fit(framework, tmp_path, watching, Stop())
    assert watching.monitor.detached
    assert windows(memory, "training")[-1].provenance.step == 2


def test_an_option_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="window"):
        callback(windows=3)


def by_hand(framework: ModuleType, *, through_lightning: bool, every: int) -> Any:
    kind = type(module_of(framework))

    class ByHand(kind):  # type: ignore[misc, valid-type]
        """Steps its optimizer itself, after several batches."""

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Tensor, index: int) -> Tensor:
            loss: Tensor = super().training_step(batch, index)
            self.manual_backward(loss / every)
            if index % every == every - 1:
                optimizer: Any = self.optimizers(use_pl_optimizer=through_lightning)
                optimizer.step()
                optimizer.zero_grad()
            return loss

    return ByHand()


MANUAL: dict[str, Any] = {"accumulate_grad_batches": 1, "gradient_clip_val": None}


def test_a_step_by_hand_has_the_mean_loss_of_its_batches(framework: ModuleType, tmp_path: Path) -> None:
    memory = Memory()
    module = by_hand(framework, through_lightning=True, every=3)
    fit(framework, tmp_path, callback(memory, window=1), module=module, **MANUAL)
    told = [each.number("loss_last") for each in windows(memory, "training")]
    assert told[-1] == pytest.approx(sum(module.losses[-3:]) / 3)


def test_losses_of_steps_that_nobody_counts_do_not_pile_up(framework: ModuleType, tmp_path: Path) -> None:
    watching = callback(Memory())
    held: list[int] = []

    class Counting(framework.Callback):  # type: ignore[misc, name-defined]
        """Counts the numbers that the callback holds by itself."""

        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            values = [each for each in vars(watching).values() if isinstance(each, (Tensor, list))]
            held.append(sum(each.numel() if isinstance(each, Tensor) else len(each) for each in values))

    module = by_hand(framework, through_lightning=False, every=1)
    fit(framework, tmp_path, watching, Counting(), module=module, **MANUAL)
    assert len(held) == BATCHES
    assert held[-1] == held[0] == 1
