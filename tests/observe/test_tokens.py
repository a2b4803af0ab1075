"""Tokens in every form that a model may be given them, and models with several tables of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from embedwatch.monitor import Monitor, watch
from embedwatch.sinks.memory import Memory
from tests.observe import tiny

LISTED = [[5, 6, 7, 7], [8, 9, 7, 5]]
COUNTS = {5: 2, 6: 1, 7: 3, 8: 1, 9: 1}


class Lookup(nn.Module):
    """Looks tokens up in the way it is told to."""

    def __init__(self, *, by_keyword: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(tiny.D, tiny.D), nn.ReLU()) for _ in range(2))
        self.by_keyword = by_keyword

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Tensor:
        ids = torch.as_tensor(input_ids)
        rows: Tensor = self.tokens(input=ids) if self.by_keyword else self.tokens(ids)
        for layer in self.layers:
            rows = layer(rows)
        return rows


def watched(model: nn.Module, **options: Any) -> Monitor:
    return watch(model, **{"every": 1, "sinks": [], "on_error": "raise", "budget": None, **options})


def counts(monitor: Monitor, number: int = 0) -> dict[int, int]:
    seen = monitor._attachment.tables[number].counts
    return {int(token): int(seen[token]) for token in seen.nonzero()[:, 0]}


@pytest.mark.parametrize("by_keyword", [False, True], ids=["by place", "by keyword"])
@pytest.mark.parametrize("form", ["int64", "int32", "list", "tuple"])
def test_tokens_are_counted_and_places_seen_in_whatever_form_they_come(form: str, by_keyword: bool) -> None:
    forms = {"int64": torch.tensor(LISTED), "int32": torch.tensor(LISTED).int(), "list": LISTED,
             "tuple": tuple(map(tuple, LISTED))}  # fmt: skip
    model = Lookup(by_keyword=by_keyword)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watched(model) as monitor:
        model(input_ids=forms[form], attention_mask=[[1, 1, 1, 1]] * 2).square().mean().backward()
        optimizer.step()
        assert counts(monitor) == COUNTS
        monitor.flush()
        assert monitor.blind() == {}
        assert monitor.snapshots["tokens"].provenance.rows == sum(COUNTS.values())
        assert monitor.snapshots["tokens"].number("distinct_inputs") == len(COUNTS)
        moved = monitor.snapshots["tokens.weight"].number("token_update_ratio")
        assert moved is not None
        assert moved > 0


class TwoTowers(nn.Module):
    """Scores items for users: each has a table and a tower of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.user = nn.ModuleDict({"table": nn.Embedding(300, 16), "tower": nn.Linear(16, 16)})
        self.item = nn.ModuleDict({"table": nn.Embedding(200, 16), "tower": nn.Linear(16, 16)})

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        left = self.user["tower"](self.user["table"](users))
        right = self.item["tower"](self.item["table"](items))
        scores: Tensor = (left * right).sum(-1)
        return scores


def table(tower: nn.ModuleDict) -> nn.Embedding:
    found = tower["table"]
    assert isinstance(found, nn.Embedding)
    return found


def test_two_tables_of_tokens_are_measured_apart_and_named_apart() -> None:
    model, memory = TwoTowers(), Memory()
    with torch.no_grad():
        table(model.item).weight.mul_(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    users, items = torch.arange(0, 60), torch.arange(0, 60) % 20
    with watched(model, window=5, sinks=[memory]) as monitor:
        for _ in range(8):
            functional.mse_loss(model(users, items), torch.zeros(60)).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert [each.name for each in monitor._attachment.tables] == ["user.table.weight", "item.table.weight"]
        assert counts(monitor, 0) == dict.fromkeys(range(60), 8)
        assert counts(monitor, 1) == dict.fromkeys(range(20), 24)
    snapshots = monitor.snapshots
    for name, rows in (("user", 300), ("item", 200)):
        assert snapshots[f"{name}.table.weight"].provenance.rows == rows
        assert snapshots[f"{name}.table"].provenance.rows > 0
    means = [snapshots[f"{name}.table.weight"].number("token_norm_mean") for name in ("user", "item")]
    norms = [table(tower).weight.norm(dim=1).mean().item() for tower in (model.user, model.item)]
    assert means == pytest.approx(norms, rel=1e-3)
    examined = {place: each.provenance.rows for place, each in snapshots.items() if each.provenance.role == "table"}
    assert examined == {"token_table": 300, "token_table.item.table": 200}
    for place in examined:
        delivered = [each.provenance.step for each, _, _ in memory.deliveries if each.space.place == place]
        assert delivered == [0, 8], "at the start and at the end, each"
