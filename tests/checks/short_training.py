"""Short real trainings, seen through the statistics and judged by the checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.batch import TokenBatch, TrainingStep
from embedwatch.core import Check, History, Snapshot, Space, Statistic, Verdict
from embedwatch.core.registry import get, registered
from embedwatch.judging import Judge
from embedwatch.window import Window
from embedwatch_model.config import ModelConfig
from embedwatch_model.objectives import cross_entropy
from embedwatch_model.transformer import Transformer

VOCABULARY, LENGTH, BATCH = 256, 32, 8
TOKEN_STATISTICS, STEP_STATISTICS = ("token_norms", "token_movement"), ("training",)
JUDGES = ("token_norm_growth", "token_updates", "nonfinite_loss", "initial_loss")


@dataclass
class Told:
    """What was said of a training, window by window."""

    verdicts: list[tuple[int, Verdict]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    def steps(self, check: str, *statuses: str) -> list[int]:
        """Steps whose window has one of these statuses."""
        return [step for step, verdict in self.verdicts if verdict.check == check and verdict.status in statuses]


def text() -> Tensor:
    """The documentation of Python's keywords as bytes."""
    return torch.tensor(list("\n\n".join(topics.values()).encode()))


def transformer(*, width: float = 1.0, **config: Any) -> Transformer:
    """Return a small model of bytes; `width` times as large at the start as it should be."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocabulary=VOCABULARY, length=LENGTH, layers=2, heads=2, dropout=0.0, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(width)
    return model


def train(
    model: nn.Module, table: Tensor, optimizer: torch.optim.Optimizer, *, steps: int, warmup: int = 0, window: int = 10
) -> Told:
    """Train on text, close a window after the first step and after each `window` more, and judge it."""
    told, corpus, generator = Told(), text(), torch.Generator().manual_seed(0)
    judge = Judge([get(Check, name)() for name in JUDGES])
    histories = {"tokens": History(), "training": History()}
    start, counts = table.detach().clone(), torch.zeros(len(table), dtype=torch.int64)
    moved: list[Tensor] = []
    pending: list[TrainingStep] = []
    rates = [group["lr"] for group in optimizer.param_groups]
    for step in range(1, steps + 1):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, step / max(warmup, 1))
        ids = _batch(corpus, generator)
        loss = _loss(model, ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = table.detach().clone()
        optimizer.step()
        optimizer.zero_grad()
        counts += torch.bincount(ids.flatten(), minlength=len(counts))
        moved.append(_moved(before, table, ids))
        scalars = {"loss": loss.item(), "lr": optimizer.param_groups[0]["lr"], "batch_size": float(BATCH)}
        pending.append(TrainingStep(step, {**scalars, "chance_loss": math.log(VOCABULARY)}))
        told.losses.append(loss.item())
        if step == 1 or step % window == 0:
            drift = (table.detach() - start).norm(dim=1) / start.norm(dim=1)
            norms = table.detach().norm(dim=1)
            batch = TokenBatch(torch.arange(len(table)), norms, counts, drift, torch.stack(moved).nanmean(0))
            for role, batches in (("tokens", [batch]), ("training", pending)):
                snapshot = _snapshot(role, batches, step)
                histories[role].append(snapshot)
                told.verdicts += [(step, each) for each in judge.judge(snapshot, None, histories[role])]
            told.ratios.append(float(norms.max() / norms.median()))
            moved, pending = [], []
    return told


def _batch(corpus: Tensor, generator: torch.Generator) -> Tensor:
    places = torch.randint(0, len(corpus) - LENGTH - 1, (BATCH,), generator=generator)
    return torch.stack([corpus[place : place + LENGTH + 1] for place in places])  # (B, T + 1)


def _loss(model: nn.Module, ids: Tensor) -> Tensor:
    found = cross_entropy(model(ids[:, :-1]).logits, ids[:, 1:])
    return found.total / found.number


def _moved(before: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Return how far each row moved, NaN where its token did not come. Shape: (V,)."""
    moved = (table.detach() - before).norm(dim=1) / before.norm(dim=1)
    came = torch.zeros(len(table), dtype=torch.bool)
    came[ids.flatten()] = True
    return torch.where(came, moved, torch.nan)


def _snapshot(role: str, batches: Sequence[Any], step: int) -> Snapshot:
    names = TOKEN_STATISTICS if role == "tokens" else STEP_STATISTICS
    window = Window([registered(Statistic)[name]() for name in names])
    for batch in batches:
        window.update(batch)
    return window.snapshot(Space("tiny", role), step=step, role=role)
