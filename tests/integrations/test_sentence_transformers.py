"""The callback for the Trainer of transformers in that of sentence-transformers: several texts make one example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from embedwatch.core.snapshot import Snapshot
from embedwatch.sinks.memory import Memory
from tests.loading import tiny as saved

st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra: oracles)")
pytest.importorskip("datasets", reason="the Trainer of sentence-transformers needs datasets")

from datasets import Dataset  # noqa: E402
from sentence_transformers.sentence_transformer import losses  # noqa: E402
from sentence_transformers.sentence_transformer import modules as stm  # noqa: E402

from embedwatch.integrations.transformers import EmbedwatchCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
STEPS, BATCH, WINDOW = 10, 4, 4
WIDTH = saved.SIZES["hidden_size"]


NAMES = ("anchor", "positive", "negative")


def triples(number: int) -> Any:
    """The same text in all rows of a column, and another one in each column."""
    texts = saved.texts()
    return Dataset.from_dict({name: [text] * number for name, text in zip(NAMES, texts, strict=False)})


def trained(folder: Path, *callbacks: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    parts = [stm.Transformer(str(saved.save("bert", folder / "tiny"))), stm.Pooling(WIDTH, "mean")]
    model = st.SentenceTransformer(modules=parts, device="cpu")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    arguments = st.SentenceTransformerTrainingArguments(
        output_dir=str(folder / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        dataloader_pin_memory=False,
        learning_rate=1e-9,  # weights stay: equal texts are equal vectors, from one step to the next
        **options,
    )
    trainer = st.SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=triples(BATCH * STEPS),
        loss=losses.MultipleNegativesRankingLoss(model),
        callbacks=list(callbacks),
    )
    trainer.train()
    return model


def callback(memory: Memory) -> EmbedwatchCallback:
    return EmbedwatchCallback(every=1, window=WINDOW, budget=None, attention=0, on_error="raise", sinks=[memory])


def windows(memory: Memory, place: str) -> list[Snapshot]:
    return [snapshot for snapshot, _, _ in memory.deliveries if snapshot.space.place == place]


@pytest.mark.parametrize("accumulated", [1, 2])
def test_each_step_counts_once_and_each_column_has_its_turn(tmp_path: Path, accumulated: int) -> None:
    plain = trained(tmp_path / "plain", gradient_accumulation_steps=accumulated)
    memory = Memory()
    watching = callback(memory)
    model = trained(tmp_path / "watched", watching, gradient_accumulation_steps=accumulated)
    weights = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in weights)
    monitor = watching.monitor
    assert monitor is not None
    assert monitor.errors == {}
    assert monitor.blind() == {}
    assert sum(int(each.number("steps_total") or 0) for each in windows(memory, "training")) == STEPS
    pooled = windows(memory, "sentence_embedding")
    assert pooled[2].provenance.dimension == WIDTH
    assert pooled[2].provenance.rows == WINDOW / 2 * (BATCH + 2 * BATCH)  # anchors, then what they are compared with


def test_all_columns_are_in_a_window(tmp_path: Path) -> None:
    memory = Memory()
    trained(tmp_path, callback(memory))
    for window in windows(memory, "sentence_embedding")[1:3]:
        assert window.number("distinct_inputs") == len(NAMES)
