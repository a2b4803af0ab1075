"""A Monitor and attention: its Spaces, what it says of coverage, its bounds, and attention that code shows itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.core.errors import UsageError
from embedwatch.monitor import Monitor, watch
from embedwatch.observe.attention.site import LOOK_BYTES, MOST_WAITING, Share
from embedwatch.observe.observer import EMPTY
from tests.observe import attending, tiny


def watched(model: nn.Module, **options: Any) -> Monitor:
    return watch(
        model, **{"every": 1, "attention_every": 1, "sinks": [], "on_error": "raise", "budget": None, **options}
    )


def test_each_attention_is_a_space_and_decoding_is_a_segment_of_its_own() -> None:
    model = tiny.build("gpt2-lm")
    ids = tiny.numbers(2, 6)
    with watched(model) as monitor, torch.no_grad():
        model.generate(input_ids=ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=tiny.PAD)
        monitor.flush()
        snapshots = monitor.snapshots
        assert monitor.blind() == {}
        assert monitor.errors == {}
    for name in ("transformer.h.0.attn", "transformer.h.1.attn"):
        whole, decoding = snapshots[name], snapshots[f"{name}/decode"]
        assert whole.provenance.role == decoding.provenance.role == "attention"
        assert (whole.space.place, whole.space.segment) == (name, "all")
        assert (decoding.space.place, decoding.space.segment) == (name, "decode")
        assert whole.provenance.rows == 2 * 2 * 6  # heads, sequences, queries: fewer than sixteen
        assert decoding.provenance.rows == 2 * 2 * 3


def test_it_is_not_looked_at_where_nothing_of_it_is_measured_or_it_is_switched_off() -> None:
    model = tiny.build("mpnet")
    for options in ({"only": ["norms"]}, {"attention": 0}):
        with watched(model, **options) as monitor, torch.no_grad():
            assert not any(place.role == "attention" for place in monitor.places)
            assert monitor._attachment.attention.memory() == 0
            assert not model.get_submodule("encoder.layer.0.attention.attn")._forward_hooks
            model(**tiny.inputs("mpnet"))
            monitor.flush()
            assert not any("attn" in place for place in monitor.snapshots)


@pytest.mark.parametrize("options", [{"attention": -1}, {"attention": True}, {"attention_every": 0}])
def test_options_that_fit_no_model_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="whole number"):
        watched(tiny.build("bert"), **options)


class KernelAttention(nn.Module):
    """Attention by a kernel of its own: nothing that a seam sees."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.Linear(tiny.D, 3 * tiny.D)

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = self.maps(rows).chunk(3, -1)
        output: Tensor = torch.ops.aten._softmax(query @ key.transpose(1, 2), -1, False) @ value
        return output


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(KernelAttention() for _ in range(3))
        self.monitor: list[Monitor] = []

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.tokens(ids)
        for number, layer in enumerate(self.layers):
            rows = layer(rows)
            for monitor in self.monitor:
                split = rows.unflatten(2, (2, -1)).transpose(1, 2)
                monitor.attention(split, split[:, :1], site=f"shown.{number}", is_causal=True)
        output: Tensor = rows.softmax(-1)
        return output


def test_attention_that_no_seam_sees_is_none_of_so_many_and_has_no_numbers() -> None:
    model = Model()
    with watched(model, places=["tokens"]) as monitor, torch.no_grad():
        model(tiny.numbers(2, 5))
        monitor.flush()
        assert monitor._attachment.attention.coverage() == {"own": (0, 3)}
        assert monitor.blind().keys() == {f"layers.{number}" for number in range(3)}
        assert all("attends in a way that nothing sees" in cause for cause in monitor.blind().values())
        assert not any(place.startswith("layers.") for place in monitor.snapshots)
        assert monitor.snapshots["tokens"].provenance.coverage == {"places_expected": 4, "places_seen": 1}


@pytest.mark.parametrize("compiled", [False, True])
def test_attention_can_be_shown_by_the_models_own_code(compiled: bool) -> None:
    torch._dynamo.reset()
    model = Model().eval()
    ids = tiny.numbers(2, 5)
    with torch.no_grad():
        expected = model(ids)
    with watched(model, places=["tokens"]) as monitor, torch.no_grad():
        model.monitor = [monitor]
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        torch.testing.assert_close(run(ids), expected)
        monitor.flush()
        shown = {place: snapshot for place, snapshot in monitor.snapshots.items() if place.startswith("shown")}
        assert shown.keys() == {f"shown.{number}" for number in range(3)}
        assert {snapshot.provenance.rows for snapshot in shown.values()} == {2 * 2 * 5}
        assert monitor._attachment.attention.coverage()["explicit"] == (3, 3)
    torch._dynamo.reset()


