"""The Monitor: windows, findings, what goes wrong with us, and what it costs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import embedwatch
from embedwatch.core import Exhibit, Sink, Snapshot, UsageError, Verdict
from embedwatch.monitor import Monitor, watch
from embedwatch.sinks.memory import Memory
from embedwatch.stats.norms import Norms
from embedwatch_model import ModelConfig, Transformer

VOCABULARY = 100


def tiny(**config: Any) -> Transformer:
    torch.manual_seed(0)
    shape: dict[str, Any] = {"vocabulary": VOCABULARY, "d_model": 16, "layers": 4, "heads": 2}
    return Transformer(ModelConfig(**{**shape, **config}))


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    ids = torch.randint(VOCABULARY, (4, 12))
    loss = functional.cross_entropy(model(ids).logits[:, :-1].transpose(1, 2), ids[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def train(model: nn.Module, monitor: Monitor, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        monitor.step(loss=step(model, optimizer))


def test_windows_are_closed_at_the_start_and_then_evenly_and_all_places_are_in_them() -> None:
    model, memory = tiny(), Memory()
    with watch(model, every=2, window=10, sinks=[memory], budget=None, on_error="raise") as monitor:
        train(model, monitor, 35)
    steps: dict[str, list[int | None]] = {}
    for snapshot, _, _ in memory.deliveries:
        steps.setdefault(snapshot.space.place, []).append(snapshot.provenance.step)
    assert steps["layers.3"] == [1, 11, 21, 31, 35]
    assert steps["embedding.tokens.weight"] == steps["training"] == steps["monitor"] == steps["layers.3"]
    assert steps["token_table"] == [0, 35], "it is examined at the start and at the end"
    of_the_model = {"positions", "scale", "vocabulary", "layers", "meaning"} & steps.keys()
    assert {"positions", "scale", "vocabulary", "layers"} <= of_the_model
    assert all(steps[place] == [0, 35] for place in of_the_model), "so is the model itself"
    assert {place for place in steps if not place.endswith(".attention")} - of_the_model == {
        "embedding.tokens", "embedding", "layers.0", "layers.1", "layers.2", "layers.3", "norm",
        "embedding.tokens.weight", "token_table", "training", "monitor",
    }  # fmt: skip


def test_the_step_is_counted_and_given_scalars_are_read_later() -> None:
    model = tiny()
    with watch(model, every=1, window=5, sinks=[], budget=None, on_error="raise") as monitor:
        train(model, monitor, 12)
        assert monitor.pulse.step == 12
        monitor.step(40, loss=2.5, validation_loss=3.0)
        assert monitor.pulse.step == 40
    training = monitor.snapshots["training"]
    assert training.provenance.step == 40
    assert training.number("loss_last") == 2.5
    assert training.number("validation_loss") == 3.0
    assert training.number("learning_rate") == pytest.approx(1e-3), "read off the optimizer"


def test_a_loss_that_is_a_tensor_is_kept_as_it_was_and_without_its_graph() -> None:
    model = tiny()
    with watch(model, every=1, window=50, sinks=[], budget=None, on_error="raise") as monitor:
        train(model, monitor, 1)
        weight = torch.tensor(3.0, requires_grad=True)
        loss = weight * 2
        monitor.step(loss=loss, lr=None)
        held = monitor._rounds._steps[-1][1]
        assert isinstance(held["loss"], Tensor)
        assert not held["loss"].requires_grad
        with torch.no_grad():
            loss.mul_(100)  # accumulated in place, as many loops do
        monitor.flush()
        training = monitor.snapshots["training"]
    assert training.number("loss_last") == 6.0
    assert monitor.errors == {}, "what is None is not known"


def test_repr_says_what_is_seen_and_where_it_stands() -> None:
    model = tiny()
    monitor = watch(model, every=1, window=5, sinks=[], budget=None)
    expected = len(monitor.places)
    assert expected >= 7
    assert f"0 of {expected} places seen, step 0" in repr(monitor)
    train(model, monitor, 7)
    monitor.flush()
    assert f"{expected} of {expected} places seen, step 7, one step in 1" in repr(monitor)
    monitor.detach()
    assert "detached" in repr(monitor)
    small = monitor.memory()
    assert small < 96e6
    assert watch(model, rows=2048, sinks=[]).memory() > small


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "`every` must be a whole number of at least 1, got 0"),
        ({"rows": 1.5}, "`rows` must be a whole number of at least 1, got 1.5"),
        ({"window": True}, "`window` must be a whole number of at least 1, got True"),
        ({"budget": 2.0}, "`budget` must be above 0 and at most 1, got 2.0"),
        ({"places": ["layer.*"]}, "`places` must name modules of the model, got 'layer.*'"),
        ({"only": ["nrms"]}, 'no statistic, diagnostic, measurement or check "nrms"; did you mean "norms"?'),
        ({"sinks": ["nosuch"]}, 'no sink "nosuch"'),
    ],
)
def test_wrong_options_get_one_clear_line_and_leave_the_model_alone(options: dict[str, Any], message: str) -> None:
    model = tiny()
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    with pytest.raises(UsageError) as error:
        watch(model, **options)
    assert message in str(error.value)
    assert all(len(module._forward_hooks) + len(module._forward_pre_hooks) == 0 for module in model.modules())
    assert {name: module.__dict__.keys() for name, module in model.named_modules()} == {
        name: content.keys() for name, content in before.items()
    }


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(UsageError, match="`model` must be a torch module, got dict"):
        watch({})  # type: ignore[arg-type]


def test_only_and_skip_leave_what_they_say() -> None:
    model = tiny()
    with watch(model, every=1, only=["norms", "extreme_norms"], sinks=[], budget=None) as monitor:
        train(model, monitor, 3)
    assert {m.name for m in monitor.snapshots["embedding"]} == {metric.name for metric in Norms.metrics}
    with watch(model, every=1, skip=["spectrum"], sinks=[], budget=None) as monitor:
        train(model, monitor, 3)
    names = {m.name for m in monitor.snapshots["embedding"]}
    assert "norm_mean" in names
    assert "effective_rank_ratio" not in names


def test_duplicates_and_neighbours_run_only_if_they_are_named() -> None:
    model = tiny()
    with watch(model, every=1, sinks=[], budget=None) as monitor:
        train(model, monitor, 2)
    assert monitor.snapshots["embedding"].get("duplicate_rows_ratio") is None
    with watch(model, every=1, only=["neighbours"], sinks=[], budget=None) as monitor:
        train(model, monitor, 2)
    assert monitor.snapshots["embedding"].get("hubness_robin_hood_ratio") is not None


class Broken(Sink, register=False):
    """Fails at every delivery."""

    name = "broken"

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        raise OSError("no such luck")


def test_a_raising_statistic_is_counted_logged_once_and_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def add(self: Norms, batch: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Norms, "add", add)
    model = tiny()
    with caplog.at_level(logging.WARNING, "embedwatch"), watch(model, every=1, window=5, budget=None) as monitor:
        train(model, monitor, 30)
        monitor.flush()
        assert monitor.errors["statistic", "norms"] >= 5
        assert monitor.snapshots["layers.3"].number("norm_mean") is None, "unknown, not wrong"
        assert monitor.snapshots["layers.3"].number("mean_cosine") is not None, "the others go on"
    assert caplog.text.count("statistic 'norms' failed; it counts as unknown") == 1
    assert caplog.text.count("Traceback") == 1
    assert caplog.text.count("errors of embedwatch") == 1, "and as a finding, once"
    (found,) = [verdict for verdict in monitor.verdicts if verdict.check == "own_errors"]
    assert found.space.place == "monitor"


def test_a_full_disk_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full, which Linux has")
    model, memory = tiny(), Memory()
    with watch(model, every=1, window=5, sinks=[f"jsonl:{full}", memory], budget=None) as monitor:
        train(model, monitor, 12)
        monitor.flush()
        assert monitor.errors["sink", "jsonl"] >= 5
        assert any(verdict.check == "own_errors" for verdict in monitor.findings)
    assert any(snapshot.space.place == "layers.3" for snapshot, _, _ in memory.deliveries), "others get theirs"
    assert caplog.text.count("No space left on device") == 1


def test_a_sink_that_was_switched_off_is_tried_again() -> None:
    model, sink, memory = tiny(), Broken(), Memory()
    with watch(model, every=1, window=1, sinks=[sink, memory], budget=None) as monitor:
        train(model, monitor, 12)
        monitor.flush()
        assert monitor.windows == 13
        tried = monitor.errors["sink", "broken"]
        tenth = sum(snapshot.provenance.step == 10 for snapshot, _, _ in memory.deliveries)
        assert tried == monitor.boundary.patience + tenth, "until it was off, and in the tenth window"
        assert tried < len(memory.deliveries) / 4
        delivered: list[tuple[str, int | None]] = []
        sink.write = lambda snapshot, verdicts, exhibits=(): delivered.append(  # type: ignore[method-assign]
            (snapshot.space.place, snapshot.provenance.step)
        )
        train(model, monitor, 12)
        monitor.flush()
        assert monitor.errors["sink", "broken"] == tried
    first = min(number for _, number in delivered if number is not None)
    assert first == 12 + 7, "the twentieth window"
    assert {number for place, number in delivered if place == "layers.3"} == set(range(first, 25))


def test_a_module_that_is_gone_is_a_finding_and_training_goes_on() -> None:
    model = tiny()
    with watch(model, every=1, window=5, sinks=[], budget=None) as monitor:
        train(model, monitor, 6)
        del model.layers[3]
        train(model, monitor, 6)
        monitor.flush()
        (found,) = [verdict for verdict in monitor.findings if verdict.check == "blind_places"]
        places, gone = len(monitor.places), sum(place.name.startswith("layers.3") for place in monitor.places)
    assert found.reason.startswith("layers.3")
    assert found.reason.endswith(": the module is no longer in the model.")
    assert monitor.blind().keys() == {place.name for place in monitor.places if place.name.startswith("layers.3")}
    assert monitor.snapshots["monitor"].provenance.coverage == {"places_expected": places, "places_seen": places - gone}


def test_a_loss_that_is_no_number_is_a_finding() -> None:
    model = tiny()
    with watch(model, every=1, window=5, sinks=[], budget=None, on_error="raise") as monitor:
        train(model, monitor, 3)
        monitor.step(loss=float("nan"))
        monitor.step(loss=torch.tensor(torch.inf))
        monitor.flush()
        assert "nonfinite_loss" in {verdict.check for verdict in monitor.findings}
        train(model, monitor, 3)
        monitor.flush()
        assert "nonfinite_loss" not in {verdict.check for verdict in monitor.findings}


def test_a_scalar_that_is_no_number_is_counted_and_the_others_are_kept() -> None:
    model = tiny()
    with watch(model, every=1, window=5, sinks=[], budget=None) as monitor:
        train(model, monitor, 2)
        monitor.step(loss="much", lr=0.5, gradient_norm=torch.zeros(3))  # type: ignore[arg-type]
        monitor.flush()
        assert monitor.errors == {("scalar", "loss"): 1, ("scalar", "gradient_norm"): 1}
        assert monitor.snapshots["training"].number("learning_rate") == 0.5
        assert any(verdict.check == "own_errors" for verdict in monitor.findings)


def test_findings_go_to_the_log_by_default_when_they_come_and_only_then(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny()
    with torch.no_grad():
        model.embedding.tokens.weight *= 200
    with caplog.at_level(logging.WARNING, "embedwatch"), watch(model, every=1, window=3, budget=None) as monitor:
        train(model, monitor, 10)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("size of what enters" in line or "embedding: " in line for line in lines) >= 1
    assert len(lines) == len(set(lines)), "each once"
    assert all("→" in line for line in lines), "with what to do"


def test_an_interval_stretches_where_watching_costs_too_much() -> None:
    model = tiny()
    with watch(model, every=1, window=10, sinks=[], budget=1e-6) as monitor:
        train(model, monitor, 40)
        assert monitor.pulse.every > 1
        assert monitor.overhead is not None
        assert monitor.overhead > 1e-6
    with watch(model, every=1, window=10, sinks=[], budget=None) as monitor:
        train(model, monitor, 40)
        assert monitor.pulse.every == 1


def test_serving_pauses_where_watching_costs_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedwatch.observe.budget.CREDIT", 0.0)
    model = tiny().eval()
    with watch(model, every=1, sinks=[], budget=1e-6) as monitor, torch.inference_mode():
        for _ in range(50):
            model(torch.randint(VOCABULARY, (2, 8)))
        looked = sum(observer.looks for observer in monitor._attachment.observers)
    assert 0 < looked < 7 * 20


def test_serving_closes_its_first_window_after_one_pass_and_counts_passes_as_steps() -> None:
    model, memory = tiny().eval(), Memory()
    with watch(model, every=1, sinks=[memory], budget=None, on_error="raise") as monitor, torch.inference_mode():
        given = torch.randint(VOCABULARY, (5, 2, 8))
        for ids in given:
            model(ids)
        monitor._rounds.evaluator.wait()
        first = next(snapshot for snapshot, _, _ in memory.deliveries if snapshot.space.place == "layers.3")
        assert first.provenance.rows == 16
        assert monitor.pulse.step == 4
    assert monitor.snapshots["layers.3"].provenance.rows == 4 * 16
    seen = monitor.snapshots["embedding.tokens.weight"].number("tokens_seen_ratio")
    assert seen == pytest.approx(len(given.unique()) / VOCABULARY)


def test_states_stay_bounded_in_a_long_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embedwatch.course.REMEMBERED", 8)
    model = tiny().eval()
    with watch(model, every=1, window=1, sinks=[], budget=None) as monitor, torch.inference_mode():
        for _ in range(30):
            model(torch.randint(VOCABULARY, (2, 8)))
            monitor.flush()
        held = {place: len(course.history) for place, course in monitor._courses._courses.items()}
        assert 4 <= held["layers.3"] == max(held.values()) <= 8, "of 30 windows"


def test_public_names() -> None:
    assert embedwatch.watch is watch
    assert embedwatch.Monitor is Monitor
