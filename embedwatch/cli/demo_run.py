"""The demo itself: a daemon beside it, a model that trains or encodes, and a fault that comes and goes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedwatch.cli.demo_fault import Act, PumpedToken
from embedwatch.cli.terminals import open_terminals
from embedwatch.cli.train_display import Findings
from embedwatch.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from embedwatch.core.sink import Sink
    from embedwatch_model.events import StepRecord
    from embedwatch_model.training import Trainer

__all__ = ["run_demo"]

START_SECONDS = 180.0
"""So long the daemon may take to answer: it loads torch, and on a busy machine that takes a minute."""
SILENT_SECONDS = 5.0
"""After so long it is said what is waited for."""
ANSWER_SECONDS = 5.0
"""So long one answer may take."""
EVALUATION = "2s"
"""A window of the daemon: short, so that one sees something."""
EVERY, WINDOW, BUDGET = 5, 20, 0.1
"""One step in so many is looked at, a window is so many steps, and all that may take this share of the time: more than
in earnest, since steps of so small a model take milliseconds."""
FOREVER = 10_000_000
TEXTS, TEXTS_AT_ONCE = 2_000, 16
FLUSH_SECONDS = 3.0
"""Windows of a model that encodes are closed so often here: in earnest, each minute."""


def run_demo(model: Path | None, address: str, *, seconds: float | None, quiet: bool) -> None:
    """Show it until the time is over, or until Ctrl-C.

    Args:
        model: folder of a model that encodes; `None` trains one.
        address: of the daemon.
        seconds: until the end; `None` for none.
        quiet: say only what is found.
    """
    terminal, _ = open_terminals("auto")
    tell = (lambda text: None) if quiet else _teller(terminal)
    with tempfile.TemporaryDirectory(prefix="embedwatch-demo-") as folder, _daemon(Path(folder), address, tell):
        _where_to_look(tell, address)
        sinks: list[Sink | str] = [Findings(terminal, quiet=quiet), f"daemon:http://{address}"]
        act = Act(seconds, tell)
        try:
            if model is None:
                _train(Path(folder) / "run", act, sinks, tell)
            else:
                _encode(model, act, sinks, tell)
        except KeyboardInterrupt:
            tell("ended by Ctrl-C")
        tell(f"{act.faults} fault{'' if act.faults == 1 else 's'} shown · nothing is left behind")


def _teller(terminal: Terminal) -> Callable[[str], None]:
    began: list[float] = []

    def tell(text: str) -> None:
        if not began:  # the clock starts with the first thing that is said
            began.append(time.monotonic())
        terminal.print(f"{time.monotonic() - began[0]:5.0f} s  {text}", markup=False, highlight=False, soft_wrap=True)

    return tell


def _where_to_look(tell: Callable[[str], None], address: str) -> None:
    tell(f"page     http://{address}/")
    tell(f"metrics  http://{address}/metrics   (scrape it: `embedwatch rules` writes alerts for it)")
    tell("Ctrl-C ends it; nothing is kept")


@contextmanager
def _daemon(folder: Path, address: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Run a daemon of its own process until the end of the block."""
    config, log = folder / "embedwatch.yaml", folder / "daemon.log"
    config.write_text(f'web: {{listen: ["{address}"]}}\nevaluation: {{interval: {EVALUATION}}}\n', encoding="utf-8")
    storage = str(folder / "state")
    command = [sys.executable, "-m", "embedwatch", "serve", "-c", str(config), "--storage.path", storage]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)  # noqa: S603  # Python itself, and our own daemon
    try:
        _wait(process, address, log, tell)
        yield
    finally:
        process.terminate()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], address: str, log: Path, tell: Callable[[str], None]) -> None:
    """Wait until the daemon answers, and say so where that takes a while.

    Raises:
        InputError: if it ends, or does not answer in time.
    """
    began = time.monotonic()
    told = False
    while (passed := time.monotonic() - began) < START_SECONDS and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=ANSWER_SECONDS):
                return
        except (urllib.error.URLError, OSError):
            if passed >= SILENT_SECONDS and not told:
                told = True
                tell(f"waiting for the daemon to load and to answer at {address}, {START_SECONDS:.0f} s at most")
            time.sleep(0.1)
    said = log.read_text(errors="replace").strip().splitlines()
    last = f"and its last words were: {said[-1]}" if said else "and it said nothing"
    ended = f"it ended with status {process.returncode}" if process.poll() is not None else "no answer"
    raise InputError(
        f"the daemon must answer at http://{address}/-/ready within {START_SECONDS:.0f} s, got: {ended}, {last};"
        " try again when the machine is less busy, or look at what `embedwatch serve` says"
    )


