"""A canary with a map in the daemon: another model's vectors, mapped into the canary's space, are watched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from embedwatch import fit_aligner
from embedwatch.align.probing import probe_pair
from embedwatch.canary import Canary
from embedwatch.canary.inputs import model_embedder
from embedwatch.core.errors import InputError, UsageError
from embedwatch.daemon.canaries import Canaries, CanarySource
from embedwatch.daemon.config import Source
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.sinks.memory import Memory
from tests.loading import tiny

NEVER = 1e6
TEXTS = [f"w{i % 50} w{i * 7 % 50} w{(i * 3 + i // 50) % 50}" for i in range(300)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save("bert", tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def bridge(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A canary of another model, here the same one turned, and the map that leads there."""
    folder = tmp_path_factory.mktemp("bridge")
    now = model_embedder(model).embed(TEXTS)
    turn = torch.linalg.qr(torch.randn(now.shape[1], now.shape[1], generator=torch.Generator().manual_seed(0))).Q
    then: Tensor = now @ turn
    fit_aligner(np.asarray(now), np.asarray(then)).save(folder / "map")
    Canary.of_vectors([then[:64]], TEXTS[:64], model="old").save(folder / "old.canary")
    return folder / "old.canary", folder / "map"


class Bench:
    """A heart, its canaries, and a clock that the test moves."""

    def __init__(self, source: CanarySource) -> None:
        self.memory, self.now = Memory(), 0.0
        self.heart = Heart(HeartSettings(None, interval=NEVER), sinks=[(self.memory, False)])
        self.heart.start()
        self.canaries = Canaries(self.heart, [source], ticks=lambda: self.now)

    def look(self) -> list[tuple[str, str, str]]:
        self.canaries.look()
        self.heart.close_windows()
        self.now += 3600
        return [
            (str(snapshot.space), verdict.check, verdict.status)
            for snapshot, verdicts, _ in self.memory.deliveries
            for verdict in verdicts
            if snapshot.space.model == "bridge"
        ]

    def close(self) -> None:
        self.canaries.close()
        self.heart.close()


@pytest.fixture
def bench(bridge: tuple[Path, Path], model: Path) -> Iterator[Bench]:
    made = Bench(CanarySource(bridge[0], "bridge", 60, model=model, aligner=bridge[1]))
    yield made
    made.close()


def test_a_map_that_holds_is_ok_and_one_that_does_not_any_more_fails(
    bench: Bench, model: Path, bridge: tuple[Path, Path]
) -> None:
    assert bench.look() == [("bridge/pairs", "alignment_lost", "ok")]
    assert bench.look()[-1] == ("bridge/pairs", "alignment_lost", "ok")
    other = fit_aligner(*(np.asarray(model_embedder(model).embed(TEXTS)),) * 2)  # leads nowhere
    other.save(bridge[1], replace=True)
    assert bench.look()[-1] == ("bridge/pairs", "alignment_lost", "fail")


def test_what_does_not_fit_is_refused(model: Path, bridge: tuple[Path, Path]) -> None:
    canary = Canary.load(bridge[0])
    narrow = Canary.of_vectors([canary.vectors[:, :8]], TEXTS[:64])
    aligner = fit_aligner(*(np.asarray(model_embedder(model).embed(TEXTS)),) * 2)
    with pytest.raises(InputError, match="`aligner` must map into the 8 dimensions of the canary, got"):
        probe_pair(narrow, model_embedder(model).embed, aligner=aligner)
    with pytest.raises(
        UsageError, match="must be the 64 texts that were recorded, in their order, got 3 texts; give those"
    ):
        probe_pair(canary, model_embedder(model).embed, texts=TEXTS[:3])
    with pytest.raises(ValueError, match="`aligner` must be left out for files, got one; it belongs to a canary"):
        Source(kind="files", path=Path("/a"), name="a", aligner=Path("/b"))
