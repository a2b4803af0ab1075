"""A bridge that a live model stands on: it holds while the model stays, is lost when it moves, and disturbs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from prometheus_client import generate_latest
from torch import Tensor, nn

from embedwatch import Bridge, Canary, fit_aligner, watch
from embedwatch.align.aligner import Aligner
from embedwatch.core.errors import InputError, UsageError
from embedwatch.sinks.memory import Memory
from embedwatch.sinks.prometheus import Prometheus

WORDS, WIDTH, OLD = 60, 24, 16
TEXTS = [f"{i % WORDS} {i * 7 % WORDS} {(i * 3 + i // WORDS) % WORDS}" for i in range(400)]
PROBE = 80


class Encoder(nn.Module):
    """Words are numbers; their vectors are averaged and turned."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.out(self.drop(self.table(tokens)).mean(1))
        return found


def encoder(seed: int = 0) -> Encoder:
    torch.manual_seed(seed)
    return Encoder()


def encode_with(model: nn.Module) -> Callable[[Sequence[str]], Tensor]:
    def encode(texts: Sequence[str]) -> Tensor:
        found: Tensor = model(torch.tensor([[int(word) for word in text.split()] for text in texts]))
        return found

    return encode


@pytest.fixture(scope="module")
def then() -> tuple[Canary, Aligner]:
    """What an old model of fewer dimensions made of the texts, and a map that leads from the new one there."""
    model = encoder().eval()
    with torch.no_grad():
        new = encode_with(model)(TEXTS)
    old = new @ torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))).Q[:, :OLD]
    aligner = fit_aligner(new, old, try_methods=["procrustes", "ridge_1"])
    return Canary.of_vectors([old[:PROBE]], TEXTS[:PROBE], model="old"), aligner


def bridge_of(then: tuple[Canary, Aligner], model: nn.Module) -> Bridge:
    return Bridge(*then, encode=encode_with(model))


def seen(memory: Memory) -> list[tuple[str, str]]:
    return [
        (verdict.check, verdict.status)
        for snapshot, verdicts, _ in memory.deliveries
        if snapshot.space.place == "pairs"
        for verdict in verdicts
    ]


def test_a_bridge_holds_until_the_model_moves(then: tuple[Canary, Aligner]) -> None:
    model, memory = encoder(), Memory()
    with (
        Prometheus(0) as sink,
        watch(model, bridge=bridge_of(then, model), sinks=[memory, sink], every=1, on_error="raise") as monitor,
    ):
        model(torch.zeros(2, 3, dtype=torch.int64))
        monitor.examine()
        monitor.flush()
        assert seen(memory) == [("alignment_lost", "ok")] * 2
        now = monitor.snapshots["pairs"]
        assert now.provenance.role == "pairs"
        assert (now.number("pair_recall_ratio", k="10") or 0) > 0.9
        assert (now.number("pair_residual_ratio") or 9) < 0.5
        with torch.no_grad():
            model.out.weight.copy_(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(5)))
        found = [judged for judged in monitor.diagnose() if judged.snapshot.space.place == "pairs"]
        assert [verdict.status for judged in found for verdict in judged.verdicts] == ["fail"]
        assert [exhibit.name for exhibit in found[0].exhibits] == ["pair_served_worst"]
        assert seen(memory)[-1] == ("alignment_lost", "fail")
        assert monitor.findings[0].check == "alignment_lost"
        lines = [line for line in generate_latest(sink.registry).decode().splitlines() if 'place="pairs"' in line]
    assert any(line.startswith("embedwatch_pair_recall_ratio{") for line in lines)
    failing = [line for line in lines if line.startswith("embedwatch_check_failing{") and "alignment_lost" in line]
    assert {line[-3:] for line in failing} == {"1.0"}, "what the alert asks for"


def test_a_training_over_a_bridge_is_bit_for_bit_the_same(then: tuple[Canary, Aligner]) -> None:
    def train(model: Encoder, after: Callable[[], None]) -> list[Tensor]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        torch.manual_seed(3)
        for _ in range(4):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(torch.randint(WORDS, (8, 3))).float().square().mean()
                after()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [*(weight.detach().clone() for weight in model.parameters()), torch.rand(3)]

    alone = train(encoder(), lambda: None)
    model, memory = encoder(), Memory()
    with watch(model, bridge=bridge_of(then, model), sinks=[memory], every=1, on_error="raise") as monitor:
        watched = train(model, monitor.examine)
        assert model.training
        assert model.drop.training
    assert all(torch.equal(*pair) for pair in zip(alone, watched, strict=True))
    assert len(seen(memory)) == 1 + 4 + 1, "at the start, at each checkpoint, at the end"
    assert monitor.snapshots["table"].provenance.rows <= 4 * 8 * 3, "the texts of the bridge are not among its rows"