ROWS = torch.zeros(2, 2, 5, 8)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"query": ROWS[0]}, "`query` must be floating point of shape (B, H, T, K), got torch.float32 (2, 5, 8)"),
        ({"query": ROWS.long()}, "`query` must be floating point of shape (B, H, T, K), got torch.int64 (2, 2, 5, 8)"),
        ({"key": torch.zeros(2, 2, 5, 4)}, "`key` must be (B, G, S, K) with B 2 or 1, K 8, and G a divisor of 2, got"),
        ({"key": torch.zeros(2, 3, 5, 8)}, "`key` must be (B, G, S, K) with B 2 or 1, K 8, and G a divisor of 2, got"),
        ({"mask": torch.ones(7, 3, 4, 4, 4)}, "`mask` must broadcast to (2, 2, 5, 5), got torch.float32 (7, 3,"),
        ({"mask": torch.ones(5, 5).long()}, "`mask` must be bool, true where a query attends, or added, got torch"),
        ({"output": torch.zeros(2, 5, 16)}, "`output` must be (2, 2, 5) and V, got torch.float32 (2, 5, 16)"),
        ({"site": ""}, "`site` must be the name of a place, got ''"),
        ({"site": 3}, "`site` must be the name of a place, got 3"),
        ({"site": "tokens"}, "`site` must be a name of its own, got 'tokens'"),
    ],
)
def test_what_is_shown_and_does_not_fit_is_told_in_one_line_and_stops_nothing(
    given: dict[str, Any], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = Model().eval()
    shown: dict[str, Any] = {"query": ROWS, "key": ROWS, "site": "wrong", **given}
    with watched(model, places=["tokens"], on_error="count") as monitor, torch.no_grad():

        class Wrong:
            def attention(self, *args: Any, **kwargs: Any) -> None:
                monitor.attention(**shown)

        model.monitor = [Wrong()]  # type: ignore[list-item]
        model(tiny.numbers(2, 5))
        assert monitor.errors["attention", str(shown["site"])] == 3
        told = [record for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 1
        assert line in told[0].getMessage()
        assert told[0].exc_info is None
        assert "\n" not in told[0].getMessage()


def test_what_is_shown_in_compiled_code_and_does_not_fit_stops_nothing_either() -> None:
    torch._dynamo.reset()
    model = Model().eval()
    ids = tiny.numbers(2, 5)
    with watched(model, places=["tokens"], on_error="count") as monitor, torch.no_grad():

        class Wrong:
            def attention(self, query: Tensor, key: Tensor, **kwargs: Any) -> None:
                monitor.attention(query[0], key, site="wrong")

        model.monitor = [Wrong()]  # type: ignore[list-item]
        torch.compile(model, backend="aot_eager", fullgraph=True)(ids)
        assert monitor.errors["attention", "wrong"] == 3
    torch._dynamo.reset()


def test_an_empty_batch_is_not_taken_for_a_model_that_was_compiled_before() -> None:
    model = nn.Sequential(nn.Embedding(tiny.VOCABULARY, tiny.D), nn.Linear(tiny.D, 2))
    with watched(model, places=["0", "1"]) as monitor, torch.no_grad():
        model(tiny.numbers(2, 5)[:0])
        assert monitor.blind() == dict.fromkeys(("0", "1"), EMPTY)
        model(tiny.numbers(2, 5))
        assert monitor.blind() == {}


def test_a_scalar_that_nothing_reads_is_told_once_with_the_nearest_name(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny.build("bert")
    with watched(model) as monitor:
        for _ in range(3):
            monitor.step(lsos=1.0, loss=2.0, lr=0.1, batch_size=4, validation_loss=2.0, gradient_norm=1.0)
        told = [record.getMessage() for record in caplog.records if "no statistic reads" in record.getMessage()]
    assert len(told) == 1
    assert told[0].endswith("""`step` was given 'lsos', which no statistic reads; did you mean "loss"?""")


def test_what_is_watched_is_bounded_in_bytes_whatever_the_length_of_sequences() -> None:
    share = Share(16)
    share.calls = 12
    assert share.queries(1000, turn=0) == 16
    long = LOOK_BYTES // 12 // 3
    assert share.queries(long, turn=0) == 3
    huge = LOOK_BYTES // 4  # one query is three times the share of a site
    turns = [share.queries(huge, turn=turn) for turn in range(9)]
    assert sum(turns) == 3
    assert set(turns) == {0, 1}
    assert share.grant(MOST_WAITING)
    assert not share.grant(1)
    share.give_back(MOST_WAITING)
    assert share.grant(1)


def test_rows_that_nobody_collects_are_dropped_beyond_a_bound_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build("bert")
    monkeypatch.setattr("embedwatch.observe.attention.site.MOST_WAITING", 4000)
    with attending.looking(model) as looks, torch.no_grad():
        for _ in range(6):
            model(**tiny.inputs("bert"))
        site = looks.attention.sites[0]
        assert site.dropped > 0
        held = sum(seen.rows.batch.logits.numel() * 5 for each in looks.attention.sites for seen in each.collect())
        assert 0 < held <= 4000
        model(**tiny.inputs("bert"))
        assert looks.collect()


def test_a_place_with_the_name_of_attention_keeps_it_and_attention_has_another() -> None:
    model = tiny.build("bert")
    name = "encoder.layer.0.attention.self"
    with watched(model, places=[name]) as monitor, torch.no_grad():
        model(**tiny.inputs("bert"))
        monitor.flush()
        assert monitor.snapshots[name].provenance.role == "hidden"
        assert monitor.snapshots[f"{name}.attention"].provenance.role == "attention"
        assert monitor.blind() == {}


def test_the_bound_of_memory_is_part_of_what_a_monitor_says_it_holds() -> None:
    model = tiny.build("bert")
    with watched(model) as monitor, watched(tiny.build("bert"), attention=0) as other:
        assert monitor.memory() - other.memory() >= MOST_WAITING


def test_a_budget_that_is_exceeded_stretches_the_interval_of_attention_too() -> None:
    model = tiny.build("bert")
    with watched(model, budget=1e-9, window=2, every=2, attention_every=6) as monitor, torch.no_grad():
        for _ in range(12):
            model(**tiny.inputs("bert"))
            monitor.step()
            monitor.flush()
        monitor._rounds._adapt()
        stretch = monitor._rounds.budget.stretch
        assert stretch > 1
        assert (monitor.pulse.every, monitor.pulse.attention_every) == (2 * stretch, 6 * stretch)
