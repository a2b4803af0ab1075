"""Short real trainings of the Transformer on real text, watched, with a fault planted or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from embedwatch.core import Verdict
from embedwatch.monitor import Monitor, watch
from embedwatch_model import ModelConfig, Transformer, adamw, clip_by_global_norm, encode, read_documentation
from embedwatch_model.text import train_tokenizer

VOCABULARY, DIMENSION, LENGTH, BATCH = 800, 64, 48, 8
DOCUMENTS = 250
WARM_UP = 10
"""Steps until the learning rate is reached."""

Act = Callable[[Transformer], None]
LossOf = Callable[[Transformer, Tensor], Tensor]


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

    def note(self, step: int) -> None:
        """Take note of what is found at a step."""
        for verdict in self.monitor.findings:
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


def train(
    *,
    steps: int = 120,
    rate: float = 1e-3,
    start: Act = lambda model: None,
    after_step: Act = lambda model: None,
    loss_of: LossOf = language_loss,
    **config: Any,
) -> Training:
    """Train and watch; findings are noted after each window."""
    tokenizer, stream = text()
    torch.manual_seed(0)
    shape = {"vocabulary": tokenizer.get_vocab_size(), "d_model": DIMENSION, "layers": 2, "heads": 4, "length": LENGTH}
    model = Transformer(ModelConfig(**{**shape, "positions": "sinusoidal", "dropout": 0.1, **config}))
    start(model)
    optimizer = adamw(model, rate=rate)
    generator = torch.Generator().manual_seed(1)
    with watch(model, every=2, window=10, sinks=[], tokenizer=tokenizer, budget=None, on_error="raise") as monitor:
        training = Training(monitor, model)
        for step in range(1, steps + 1):
            begins = torch.randint(len(stream) - LENGTH - 1, (BATCH,), generator=generator).tolist()
            loss = loss_of(model, torch.stack([stream[begin : begin + LENGTH + 1] for begin in begins]))
            loss.backward()
            clip_by_global_norm(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, step / WARM_UP)
            optimizer.step()
            optimizer.zero_grad()
            after_step(model)
            monitor.step(loss=loss, batch_size=BATCH)
            training.losses.append(float(loss.detach()))
            if step == 1 or step % 10 == 0:
                monitor.flush()
                training.note(step)
    training.note(steps)
    return training
