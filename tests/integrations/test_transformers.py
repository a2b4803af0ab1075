"""The callback for the Trainer of transformers, in real trainings of a tiny GPT-2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from embedwatch import UsageError
from embedwatch.core.snapshot import Snapshot
from embedwatch.recording import read_recording
from embedwatch.sinks.memory import Memory

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")

from embedwatch.integrations.transformers import EmbedwatchCallback  # noqa: E402

VOCABULARY, LENGTH, STEPS = 100, 16, 12


class Reporter(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Stands where TensorBoard and W&B stand: before the callbacks that a Trainer is given."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.logs.append(dict(logs))


def texts(number: int, seed: int) -> list[dict[str, torch.Tensor]]:
    ids = torch.randint(0, VOCABULARY, (number, LENGTH), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": row} for row in ids]


def trainer_of(folder: Path, *callbacks: Any, **options: Any) -> Any:
    """A Trainer that accumulates two batches, logs every 2nd step, and evaluates and saves every 4th."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        **{
            "max_steps": STEPS,
            "logging_steps": 2,
            "logging_first_step": True,
            "eval_strategy": "steps",
            "eval_steps": 4,
            "save_steps": 4,
            **options,
        },
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        learning_rate=1e-3,
        seed=3,
    )
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 16, "n_layer": 2, "n_head": 2}
    special = {"bos_token_id": 0, "eos_token_id": 1}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **special))
    made = transformers.Trainer(
        model, arguments, train_dataset=texts(64, 0), eval_dataset=texts(8, 1), callbacks=list(callbacks)
    )
    made.remove_callback(transformers.PrinterCallback)
    return made


def callback(memory: Memory | None = None, **options: Any) -> EmbedwatchCallback:
    """Watches in windows of three."""
    sinks = {} if memory is None else {"sinks": [memory]}
    return EmbedwatchCallback(**{"every": 2, "window": 3, "budget": None, "on_error": "raise", **sinks, **options})


