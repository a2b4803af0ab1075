"""A real training on a thread of its own, which a test watches, breaks and repairs between two steps."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from itertools import islice
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.sink import Sink
from embedwatch.monitor import Monitor, watch
from embedwatch_model.config import ModelConfig
from embedwatch_model.corpora import read_documentation
from embedwatch_model.objectives import cross_entropy
from embedwatch_model.optimizer import adamw, clip_by_global_norm
from embedwatch_model.text import encode, train_tokenizer
from embedwatch_model.transformer import Transformer

__all__ = ["LENGTH", "LiveTraining"]

TEXTS, VOCABULARY, LENGTH, BATCH = 120, 500, 64, 8
RATE, WARM_UP = 1e-3, 20
PATIENCE = 60.0


class LiveTraining:
    """Trains until the `with` block ends, on documentation of the standard library.

    A step whose loss is not finite is skipped, as trainings in half precision do.

    Args:
        sinks: of the Monitor.
        options: of the Monitor.
    """

    def __init__(self, sinks: Iterable[Sink | str], **options: Any) -> None:
        texts = list(islice(read_documentation(), TEXTS))
        tokenizer = train_tokenizer(iter(texts), vocabulary=VOCABULARY)
        self.stream = torch.tensor([token for text in texts for token in encode(tokenizer, text)])
        self.generator = torch.Generator().manual_seed(1)
        config = ModelConfig(
            vocabulary=VOCABULARY,
            d_model=64,
            layers=2,
            heads=4,
            positions="sinusoidal",
            length=LENGTH,
            dropout=0.1,
        )
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model = Transformer(config)
        self.optimizer = adamw(self.model, rate=RATE)
        self.steps = 0
        self.each_step: Callable[[], None] | None = None
        """Done after every step, until it is taken away."""
        self.planting = False
        """Whether the first layer puts out a row of NaN for each text: sampling may miss a single one at two looks."""
        self.monitor: Monitor = watch(self.model, sinks=sinks, tokenizer=tokenizer, budget=None, **options)
        self.model.layers[0].register_forward_hook(self._plant, prepend=True)
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-training", daemon=True)

    @property
    def table(self) -> Tensor:
        """The token table, without its history. Shape: (V, D)."""
        return self.model.embedding.tokens.weight.detach()

    @property
    def frequent(self) -> int:
        """The most frequent token."""
        return int(self.stream.mode().values)

    def __enter__(self) -> LiveTraining:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(PATIENCE)
        self.monitor.detach()

    def do(self, action: Callable[[], Any]) -> Any:
        """Do something between two steps, on the thread of the training; return what it returned."""
        answer: Future[Any] = Future()
        self._asked.put((action, answer))
        return answer.result(PATIENCE)

    def check(self) -> None:
        """Raise where the training has ended by itself."""
        if not self._thread.is_alive() and not self._over.is_set():
            raise AssertionError(f"the training ended by itself at step {self.steps}")

    def _run(self) -> None:
        torch.set_num_threads(1)
        while not self._over.is_set():
            self._step()
            if self.each_step is not None:
                self.each_step()
            while not self._asked.empty():
                action, answer = self._asked.get()
                try:
                    answer.set_result(action())
                except Exception as error:  # noqa: BLE001 -- it belongs to whoever asked
                    answer.set_exception(error)

    def _step(self) -> None:
        places = torch.randint(0, len(self.stream) - LENGTH - 1, (BATCH,), generator=self.generator)
        ids = torch.stack([self.stream[place : place + LENGTH + 1] for place in places])  # (B, T + 1)
        found = cross_entropy(self.model(ids[:, :-1]).logits, ids[:, 1:])
        loss = found.total / found.number
        self.optimizer.zero_grad()
        scalars: dict[str, Any] = {"loss": loss.detach(), "batch_size": BATCH}
        if loss.isfinite():
            loss.backward()
            scalars["gradient_norm"] = clip_by_global_norm(self.model.parameters(), 1.0).norm
            for group in self.optimizer.param_groups:
                group["lr"] = RATE * min(1.0, (self.steps + 1) / WARM_UP)
            self.optimizer.step()
        self.monitor.step(**scalars)
        self.steps += 1

    def _plant(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        del module, inputs
        if not self.planting:
            return output
        spoilt = output.clone()
        spoilt[:, 0] = torch.nan  # (B, T, D)
        return spoilt
