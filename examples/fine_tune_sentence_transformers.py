"""Fine-tune a sentence encoder, watched: the same callback as for the Trainer of transformers.

python examples/fine_tune_sentence_transformers.py ./my-encoder pairs.tsv    two texts a line, a tab between them
embedwatch show fine-tuned                                                   the course of the training, afterwards

It is the vectors of whole texts that a search compares. Their place is `sentence_embedding`, or the last part of yours.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from embedwatch.integrations.transformers import EmbedwatchCallback


def main() -> None:
    """Fine-tune, and say how the space of texts changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--out", default="fine-tuned")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=2e-5)
    options = parser.parse_args()

    model = SentenceTransformer(options.model)
    lines = [line.split("\t") for line in options.pairs.read_text(encoding="utf-8").splitlines() if "\t" in line]
    data = Dataset.from_dict({"anchor": [line[0] for line in lines], "positive": [line[1] for line in lines]})

    callback = EmbedwatchCallback(every=2, window=20)  # the only line about embedwatch

    arguments = SentenceTransformerTrainingArguments(
        output_dir=options.out,
        max_steps=options.steps,
        learning_rate=options.rate,
        per_device_train_batch_size=16,
        logging_steps=5,
        report_to="none",
    )
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model, arguments, train_dataset=data, loss=loss, callbacks=[callback]).train()

    monitor = callback.monitor
    for verdict in monitor.findings if monitor else []:  # the gravest first
        print(verdict.status, verdict.title, "|", verdict.reason, "→", verdict.remedy)
    print(f"{monitor}\nembedwatch show {options.out}")


if __name__ == "__main__":
    main()
