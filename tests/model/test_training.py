"""The loop: resumed = uninterrupted, accumulated = one batch, it learns, it stops when it should."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from embedwatch_model.checkpoint import checkpoints, latest
from embedwatch_model.config import ModelConfig
from embedwatch_model.errors import ModelError
from embedwatch_model.objectives import Batch, causal
from embedwatch_model.schedules import Schedule
from embedwatch_model.training import Callback, Trainer
from embedwatch_model.training_settings import TrainingSettings
from embedwatch_model.transformer import Transformer
from tests.model import training as tiny


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Trainer, record: Any) -> None:
        if record.step == self.step:
            trainer.stop("told so")


class Norms(Callback):
    def __init__(self) -> None:
        self.norms: list[float] = []

    def on_step(self, trainer: Trainer, record: Any) -> None:
        self.norms.append(record.norm)


class Fixed:
    """The same few windows at every step."""

    def __init__(self, windows: torch.Tensor, parts: int = 1) -> None:
        self.parts = windows.chunk(parts)
        self.whole = windows

    def batch(self, position: int) -> Batch:
        return causal(self.parts[position % len(self.parts)])

    def validation(self) -> Iterator[Batch]:
        yield causal(self.whole)


def decoder(**overrides: Any) -> Transformer:
    torch.manual_seed(0)
    settings = {"vocabulary": 40, "d_model": 32, "layers": 2, "heads": 2, "length": 16, "dropout": 0.0}
    return Transformer(ModelConfig(**{**settings, **overrides}))


def windows(rows: int = 4) -> torch.Tensor:
    ids = torch.randint(4, 40, (rows, 13), generator=torch.Generator().manual_seed(0))
    ids[0, 5:] = 0  # padding: parts have different numbers of targets
    return ids


def once(**settings: Any) -> TrainingSettings:
    steps = settings.pop("steps", 1)
    return TrainingSettings(**{"schedule": Schedule("constant", steps=steps), "validate_every": 1000, **settings})


def losses(folder: Path, kind: str) -> list[tuple[int, float]]:
    records = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [(record["step"], record["loss"]) for record in records if record["kind"] == kind]


class TestResuming:
    @pytest.mark.parametrize("objective", ["causal", "masked", "translation"])
    def test_a_resumed_run_ends_bit_for_bit_like_one_that_was_not_interrupted(
        self, objective: str, tmp_path: Path
    ) -> None:
        path = (tiny.table if objective == "translation" else tiny.corpus)(tmp_path)
        chosen = tiny.settings(path, objective=objective, accumulate=2)
        tiny.trainer(tmp_path / "whole", chosen).fit()
        for step in (2, 7, 8):
            assert tiny.trainer(tmp_path / "parts", chosen, StopAt(step)).fit().reason == "told so"
        assert tiny.trainer(tmp_path / "parts", chosen).fit().reason == "finished"
        whole, parts = latest(tmp_path / "whole"), latest(tmp_path / "parts")
        assert whole is not None
        assert parts is not None
        for name in ("model.safetensors", "optimizer.safetensors"):  # weights; moments and random generators
            assert tiny.same(whole / name, parts / name), name
        for kind in ("step", "validation"):
            assert losses(tmp_path / "whole", kind) == losses(tmp_path / "parts", kind)

    def test_what_was_done_after_the_last_checkpoint_is_done_again(self, tmp_path: Path) -> None:
        chosen = tiny.settings(tiny.corpus(tmp_path))
        tiny.trainer(tmp_path / "run", chosen).fit()
        before = losses(tmp_path / "run", "step")
        newest = latest(tmp_path / "run")
        assert newest is not None
        newest.rename(tmp_path / "lost")
        with (tmp_path / "run" / "history.jsonl").open("a") as file:
            file.write('{"kind": "st')  # killed in mid-line
        tiny.trainer(tmp_path / "run", chosen).fit()
        assert losses(tmp_path / "run", "step") == before
        assert tiny.same(newest / "model.safetensors", tmp_path / "lost" / "model.safetensors")

    def test_a_finished_run_has_nothing_to_do(self, tmp_path: Path) -> None:
        chosen = tiny.settings(tiny.corpus(tmp_path))
        first = tiny.trainer(tmp_path / "run", chosen).fit()
        again = tiny.trainer(tmp_path / "run", chosen)
        assert again.latest_step == 12
        assert again.fit().progress == first.progress

    def test_other_settings_or_another_corpus_are_refused(self, tmp_path: Path) -> None:
        path = tiny.corpus(tmp_path)
        tiny.trainer(tmp_path / "run", tiny.settings(path))
        with pytest.raises(ModelError, match=r"`training\.rate` must be 0\.01 to go on with .*, got 0\.5"):
            tiny.trainer(tmp_path / "run", tiny.settings(path, rate=0.5))
        moved = path.rename(tmp_path / "moved.txt")
        tiny.trainer(tmp_path / "run", tiny.settings(moved))
        moved.write_text("other text\n" * 500)
        with pytest.raises(ModelError, match="`corpus_fingerprint` must be"):
            tiny.trainer(tmp_path / "run", tiny.settings(moved))

    def test_a_folder_of_other_things_is_left_alone(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"must be new or a run, got a folder with corpus\.txt"):
            tiny.trainer(tmp_path, tiny.settings(tiny.corpus(tmp_path)))

    def test_the_global_generator_is_left_as_it_was(self, tmp_path: Path) -> None:
        torch.manual_seed(5)
        before = torch.get_rng_state()
        tiny.trainer(tmp_path / "run", tiny.settings(tiny.corpus(tmp_path), steps=2)).fit()
        assert torch.equal(torch.get_rng_state(), before)


class TestLearning:
    def test_accumulation_equals_one_large_batch(self) -> None:
        norms, ends = [], []
        for parts in (1, 2, 4):
            seen = Norms()
            trainer = Trainer(
                decoder(), Fixed(windows(), parts), once(accumulate=parts, steps=5, smoothing=0.1), callbacks=[seen]
            )
            trainer.fit()
            norms.append(seen.norms)
            ends.append(trainer.validate())
        for other in (1, 2):
            assert norms[other] == pytest.approx(norms[0], rel=1e-4)  # a mean of means differs in the second digit
            assert ends[other] == pytest.approx(ends[0], rel=1e-4)

    def test_a_tiny_decoder_overfits_one_sentence(self) -> None:
        model = decoder(positions="rope")
        Trainer(model, Fixed(windows()[1:2]), once(steps=60, rate=0.01)).fit()
        batch = causal(windows()[1:2])
        with torch.no_grad():
            assert torch.equal(model(batch.ids).logits.argmax(-1), batch.targets)

    def test_bf16_learns_like_float32(self) -> None:
        final = []
        for precision in ("float32", "bf16"):
            trainer = Trainer(decoder(), Fixed(windows()), once(steps=20, rate=0.005, precision=precision))
            trainer.fit()
            final.append(trainer.validate())
            assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
        assert final[0] == pytest.approx(final[1], rel=0.05)
        assert final[0] != final[1]

    def test_validation_is_per_target_and_without_dropout(self) -> None:
        trainer = Trainer(decoder(dropout=0.5), Fixed(windows()), once())
        first = trainer.validate()
        assert first == trainer.validate()
        logits = trainer.model.eval()(windows()[:, :-1]).logits
        expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), windows()[:, 1:], ignore_index=0)
        assert first == pytest.approx(expected.item(), rel=1e-5)

    def test_clipped_steps_are_counted(self) -> None:
        for clip, count in ((1e-6, 3), (1e6, 0)):
            outcome = Trainer(decoder(), Fixed(windows()), once(steps=3, clip=clip)).fit()
            assert outcome.progress.clipped == count

    def test_a_step_without_finite_gradient_is_skipped_and_many_end_it(self) -> None:
        model = decoder()
        with torch.no_grad():
            model.norm.weight.fill_(math.inf)
        before = model.embedding.tokens.weight.clone()
        trainer = Trainer(model, Fixed(windows()), once(steps=3))
        assert trainer.fit().progress.skipped == 3
        assert torch.equal(model.embedding.tokens.weight, before)
        with pytest.raises(ModelError, match="20 steps in a row with NaN or infinity"):
            Trainer(model, Fixed(windows()), once(steps=30)).fit()


class TestStopping:
    def test_early_stopping_hands_on_the_best(self, tmp_path: Path) -> None:
        chosen = tiny.settings(tiny.corpus(tmp_path), steps=400, rate=0.02, patience=2, validate_every=5, keep=1)
        trainer = tiny.trainer(tmp_path / "run", chosen, Worse(20))
        outcome = trainer.fit()
        assert outcome.reason == "stopped early"
        assert (outcome.progress.best_step, outcome.progress.step) == (20, 30)
        kept = [path.name for path in checkpoints(tmp_path / "run")]
        assert kept == ["step-00000020", "step-00000030"]
        best = tmp_path / "run" / "checkpoints" / "step-00000020"
        assert tiny.same(tmp_path / "run" / "model.safetensors", best / "model.safetensors")
        assert tiny.trainer(tmp_path / "run", chosen).fit().progress.step == 30  # it stays stopped

    def test_sigint_ends_after_the_step_with_a_checkpoint(self, tmp_path: Path) -> None:
        class Interrupt(Callback):
            def on_step(self, trainer: Trainer, record: Any) -> None:
                if record.step == 5:
                    os.kill(os.getpid(), signal.SIGINT)

        before = signal.getsignal(signal.SIGINT)
        outcome = tiny.trainer(tmp_path / "run", tiny.settings(tiny.corpus(tmp_path)), Interrupt()).fit()
        assert outcome.reason == "interrupted"
        newest = latest(tmp_path / "run")
        assert newest is not None
        assert newest.name == f"step-{outcome.progress.step:08d}"
        assert outcome.progress.step in (5, 6)  # the signal may arrive a moment later
        assert signal.getsignal(signal.SIGINT) is before


class Worse(Callback):
    """Lets the model unlearn from some step on."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Trainer, record: Any) -> None:
        if record.step > self.step:
            with torch.no_grad():
                trainer.model.embedding.tokens.weight.mul_(3)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"accumulate": 0}, "`accumulate`"), ({"precision": "fp8"}, "`precision`"), ({"patience": -1}, "`patience`")],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        TrainingSettings(**options)
