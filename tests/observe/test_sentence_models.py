"""A model of sentence-transformers: encodings, training and places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embedwatch.monitor import Monitor, watch
from tests.loading import tiny as saved
from tests.observe import tiny

st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra: oracles)")
from sentence_transformers.sentence_transformer import modules as stm  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:sentence_transformers")
TEXTS = saved.texts()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved.save("bert", tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture
def model(folder: Path) -> Any:
    parts = [stm.Transformer(str(folder)), stm.Pooling(tiny.D, "mean"), stm.Normalize()]
    return st.SentenceTransformer(modules=parts, device="cpu")


def watched(model: Any) -> Monitor:
    return watch(model, every=1, rows=tiny.ALL, sinks=[], only=["norms"], on_error="raise", budget=None)


def words() -> int:
    """Return how many tokens the texts have, with those that frame them."""
    return sum(len(text.split()) + 2 for text in TEXTS)


def test_encodings_are_the_same_and_each_real_token_is_seen_once(model: Any) -> None:
    before = model.encode(TEXTS, convert_to_tensor=True)
    with watched(model) as monitor:
        assert tiny.identical(model.encode(TEXTS, convert_to_tensor=True), before)
        assert monitor.blind() == {}
        monitor.flush()
        seen = {name: snapshot.provenance.rows for name, snapshot in monitor.snapshots.items()}
    assert [rows for name, rows in seen.items() if name.endswith("encoder.layer.1")] == [words()]


def test_sentences_are_seen_as_one_vector_each(model: Any) -> None:
    features = model.preprocess(TEXTS) if hasattr(model, "preprocess") else model.tokenize(TEXTS)
    with torch.no_grad():
        expected = model(dict(features))["sentence_embedding"]
        with tiny.eyes(model) as eyes:
            model(dict(features))
            assert "sentence_embedding" in eyes.seen()
            assert torch.equal(eyes.looks("sentence_embedding")[0], expected)


def losses(model: Any, *, watching: bool) -> tuple[list[Tensor], Monitor | None]:
    """Train with encodings in between, as with an evaluator; return the weights and random numbers at the end."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    monitor = watched(model) if watching else None
    for _ in range(3):
        model.train()
        features = model.preprocess(TEXTS) if hasattr(model, "preprocess") else model.tokenize(TEXTS)
        model(dict(features))["sentence_embedding"].square().sum(1).log().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        model.encode(TEXTS)
    if monitor is not None:
        monitor.detach()
    return [*model.state_dict().values(), *tiny.generators()], monitor


def test_training_with_encodings_in_between_is_the_same_and_looks_at_its_steps_only(folder: Path) -> None:
    def fresh() -> Any:
        return st.SentenceTransformer(modules=[stm.Transformer(str(folder)), stm.Pooling(tiny.D, "mean")], device="cpu")

    alone, _ = losses(fresh(), watching=False)
    together, monitor = losses(fresh(), watching=True)
    assert len(alone) == len(together)
    assert all(map(tiny.identical, alone, together))
    assert monitor is not None
    assert monitor.pulse.step == 3
    assert {observer.looks for observer in monitor._attachment.observers if not observer.place.optional} == {3}
