"""Short real trainings of the Transformer on real text, watched, with a fault planted or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

from embedwatch.core import Verdict
from embedwatch.monitor import Monitor, watch
from embedwatch.sinks.memory import Memory
from embedwatch_model import ModelConfig, Transformer, adamw, clip_by_global_norm, encode, read_documentation
from embedwatch_model.text import train_tokenizer

VOCABULARY, DIMENSION, LENGTH, BATCH = 800, 64, 48, 8
DOCUMENTS = 250
WARM_UP = 10
"""Steps until the learning rate is reached."""
HELD_OUT = 5_000
"""Tokens at the end of the text that validate."""
VALIDATE_EVERY = 10

Act = Callable[[Transformer], None]
LossOf = Callable[[Transformer, Tensor], Tensor]
DataOf = Callable[[int, Tensor], Tensor]
"""What is trained on, at a step, of the text."""


@lru_cache(maxsize=1)
def text() -> tuple[Tokenizer, Tensor]:
    """Return a tokenizer, and the documentation of the standard library as tokens."""
    documents = list(islice(read_documentation(), DOCUMENTS))
    tokenizer = train_tokenizer(iter(documents), vocabulary=VOCABULARY)
    return tokenizer, torch.tensor([token for document in documents for token in encode(tokenizer, document)])


def language_loss(model: Transformer, batch: Tensor) -> Tensor:
    """Return the loss of predicting each next token, in nats."""
    return functional.cross_entropy(model(batch[:, :-1]).logits.transpose(1, 2), batch[:, 1:])


@dataclass
class Training:
    """What was found in a training, and when: (check, place, status) to the step."""

    monitor: Monitor
    model: Transformer
    found: dict[tuple[str, str, str], int] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    heard: Memory = field(default_factory=Memory)

    def note(self, step: int) -> None:
        """Take note of what is found at a step, and in windows that were closed early before it."""
        for snapshot, verdicts, _ in self.heard.deliveries:
            ill = [verdict for verdict in verdicts if verdict.status in ("warn", "fail")]
            self._add(ill, step if snapshot.provenance.step is None else snapshot.provenance.step)
        self.heard.deliveries.clear()
        self._add(self.monitor.findings, step)

    def _add(self, verdicts: Iterable[Verdict], step: int) -> None:
        for verdict in verdicts:
            key = (verdict.check, verdict.space.place, verdict.status)
            if key not in self.found:
                self.found[key] = step
                self.verdicts.append(verdict)

    def first(self, check: str) -> Verdict:
        """Return the first finding of a check."""
        return next(verdict for verdict in self.verdicts if verdict.check == check)

    @property
    def checks(self) -> set[str]:
        """Names of the checks that found something."""
        return {check for check, _, _ in self.found}


def drawn(stream: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return so many pieces of a text, each one token longer than the model reads."""
    begins = torch.randint(len(stream) - LENGTH - 1, (count,), generator=generator).tolist()
    return torch.stack([stream[begin : begin + LENGTH + 1] for begin in begins])


def validated(model: Transformer, held_out: Tensor, loss_of: LossOf) -> float:
    """Return the loss on what is held out."""
    model.eval()
    with torch.no_grad():
        loss = float(loss_of(model, drawn(held_out, 16, torch.Generator().manual_seed(5))))
    model.train()
    return loss


def train(
    *,
    steps: int = 120,
    rate: float = 1e-3,
    rate_of: Callable[[int], float] | None = None,
    batch_of: Callable[[int], int] = lambda step: BATCH,
    data_of: DataOf = lambda step, stream: stream,
    held_out: Tensor | None = None,
    clip: float = 1.0,
    window: int = 10,
    seed: int = 0,
    attention_every: int = 50,
    start: Act = lambda model: None,
    after_step: Act = lambda model: None,
    loss_of: LossOf = language_loss,
    validate: LossOf = language_loss,
    optimizer_of: Callable[[Transformer, float], Optimizer] = lambda model, rate: adamw(model, rate=rate),
    **config: Any,
) -> Training:
    """Train and watch; findings are noted after each window."""
    tokenizer, stream = text()
    torch.manual_seed(seed)
    shape = {"vocabulary": tokenizer.get_vocab_size(), "d_model": DIMENSION, "layers": 2, "heads": 4, "length": LENGTH}
    model = Transformer(ModelConfig(**{**shape, "positions": "sinusoidal", "dropout": 0.1, **config}))
    start(model)
    optimizer = optimizer_of(model, rate)
    generator = torch.Generator().manual_seed(1 + seed)
    heard = Memory()
    with watch(
        model,
        every=2,
        window=window,
        attention_every=attention_every,
        sinks=[heard],
        tokenizer=tokenizer,
        budget=None,
        on_error="raise",
    ) as monitor:
        training = Training(monitor, model, heard=heard)
        for step in range(1, steps + 1):
            size = batch_of(step)
            loss = loss_of(model, drawn(data_of(step, stream), size, generator))
            loss.backward()
            norm, _ = clip_by_global_norm(model.parameters(), clip)
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, step / WARM_UP) if rate_of is None else rate_of(step)
            optimizer.step()
            optimizer.zero_grad()
            after_step(model)
            known: dict[str, Any] = {
                "loss": loss,
                "batch_size": size,
                "gradient_norm": norm,
                "gradient_norm_limit": clip,
            }
            if step % VALIDATE_EVERY == 0:
                known["validation_loss"] = validated(
                    model, stream[-HELD_OUT:] if held_out is None else held_out, validate
                )
            monitor.step(**known)
            training.losses.append(float(loss.detach()))
            if step == 1 or step % window == 0:
                monitor.flush()
                training.note(step)
    training.note(steps)
    return training
