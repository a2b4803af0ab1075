"""What a step is, who says that it is over, and that each armed step is looked at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from embedwatch.monitor import Monitor, watch
from tests.observe import tiny

Optimizer = torch.optim.Optimizer
PLACE = "encoder.layer.1"


def watched(model: nn.Module, **options: Any) -> Monitor:
    return watch(model, **{"every": 1, "sinks": [], "only": ["norms"], "on_error": "raise", "budget": None, **options})


def looks(monitor: Monitor, place: str = PLACE) -> int:
    """Return how many times a place was looked at."""
    return {observer.place.name: observer.looks for observer in monitor._attachment.observers}[place]


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def backward(model: nn.Module, batch: tiny.Batch) -> None:
    tiny.tensors(model(**batch))[0].square().mean().backward()


@pytest.fixture
def model() -> Any:
    return tiny.build("bert").train()


@pytest.fixture
def batch() -> tiny.Batch:
    return tiny.inputs("bert")


def test_a_step_of_accumulated_batches_is_looked_at_once(model: nn.Module, batch: tiny.Batch) -> None:
    optimizer = sgd(model)
    with watched(model, every=2) as monitor:
        backward(model, batch)
        optimizer.step()  # now it is known that this is a training
        found = []
        for _ in range(6):
            before = looks(monitor)
            for _ in range(4):
                backward(model, batch)
            optimizer.step()
            found.append(looks(monitor) - before)
    assert found == [0, 1, 0, 1, 0, 1]
    assert monitor.pulse.step == 7


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("kind", ["bert", "llama-lm", "t5-lm"])
def test_what_checkpointing_computes_again_is_not_looked_at_again(kind: str, reentrant: bool) -> None:
    model, batch = tiny.build(kind).train(), tiny.inputs(kind)
    tiny.checkpoint(model, reentrant=reentrant)
    calls = []
    layer = next(name for name in model.state_dict() if ".0." in name).partition(".0.")[0] + ".0"
    parts = model.get_submodule(layer).named_modules(prefix=layer)
    inside = next(name for name, part in parts if name != layer and not isinstance(part, nn.ModuleList))
    model.get_submodule(inside).register_forward_hook(lambda *_: calls.append(torch._C._current_graph_task_id()))
    optimizer = sgd(model)
    with watched(model, places=[layer, inside]) as monitor:
        for _ in range(3):
            backward(model, batch)
            optimizer.step()
        assert (looks(monitor, layer), looks(monitor, inside)) == (3, 3)
        assert monitor.pulse.step == monitor.pulse.forwards == 3
    assert len(calls) == 6  # each was computed twice
    assert sum(task >= 0 for task in calls) == 3


class Checkpointed(nn.Module):
    """Checkpoints whole layers with their hooks, as many trainers do."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(tiny.D, tiny.D), nn.Dropout(0.2)) for _ in range(4))

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.tokens(ids)
        for layer in self.layers:
            rows = rows + checkpoint(layer, rows, use_reentrant=self.reentrant)
        output: Tensor = rows
        return output


@pytest.mark.parametrize("called", [True, False], ids=["called", "forward only"])
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_hooks_that_are_called_again_in_the_backward_pass_do_not_look_again(reentrant: bool, called: bool) -> None:
    model = Checkpointed(reentrant=reentrant)
    optimizer = sgd(model)
    run = model if called else model.forward
    with watched(model) as monitor:
        for _ in range(3):
            run(tiny.numbers(2, 5)).square().mean().backward()
            optimizer.step()
        names = [place.name for place in monitor.places]
        assert {looks(monitor, name) for name in names} == {3}
        assert monitor.pulse.step == monitor.pulse.forwards == 3
        monitor.flush()
        assert not [place for place in monitor.snapshots if "#" in place]


def test_a_validation_within_a_training_is_not_looked_at(model: nn.Module, batch: tiny.Batch) -> None:
    optimizer = sgd(model)
    encoder: Any = model.get_submodule("encoder")
    with watched(model) as monitor:
        for mode in (torch.no_grad, torch.inference_mode):
            backward(model, batch)
            optimizer.step()
            before = looks(monitor)
            with mode():
                model(**batch)
                model.forward(**batch)
                encoder(torch.randn(2, 3, tiny.D))
            assert looks(monitor) == before
        assert monitor.pulse.step == 2
        backward(model, batch)
        assert looks(monitor) == 3