class _Demonstration:
    """A callback of the Trainer: lets the fault come and go, and ends the training in time."""

    def __init__(self, act: Act, tell: Callable[[str], None]) -> None:
        self._act, self._tell = act, tell
        self._pumped: PumpedToken | None = None
        self._told = 0.0

    def on_start(self, trainer: Trainer) -> None:
        """Choose the token."""
        from embedwatch.interventions import token_table

        _, table = token_table(trainer.model)
        self._pumped = PumpedToken(table, _frequent(trainer))

    def on_step(self, trainer: Trainer, record: StepRecord) -> None:
        """Do what it is time for."""
        if self._pumped is not None:
            self._act.play(self._pumped)
        now = time.monotonic()
        if now - self._told >= 10.0:
            self._told = now
            self._tell(f"step {record.step:,} · loss {record.loss:.2f}")
        if self._act.is_over:
            trainer.stop("finished")

    def on_validation(self, trainer: Trainer, record: Any) -> None:
        """Nothing."""

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        """Nothing."""

    def on_end(self, trainer: Trainer, outcome: Any) -> None:
        """Nothing."""


def _frequent(trainer: Trainer) -> int:
    """Return the most frequent token of a training, as its first batch shows it."""
    return int(trainer.data.batch(0).ids.reshape(-1).bincount().argmax())


def _train(out: Path, act: Act, sinks: list[Sink | str], tell: Callable[[str], None]) -> None:
    """Train a small Transformer of our own until the time is over."""
    from embedwatch.integrations.model_trainer import TrainerWatch
    from embedwatch_model.run import RunSettings, open_run
    from embedwatch_model.schedules import Schedule
    from embedwatch_model.training_settings import TrainingSettings

    schedule = Schedule("constant", steps=FOREVER, warmup=20)
    training = TrainingSettings(rate=1e-3, schedule=schedule, validate_every=FOREVER, save_every=FOREVER, decay=0.1)
    settings = RunSettings(vocabulary=2048, batch=8, model={"positions": "rope", "length": 64}, training=training)
    tell("reading the documentation of this Python")
    trainer = open_run(out, settings)
    tell("training a Transformer of 2 layers; everything is watched")
    watching = TrainerWatch(name="demo", every=EVERY, window=WINDOW, budget=BUDGET, sinks=sinks)
    trainer.callbacks.extend([_Demonstration(act, tell), watching])
    with watching:
        trainer.fit()


def _encode(model: Path, act: Act, sinks: list[Sink | str], tell: Callable[[str], None]) -> None:
    """Let a model encode the documentation of this Python until the time is over."""
    import torch

    from embedwatch.interventions import token_table
    from embedwatch.loading import load_subject
    from embedwatch.monitor import watch
    from embedwatch_model.corpora import read_documentation

    subject = load_subject(model)
    encoder = subject.encoder()
    texts = list(itertools.islice(read_documentation(), TEXTS))
    ids = subject.tokenizer(texts[:200], add_special_tokens=False)["input_ids"]
    frequent = int(torch.bincount(torch.tensor([token for text in ids for token in text])).argmax())
    module = subject.module()
    _, table = token_table(module)
    pumped = PumpedToken(table, frequent)
    tell(f"{subject.label} encodes the documentation of this Python; everything is watched")
    flushed = told = time.monotonic()
    with watch(module, name=subject.label, every=1, tokenizer=subject.tokenizer, sinks=sinks) as monitor:
        for done in itertools.count(1):
            start = (done * TEXTS_AT_ONCE) % (len(texts) - TEXTS_AT_ONCE)
            encoder.encode(texts[start : start + TEXTS_AT_ONCE])
            act.play(pumped)
            now = time.monotonic()
            if now - flushed >= FLUSH_SECONDS:
                monitor.flush(wait=False)
                flushed = now
            if now - told >= 10.0:
                tell(f"{done * TEXTS_AT_ONCE:,} texts encoded")
                told = now
            if act.is_over:
                return
