"""The callback of our own Trainer: everything is handed on, nothing of the training changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from embedwatch import UsageError
from embedwatch.core.snapshot import Snapshot
from embedwatch.integrations.model_trainer import TrainerWatch
from embedwatch.sinks.memory import Memory
from embedwatch_model.training import Callback, Trainer
from tests.model import training as tiny


def windows(memory: Memory, place: str) -> list[Snapshot]:
    return [snapshot for snapshot, _, _ in memory.deliveries if snapshot.space.place == place]


def watched(folder: Path, memory: Memory, *callbacks: Any, steps: int = 12, **options: Any) -> TrainerWatch:
    """Train for some steps in windows of three."""
    watch = TrainerWatch(sinks=[memory], **{"every": 2, "window": 3, "budget": None, "on_error": "raise", **options})
    tiny.trainer(folder / "run", tiny.settings(tiny.corpus(folder), steps=steps), watch, *callbacks).fit()
    return watch


def test_loss_rate_gradient_and_validation_go_with_their_step(tmp_path: Path) -> None:
    class Records(Callback):
        def __init__(self) -> None:
            self.steps: list[Any] = []
            self.validations: list[Any] = []

        def on_step(self, trainer: Trainer, record: Any) -> None:
            self.steps.append(record)

        def on_validation(self, trainer: Trainer, record: Any) -> None:
            self.validations.append(record)

    memory, records = Memory(), Records()
    watch = watched(tmp_path, memory, records)
    assert watch.monitor is not None
    assert watch.monitor.detached
    assert watch.monitor.errors == {}
    *_, before, last = windows(memory, "training")
    assert last.provenance.step == 12
    assert last.number("loss_last") == pytest.approx(records.steps[-1].loss)
    assert last.number("learning_rate") == pytest.approx(records.steps[-1].rate)
    assert last.number("batch_size") == 4
    norms = [record.norm for record in records.steps if record.step > (before.provenance.step or 0)]
    assert last.number("gradient_norm_mean") == pytest.approx(sum(norms) / len(norms))
    assert last.number("gradient_norm_limit") == 1.0
    assert last.number("clipped_steps_ratio") == sum(norm > 1 for norm in norms) / len(norms)
    assert last.number("skipped_steps_total") == 0
    for record in records.validations:  # at 4, 8 and 12; windows close after 1, 4, 7, 10 and 12
        window = next(each for each in windows(memory, "training") if (each.provenance.step or 0) >= record.step)
        assert window.number("validation_loss") == pytest.approx(record.loss)


def test_each_checkpoint_has_the_table_examined_once(tmp_path: Path) -> None:
    memory = Memory()
    watched(tmp_path, memory)
    steps = [snapshot.provenance.step for snapshot in windows(memory, "token_table")]
    assert steps == [0, 3, 4, 6, 8, 9, 12]  # every third step, validations that were the best, start and end


def test_a_run_that_goes_on_counts_on(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_step(self, trainer: Trainer, record: Any) -> None:
            if record.step == 5:
                trainer.stop("told so")

    first, second = Memory(), Memory()
    watched(tmp_path, first, Stop())
    watched(tmp_path, second)
    steps = [snapshot.provenance.step for snapshot in windows(second, "monitor")]
    assert windows(first, "monitor")[-1].provenance.step == 5
    assert (min(steps), max(steps)) == (6, 12)
    assert windows(second, "token_table")[0].provenance.step == 5


def test_the_result_is_the_same_to_the_bit(tmp_path: Path) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    watched(tmp_path / "with", Memory())
    tiny.trainer(tmp_path / "without" / "run", tiny.settings(tiny.corpus(tmp_path / "without"))).fit()
    files = [tmp_path / name / "run" / "model.safetensors" for name in ("with", "without")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_renormalising_keeps_all_rows_short_and_counts(tmp_path: Path) -> None:
    class Longest(Callback):
        def __init__(self) -> None:
            self.norms: list[float] = []

        def on_step(self, trainer: Trainer, record: Any) -> None:
            self.norms.append(trainer.model.embedding.tokens.weight.norm(dim=1).max().item())

    longest = Longest()
    watch = watched(tmp_path, Memory(), longest, renormalize=0.05)
    assert watch.renormalized is not None
    assert watch.renormalized >= 280
    assert max(longest.norms) <= 0.05001
    (tmp_path / "other").mkdir()
    untouched = Longest()
    assert watched(tmp_path / "other", Memory(), untouched).renormalized is None
    assert min(untouched.norms) > 0.05001


def test_our_failures_are_counted_and_stop_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch = TrainerWatch(sinks=[])

    class Odd(Callback):
        def on_step(self, trainer: Trainer, record: Any) -> None:
            watch.on_step(trainer, "no record")

    outcome = tiny.trainer(tmp_path / "run", tiny.settings(tiny.corpus(tmp_path)), watch, Odd()).fit()
    assert outcome.progress.step == 12
    assert watch.monitor is not None
    assert watch.monitor.detached
    assert watch.monitor.errors == {("callback", "on_step"): 12}
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "embedwatch: callback 'on_step' failed; it counts as unknown"
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"evry": 3}, r'`evry` must be an option .* did you mean "every"\?'),
        ({"step": 3}, "`step` must be an option"),
        ({"every": 0}, "`every` must be a whole number of at least 1, got 0"),
        ({"rows": 0.5}, "`rows` must be a whole number of at least 1"),
        ({"window": -1}, "`window` must be a whole number of at least 1"),
        ({"budget": 2}, "`budget` must be above 0 and at most 1, got 2"),
        ({"on_error": "ignore"}, "`on_error` must be one of count, raise"),
        ({"only": ["nroms"]}, r'no statistic, diagnostic, measurement or check "nroms"; did you mean "norms"\?'),
        ({"skip": "colapse"}, r'no statistic, diagnostic, measurement or check "colapse"; did you mean "collapse"\?'),
        ({"sinks": ["log", "jsnl:run.jsonl"]}, r'no sink "jsnl"; did you mean "jsonl"\?'),
        ({"renormalize": 0}, "`max_norm` must be a finite number above 0, got 0"),
    ],
)
def test_wrong_options_are_refused_when_it_is_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TrainerWatch(**options)


def test_options_that_do_not_fit_the_model_are_refused_before_the_first_step(tmp_path: Path) -> None:
    trainer = tiny.trainer(
        tmp_path / "run", tiny.settings(tiny.corpus(tmp_path)), TrainerWatch(sinks=[], places=["no.such"])
    )
    with pytest.raises(UsageError, match=r"`places` must name modules of the model, got 'no\.such'"):
        trainer.fit()
    assert trainer.progress.step == 0


def test_a_with_block_lets_go_after_an_exception(tmp_path: Path) -> None:
    class Broken(Callback):
        def on_step(self, trainer: Trainer, record: Any) -> None:
            raise RuntimeError("not ours")

    watch = TrainerWatch(sinks=[])
    trainer = tiny.trainer(tmp_path / "run", tiny.settings(tiny.corpus(tmp_path)), watch, Broken())
    with pytest.raises(RuntimeError, match="not ours"), watch:
        trainer.fit()
    assert watch.monitor is not None
    assert watch.monitor.detached
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in trainer.model.modules())
    assert isinstance(trainer.model, torch.nn.Module)