def windows(memory: Memory, place: str) -> list[Snapshot]:
    return [snapshot for snapshot, _, _ in memory.deliveries if snapshot.space.place == place]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights of a training that nobody watches."""
    trainer = trainer_of(tmp_path_factory.mktemp("plain"))
    trainer.train()
    return dict(trainer.model.state_dict())


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_steps_scalars_and_checkpoints_are_handed_on(tmp_path: Path, plain: dict[str, torch.Tensor]) -> None:
    memory = Memory()
    watching = callback(memory)
    trainer = trainer_of(tmp_path, watching)
    trainer.train()
    assert same(trainer.model.state_dict(), plain)
    monitor = watching.monitor
    assert monitor is not None
    assert monitor.detached
    assert monitor.errors == {}
    assert monitor.blind() == {}
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in trainer.model.modules())
    assert [snapshot.provenance.step for snapshot in windows(memory, "token_table")] == [0, 4, 8, STEPS]

    logged = {entry["step"]: entry for entry in trainer.state.log_history if "loss" in entry}
    validated = {entry["step"]: entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry}
    last = windows(memory, "training")[-1]
    assert last.provenance.step == STEPS
    assert last.number("loss_last") == pytest.approx(logged[STEPS]["loss"])
    assert last.number("learning_rate") == pytest.approx(logged[STEPS]["learning_rate"])
    assert last.number("batch_size") == 8
    assert set(validated) == {4, 8, 12}
    for step, loss in validated.items():
        window = next(each for each in windows(memory, "training") if (each.provenance.step or 0) >= step)
        assert window.number("validation_loss") == pytest.approx(loss)


def test_what_is_found_is_in_the_logs_once_for_each_window(tmp_path: Path) -> None:
    reporter, memory = Reporter(), Memory()
    watching = callback(memory, renormalize=0.07)
    trainer = trainer_of(tmp_path, reporter)
    assert watching.add_to(trainer) is watching
    trainer.train()
    ours = [{name: value for name, value in logs.items() if name.startswith("embedwatch/")} for logs in reporter.logs]
    kept = [
        {name: value for name, value in entry.items() if name.startswith("embedwatch/")}
        for entry in trainer.state.log_history
    ]
    assert ours == kept
    assert json.loads((tmp_path / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"]
    final = ours[-1]  # with the summary of the training: all windows are closed by then
    table = windows(memory, "token_table")[-1]
    assert final["embedwatch/token_table/mean_cosine"] == table.number("mean_cosine")
    assert final["embedwatch/transformer.ln_f/norm_mean"] == windows(memory, "transformer.ln_f")[-1].number("norm_mean")
    assert "embedwatch/transformer.ln_f/mean_cosine" not in final
    assert final["embedwatch/transformer.wte.weight/token_norm_max"] <= 0.07001
    assert final["embedwatch/renormalized"] == watching.renormalized
    assert final["embedwatch/renormalized"] > VOCABULARY
    assert {"embedwatch/warn", "embedwatch/fail", "embedwatch/monitor/watch_overhead_ratio"} <= set(final)
    assert all(not found for logs, found in zip(reporter.logs, ours, strict=True) if "eval_loss" in logs)
    for place in ("token_table", "transformer.ln_f", "monitor"):
        logged = [found for found in ours if any(name.startswith(f"embedwatch/{place}/") for name in found)]
        assert 1 <= len(logged) <= len(windows(memory, place))


def test_a_callback_that_is_given_comes_after_the_reporters_but_is_in_the_history(tmp_path: Path) -> None:
    reporter = Reporter()
    trainer = trainer_of(tmp_path, reporter, callback(Memory()), save_strategy="no", eval_strategy="no")
    trainer.train()
    assert not any(name.startswith("embedwatch/") for logs in reporter.logs for name in logs)
    assert any(name.startswith("embedwatch/") for entry in trainer.state.log_history for name in entry)


def test_a_training_that_is_resumed_counts_on_and_is_recorded_beside_its_checkpoints(
    tmp_path: Path, plain: dict[str, torch.Tensor]
) -> None:
    folder = tmp_path / "not" / "there"
    trainer = trainer_of(folder, callback())

    class Stop(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = state.global_step == 6

    trainer.add_callback(Stop())
    trainer.train()
    again = trainer_of(folder, callback())
    again.train(resume_from_checkpoint=str(folder / "checkpoint-4"))
    assert same(again.model.state_dict(), plain)
    recorded = next(each for each in read_recording(str(folder)).spaces if each.space.place == "transformer.wte.weight")
    steps = [snapshot.provenance.step or 0 for snapshot in recorded.history]
    assert steps == sorted(set(steps))
    assert steps[-1] == STEPS


def test_the_best_weights_that_are_loaded_at_the_end_are_not_taken_for_a_step(tmp_path: Path) -> None:
    memory = Memory()
    trainer = trainer_of(tmp_path, callback(memory), load_best_model_at_end=True)
    trainer.train()  # nothing can be learned of random texts but themselves: what is held out gets worse
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-4")
    means = [each.number("norm_mean") for each in windows(memory, "token_table")]
    now = torch.linalg.vector_norm(trainer.model.get_input_embeddings().weight.detach().double(), dim=1).mean().item()
    assert means[1] == pytest.approx(now)
    assert means[-1] != pytest.approx(now)


def test_the_processing_class_names_tokens(tmp_path: Path) -> None:
    class Names:
        def convert_ids_to_tokens(self, number: int) -> str:
            return f"<{number}>"

        def save_pretrained(self, folder: str) -> None: ...

    memory = Memory()
    trainer = trainer_of(tmp_path, callback(memory))
    trainer.callback_handler.processing_class = Names()
    with torch.no_grad():
        trainer.model.get_input_embeddings().weight[17] *= 10_000
    trainer.train()
    named = [
        row
        for _, verdicts, exhibits in memory.deliveries
        for exhibit in exhibits
        if any(verdict.status == "fail" for verdict in verdicts)
        for row in exhibit.rows
    ]
    assert any("<17>" in row for row in named)


def test_only_the_first_process_has_sinks(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path / "run")
    memory = Memory()
    for watching in (callback(memory), callback()):
        trainer.state.is_world_process_zero = False
        watching.on_train_begin(trainer.args, trainer.state, trainer.control, model=trainer.model)
        assert watching.monitor is not None
        watching.on_train_end(trainer.args, trainer.state, trainer.control)
        assert watching.monitor.snapshots
    assert not memory.deliveries
    assert not (tmp_path / "run" / "embedwatch.jsonl").exists()


def test_it_can_be_used_again_and_evaluation_alone_is_no_training(tmp_path: Path) -> None:
    memory = Memory()
    watching = callback(memory)
    trainer = trainer_of(tmp_path, watching, max_steps=3)
    trainer.evaluate()
    assert watching.monitor is None
    trainer.train()
    first = watching.monitor
    trainer.evaluate()
    trainer.train()
    assert first is not None
    assert first.detached
    assert watching.monitor is not first
    assert [each.provenance.step for each in windows(memory, "token_table")] == [0, 3, 0, 3]


def test_wrong_options_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'`windw` must be an option .* did you mean "window"\?'):
        EmbedwatchCallback(windw=3)
    with pytest.raises(UsageError, match="`every` must be a whole number of at least 1, got 0"):
        EmbedwatchCallback(every=0)
    trainer = trainer_of(tmp_path, callback(Memory(), places=["no.such"]))
    with pytest.raises(UsageError, match=r"`places` must name modules of the model, got 'no\.such'"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_our_failures_are_counted_and_stop_nothing(
    tmp_path: Path, plain: dict[str, torch.Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    watching = callback(Memory(), on_error="count")

    class Odd(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            watching.on_optimizer_step(args, state, control)  # without its optimizer

    trainer = trainer_of(tmp_path, Odd(), watching)
    trainer.train()
    assert same(trainer.model.state_dict(), plain)
    assert watching.monitor is not None
    assert watching.monitor.errors == {("callback", "on_optimizer_step"): STEPS}


def test_importing_embedwatch_and_watching_load_no_transformers() -> None:
    code = (
        "import sys, embedwatch, embedwatch.integrations.model_trainer\n"
        "embedwatch.watch, embedwatch.Monitor, embedwatch.renormalize_tokens\n"
        "sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_optimizer_without_a_rate_of_its_own_has_none_and_nothing_fails(tmp_path: Path) -> None:
    class Constant(torch.optim.lr_scheduler.LRScheduler):
        """Leaves the optimizer alone."""

        def __init__(self) -> None: ...

        def step(self, epoch: int | None = None) -> None: ...

        def get_last_lr(self) -> list[float | torch.Tensor]:
            return [0.0]

        def state_dict(self) -> dict[str, Any]:
            return {}

    memory = Memory()
    watching = callback(memory)
    trainer = trainer_of(tmp_path, watching)
    adafactor = transformers.Adafactor(trainer.model.parameters(), lr=None, relative_step=True, warmup_init=True)
    trainer.optimizer, trainer.lr_scheduler = adafactor, Constant()
    trainer.train()
    assert adafactor.param_groups[0]["lr"] is None
    assert watching.monitor is not None
    assert watching.monitor.errors == {}
    last = windows(memory, "training")[-1]
    assert last.number("learning_rate") is None
    assert last.number("loss_last") is not None
    assert "own_errors" not in {verdict.check for verdict in watching.monitor.findings}
