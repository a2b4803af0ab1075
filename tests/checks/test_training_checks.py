"""The checks of a training on real short trainings: silent on healthy ones, and each finds what is planted for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.checks.token_updates import TokenUpdates
from embedwatch.core import Provenance, Snapshot, Space, Statistic
from embedwatch.core.registry import get
from embedwatch.judging import Judge
from embedwatch_model.embedding import TokenEmbedding
from tests.checks.short_training import JUDGES, Told, train, transformer

HEALTHY: dict[str, dict[str, Any]] = {
    "slow": {"rate": 1e-3},
    "fast from the first step": {"rate": 3e-3},
    "fast after a warm-up": {"rate": 3e-3, "warmup": 30},
    "wide": {"rate": 3e-3, "d_model": 256, "steps": 60},
    "learned positions": {"rate": 1e-3, "positions": "learned", "tied": False},
}


def run(
    *,
    rate: float,
    warmup: int = 0,
    steps: int = 150,
    plain: bool = False,
    width: float = 1.0,
    d_model: int = 64,
    **config: Any,
) -> Told:
    model = transformer(d_model=d_model, width=width, **config)
    table = table_of(model)
    chosen: torch.optim.Optimizer
    if plain:
        chosen = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    else:
        chosen = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    return train(model, table, chosen, steps=steps, warmup=warmup)


def table_of(model: nn.Module) -> Tensor:
    return next(module for module in model.modules() if isinstance(module, TokenEmbedding)).weight


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_trainings_are_silent(case: str) -> None:
    told = run(**HEALTHY[case])
    assert told.losses[-1] < 0.6 * told.losses[0]
    for check in JUDGES:
        assert told.steps(check, "warn", "fail") == [], check
    assert told.steps("initial_loss", "ok") == [1]
    assert told.steps("token_norm_growth", "unknown") == [1, 10, 20, 30]


def test_a_rate_a_hundred_times_too_high_fails_at_once() -> None:
    told = run(rate=0.1, steps=20)
    assert told.steps("token_updates", "fail") == [1]
    assert told.steps("token_updates", "warn") == [10]


def test_a_rate_a_hundred_times_too_high_warns_through_a_warm_up() -> None:
    assert run(rate=0.3, warmup=30, steps=30).steps("token_updates", "warn", "fail") == [10, 20, 30]


def test_a_usual_rate_does_not_warn_at_the_first_step() -> None:
    """Adam moves each entry by the rate then: 0.002 of 0.02 is a tenth, and no fault."""
    model = transformer(d_model=64, tied=False)
    table = table_of(model)
    with torch.no_grad():
        table.normal_(0.0, 0.02)
    chosen = torch.optim.Adam(model.parameters(), lr=2e-3)
    told = train(model, table, chosen, steps=1)
    assert told.steps("token_updates", "ok") == [1]
    assert moved(1, 0.1) == "ok"
    assert moved(10, 0.1) == "warn"
    assert {moved(1, 0.31), moved(10, 0.31)} == {"fail"}


def moved(step: int, ratio: float) -> str:
    metric = next(m for m in get(Statistic, "token_movement").metrics if m.name == "token_update_ratio")
    provenance = Provenance(time=0.0, rows=100, step=step, role="tokens")
    (verdict,) = Judge([TokenUpdates()]).judge(Snapshot(Space("m", "table"), (metric.measure(ratio),), provenance))
    return verdict.status


@pytest.mark.parametrize("d_model", [64, 256])
def test_an_initialisation_fifty_times_too_wide_fails(d_model: int) -> None:
    told = run(rate=1e-3, steps=1, width=50.0, d_model=d_model)
    assert told.steps("initial_loss", "fail") == [1]


def test_a_loss_that_turns_nan_fails_where_it_does() -> None:
    model = transformer(d_model=64)
    broken = {"at": 0}

    def break_it(module: nn.Module, arguments: Any, output: Any) -> Any:
        broken["at"] += 1
        return output * torch.nan if broken["at"] == 15 else output

    table_owner = next(module for module in model.modules() if isinstance(module, TokenEmbedding))
    table_owner.register_forward_hook(break_it)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    told = train(model, table_owner.weight, optimizer, steps=20)
    assert told.steps("nonfinite_loss", "fail") == [20]
    assert told.steps("nonfinite_loss", "ok") == [1, 10]


def test_rows_that_run_away_are_told_before_they_cross() -> None:
    """A table of its own whose rate is a hundred times that of the rest: rows of bytes that come outgrow the others."""
    model = transformer(d_model=64, tied=False)
    table = table_of(model)
    others = [parameter for parameter in model.parameters() if parameter is not table]
    groups = [{"params": [table], "lr": 0.1}, {"params": others, "lr": 1e-3}]
    told = train(model, table, torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0), steps=200)
    crossed = told.steps("token_norm_growth", "fail")[0]
    warned = [step for step in told.steps("token_norm_growth", "warn") if step < crossed]
    assert len(warned) >= 3
    assert warned[0] < 0.8 * crossed