def test_what_does_not_fit_is_refused_at_the_start(then: tuple[Canary, Aligner], tmp_path: Path) -> None:
    canary, aligner = then
    model = encoder()
    with pytest.raises(UsageError, match="`bridge` must be a Bridge, got Canary; make one of a canary and a map"):
        watch(model, bridge=canary, sinks=[])
    with pytest.raises(InputError, match="`Encoder` must know how texts become vectors, got a Encoder; give `encode`"):
        watch(model, bridge=Bridge(canary, aligner), sinks=[])
    narrow = Bridge(canary, aligner, encode=lambda texts: torch.ones(len(texts), 5))
    with pytest.raises(InputError, match="`encode` must give the 24 dimensions that the map takes, got 5; use the map"):
        watch(model, bridge=narrow, sinks=[])
    with pytest.raises(InputError, match="`aligner` must map into the 8 dimensions of the canary, got 16"):
        Bridge(Canary.of_vectors([canary.vectors[:, :8]], TEXTS[:PROBE]), aligner)
    with pytest.raises(
        UsageError, match="must be the 80 texts that were recorded, in their order, got 3 texts; give those"
    ):
        Bridge(canary, aligner, texts=TEXTS[:3])
    with pytest.raises(UsageError, match="in their order, got another text 1; give those"):
        Bridge(canary, aligner, texts=TEXTS[1 : PROBE + 1])
    with pytest.raises(InputError, match="nowhere"):
        Bridge(canary, tmp_path / "nowhere")


def test_a_bridge_that_is_refused_leaves_the_watch_before_it(then: tuple[Canary, Aligner]) -> None:
    model = encoder()
    narrow = Bridge(*then, encode=lambda texts: encode_with(model)(texts)[:, :5])
    with watch(model, sinks=[], every=1) as earlier:
        with pytest.raises(InputError, match="must give the 24 dimensions"):
            watch(model, bridge=narrow, sinks=[])
        assert not earlier.detached
        assert earlier.pulse.forwards == 0, "texts of the bridge are not seen by it"
        model(torch.zeros(2, 3, dtype=torch.int64))
        assert earlier.pulse.forwards == 1


def test_a_model_that_is_spread_after_the_start_is_not_run(then: tuple[Canary, Aligner]) -> None:
    model, asked = encoder(), []

    def encode(texts: Sequence[str]) -> Tensor:
        asked.append(len(texts))
        return encode_with(model)(texts)

    with watch(model, bridge=Bridge(*then, encode=encode), sinks=[], every=1) as monitor:
        at_start = len(asked)
        vars(model.out)["_is_fsdp_managed_module"] = True  # what FullyShardedDataParallel says of its modules
        monitor.examine()
        assert len(asked) == at_start, "its forward pass would wait for the other ranks"
        assert monitor.errors == {("diagnostic", "bridge"): 1}
        with pytest.raises(UsageError, match="`bridge` must be of a model that lies whole on this rank"):
            watch(model, bridge=Bridge(*then, encode=encode), sinks=[])


def test_a_bridge_is_made_of_files_too(then: tuple[Canary, Aligner], tmp_path: Path) -> None:
    canary, aligner = then
    canary.save(tmp_path / "old.canary")
    aligner.save(tmp_path / "map")
    opened = Bridge(tmp_path / "old.canary", tmp_path / "map")
    assert len(opened.texts) == PROBE
    model = encoder().eval()
    window = opened.window(opened.embedded(encode_with(model)))
    assert window.rows == PROBE


def test_what_fails_later_is_counted_and_stops_nothing(
    then: tuple[Canary, Aligner], caplog: pytest.LogCaptureFixture
) -> None:
    model, broken = encoder(), False

    def encode(texts: Sequence[str]) -> Tensor:
        if broken:
            raise ValueError("out of order")
        return encode_with(model)(texts)

    with watch(model, bridge=Bridge(*then, encode=encode), sinks=[], every=1) as monitor:
        broken = True
        monitor.examine()
        monitor.flush()
        assert monitor.errors == {("diagnostic", "bridge"): 1}
        assert "pairs" in monitor.snapshots, "of the start"
        assert not [judged for judged in monitor.diagnose() if judged.snapshot.space.place == "pairs"], "not of now"
    assert "'bridge' failed; it counts as unknown" in caplog.text