def test_the_first_pass_is_looked_at_also_where_it_is_a_validation(model: nn.Module, batch: tiny.Batch) -> None:
    with watched(model, every=1000) as monitor:
        with torch.no_grad():
            model(**batch)
        assert looks(monitor) == 1
        model(**batch)
        assert looks(monitor) == 1


class Unrooted(nn.Module):
    """Calls its parts without being called itself, as the encode of sentence-transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tiny.build("bert")

    def forward(self, batch: tiny.Batch) -> Tensor:
        output: Tensor = self.inner(**batch).last_hidden_state
        return output

    def encode(self, batch: tiny.Batch) -> Tensor:
        return self.forward(batch)


def test_a_model_that_is_never_called_itself_is_seen_all_the_same() -> None:
    model = Unrooted()
    batches = [tiny.inputs("bert"), tiny.inputs("bert", left=True)]
    place = f"inner.{PLACE}"
    with tiny.eyes(model) as eyes, torch.no_grad():
        for batch in batches:
            model.encode(batch)
        model(batches[0])  # and then it is called
        model.encode(batches[1])
        assert eyes.pulse.forwards == 4
        assert [len(rows) for rows in eyes.looks(place)] == [sum(tiny.LENGTHS)] * 4
        given = torch.cat(eyes.numbers(place))
        assert len(given.unique()) == len(given)
        assert not torch.equal(eyes.looks(place)[0], eyes.looks(place)[1])


def test_a_training_whose_model_is_encoded_in_between_does_not_look_at_that(batch: tiny.Batch) -> None:
    model = Unrooted()
    optimizer = sgd(model)
    with watched(model) as monitor:
        for _ in range(3):
            model(batch).square().mean().backward()
            optimizer.step()
            with torch.inference_mode():
                model.encode(batch)
        assert looks(monitor, f"inner.{PLACE}") == monitor.pulse.step == 3


def test_a_pass_that_failed_does_not_leak_into_what_follows(model: nn.Module, batch: tiny.Batch) -> None:
    optimizer = sgd(model)
    with watched(model) as monitor:
        backward(model, batch)
        optimizer.step()
        with pytest.raises(IndexError):
            model(input_ids=torch.full((1, 3), tiny.VOCABULARY))
        before = looks(monitor)
        with torch.no_grad():
            model.get_submodule("encoder")(torch.randn(2, 3, tiny.D))
        assert looks(monitor) == before
        assert monitor.pulse.context.masks == {}


def test_modules_that_are_called_several_times_are_places_of_their_own() -> None:
    model, batch = tiny.shared("albert"), tiny.inputs("albert")
    place = "encoder.albert_layer_groups.0"
    with watched(model) as monitor, torch.no_grad():
        model(**batch)
        monitor.flush()
        assert {place, f"{place}#1"} <= monitor.snapshots.keys()
        assert f"{place}#2" not in monitor.snapshots
    with tiny.eyes(model) as eyes, tiny.captured(model, [place]) as outputs, torch.no_grad():
        model(**batch)
        mask = batch["attention_mask"].bool()
        for call, output in enumerate(outputs[place]):
            assert torch.equal(eyes.looks(f"{place}#{call}" if call else place)[0], output[mask])


def test_steps_are_counted_by_the_passes_until_somebody_says(model: nn.Module, batch: tiny.Batch) -> None:
    optimizer = sgd(model)
    with watched(model) as monitor:
        for _ in range(3):
            backward(model, batch)
        assert (monitor.pulse.ticker, monitor.pulse.step) == ("forward", 2)
        optimizer.step()  # these were the batches of its first step
        assert (monitor.pulse.ticker, monitor.pulse.step) == ("optimizer", 1)
        backward(model, batch)
        optimizer.step()
        assert monitor.pulse.step == 2
        monitor.step()  # said for the step that the optimizer has counted already
        assert (monitor.pulse.ticker, monitor.pulse.step) == ("manual", 2)
        backward(model, batch)
        optimizer.step()
        assert monitor.pulse.step == 2
        monitor.step()
        assert monitor.pulse.step == 3


def test_steps_said_by_number_are_taken_as_said(model: nn.Module) -> None:
    with watched(model) as monitor:
        for said, counted in ((10, 10), (None, 11), (40, 40), (None, 41)):
            monitor.step(said)
            assert monitor.pulse.step == counted


@pytest.mark.parametrize("every", [1, 3])
def test_a_training_that_goes_on_counts_from_where_it_was(model: nn.Module, batch: tiny.Batch, every: int) -> None:
    optimizer = sgd(model)
    with watched(model, step=500, every=every) as monitor:
        found = []
        for _ in range(7):
            before = looks(monitor)
            backward(model, batch)
            optimizer.step()
            found.append(looks(monitor) - before)
        assert monitor.pulse.step == 507
    assert found == [int(step % every == 0) for step in range(7)]
    snapshot = monitor.snapshots[PLACE]
    assert snapshot.provenance.step == 507


def test_of_two_optimizers_one_counts(model: nn.Module, batch: tiny.Batch) -> None:
    parameters = list(model.parameters())
    optimizers = [torch.optim.SGD(half, lr=1e-3) for half in (parameters[::2], parameters[1::2])]
    with watched(model) as monitor:
        for step in range(4):
            backward(model, batch)
            for optimizer in optimizers:
                optimizer.step()
            assert monitor.pulse.step == step + 1
        assert looks(monitor) == 4


def test_an_optimizer_that_is_replaced_hands_over(model: nn.Module, batch: tiny.Batch) -> None:
    with watched(model) as monitor:
        for optimizer in (sgd(model), torch.optim.AdamW(model.parameters(), lr=1e-3)):
            for _ in range(4):
                backward(model, batch)
                optimizer.step()
        assert monitor.pulse.step == 7  # the first step of the second is not yet known for a change
        assert monitor._rounds.optimizers.optimizer is optimizer


def test_an_optimizer_that_is_gone_hands_over_at_once(model: nn.Module, batch: tiny.Batch) -> None:
    with watched(model) as monitor:
        for _ in range(2):
            optimizer = sgd(model)
            backward(model, batch)
            optimizer.step()
            del optimizer
        assert monitor.pulse.step == 2


def test_an_optimizer_of_another_model_counts_nothing(model: nn.Module, batch: tiny.Batch) -> None:
    other = tiny.build("bert")
    optimizer = sgd(other)
    with watched(model) as monitor:
        backward(other, batch)
        optimizer.step()
        assert monitor.pulse.step == 0
        assert not monitor.pulse.training


def test_a_step_that_a_scaler_skips_is_none(model: nn.Module, batch: tiny.Batch) -> None:
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with watched(model) as monitor:
        for overflows, steps in ((False, 1), (True, 1), (False, 2)):
            optimizer.zero_grad()
            loss = tiny.tensors(model(**batch))[0].square().mean()
            scaler.scale(loss * float("inf") if overflows else loss).backward()
            scaler.step(optimizer)
            scaler.update()
            assert monitor.pulse.step == steps


def test_a_closure_that_is_called_several_times_is_one_step(model: nn.Module, batch: tiny.Batch) -> None:
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=3)
    calls = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = tiny.tensors(model(**batch))[0].square().mean()
        loss.backward()
        calls.append(loss)
        return loss

    with watched(model) as monitor:
        for step in range(3):
            optimizer.step(closure)
            assert monitor.pulse.step == step + 1
        assert len(calls) > 3


def resize(model: Any, size: int) -> None:
    model.resize_token_embeddings(size, mean_resizing=False)


@pytest.mark.parametrize("kind", ["bert", "llama-lm", "t5-lm", "bart-lm"])
def test_resized_embeddings_are_watched_again_and_counted(kind: str) -> None:
    model, batch = tiny.build(kind), tiny.inputs(kind)
    calls = sum(name in batch for name in ("input_ids", "decoder_input_ids"))
    with watched(model) as monitor, torch.no_grad():
        tokens = [place.name for place in monitor.places if place.role == "token"]
        for size in (tiny.VOCABULARY + 5, tiny.VOCABULARY + 9):
            model(**batch)
            resize(model, size)
            monitor.flush()
            before = sum(looks(monitor, name) for name in tokens)
            batch["input_ids"][0, 0] = size - 1
            model(**batch)
            monitor.flush()
            assert sum(looks(monitor, name) for name in tokens) == before + calls
            assert monitor.blind() == {}
        table = monitor._attachment.table
        assert table is not None
        assert len(table.counts) == tiny.VOCABULARY + 9
        assert int(table.counts[-1]) == 1


@pytest.mark.parametrize("kind", ["bert", "t5-lm", "llama-lm"])
def test_an_embedding_that_is_replaced_is_watched_again(kind: str) -> None:
    model: Any = tiny.build(kind)
    batch = tiny.inputs(kind)
    with watched(model) as monitor, torch.no_grad():
        model(**batch)
        model.set_input_embeddings(nn.Embedding(tiny.VOCABULARY, tiny.D))
        monitor.flush()
        replaced = monitor._attachment.reattached
        assert replaced == sum(place.role == "token" for place in monitor.places)
        before = sum(looks(monitor, place.name) for place in monitor.places if place.role == "token")
        model(**batch)
        monitor.flush()
        assert sum(looks(monitor, place.name) for place in monitor.places if place.role == "token") > before
        assert monitor._attachment.reattached == replaced
        table = monitor._attachment.table
        assert table is not None
        assert table.module is model.get_input_embeddings()


@pytest.mark.parametrize("kind", ["bert", "t5-lm"])
def test_an_embedding_that_was_replaced_leaves_no_hook_when_watching_ends(kind: str) -> None:
    model: Any = tiny.build(kind)
    first = model.get_input_embeddings()
    with watched(model) as monitor:
        model.set_input_embeddings(nn.Embedding(tiny.VOCABULARY, tiny.D))
        monitor.flush()
        assert not first._forward_hooks
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def cut(model: Any) -> None:
    model.encoder.layer = nn.ModuleList(list(model.encoder.layer)[:1])


@pytest.mark.parametrize("seen", [False, True], ids=["never seen", "seen before"])
def test_a_module_that_is_removed_is_blind(model: nn.Module, batch: tiny.Batch, seen: bool) -> None:
    with watched(model) as monitor, torch.no_grad():
        if seen:
            model(**batch)
            assert monitor.blind() == {}
        cut(model)
        model(**batch)
        assert monitor.blind() == {PLACE: "the module is no longer in the model"}


def test_vectors_in_place_of_tokens_leave_the_embedding_blind(model: nn.Module, batch: tiny.Batch) -> None:
    vectors = torch.randn(tiny.BATCH, tiny.LENGTH, tiny.D)
    with watched(model) as monitor, torch.no_grad():
        model(inputs_embeds=vectors, attention_mask=batch["attention_mask"])
        blind = monitor.blind()
        assert list(blind) == ["embeddings.word_embeddings"]
        assert "vectors given in place of tokens" in blind["embeddings.word_embeddings"]
        model(**batch)
        assert monitor.blind() == {}


class Functional(nn.Module):
    """Looks tokens up without calling its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(tiny.D, tiny.D), nn.GELU()) for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        rows = nn.functional.embedding(ids, self.tokens.weight)
        for layer in self.layers:
            rows = layer(rows)
        return rows


def test_a_table_that_is_read_without_its_module_is_blind() -> None:
    model = Functional()
    with watched(model) as monitor, torch.no_grad():
        model(tiny.numbers(2, 5))
        assert list(monitor.blind()) == ["tokens"]
        assert "never calls this module" in monitor.blind()["tokens"]


@pytest.mark.parametrize("kind", ["t5-lm", "bart-lm", "marian"])
def test_a_shared_table_is_not_blind_where_its_twin_is_seen(kind: str) -> None:
    model, batch = tiny.shared(kind), tiny.inputs(kind)
    with watched(model) as monitor, torch.no_grad():
        assert any(place.name.endswith("shared") for place in monitor.places)
        assert monitor.blind()
        model(**batch)
        assert monitor.blind() == {}
        assert not any(looks(monitor, place.name) for place in monitor.places if place.name.endswith("shared"))


def test_a_model_that_is_not_called_is_blind_throughout(model: nn.Module) -> None:
    with watched(model) as monitor:
        optional = {place.name for place in monitor.places if place.optional}
        assert monitor.blind().keys() == {place.name for place in monitor.places} - optional
        assert all("no forward pass was seen" in cause for cause in monitor.blind().values())
