"""Which names `align check` gives to uses of models that its limits were not chosen on.

Run from the root of the repository:

    python -m benchmarks.alignment_names --brown FOLDER [--mpnet FOLDER] [--smollm2 FOLDER] [--write FILE]

The limits that tell pooling, prefix, precision and truncation apart were chosen on MiniLM and multilingual-e5-small
with package descriptions. Here other models embed other texts: all-mpnet-base-v2 and SmolLM2-135M (pooled as an
encoder), and averages of GloVe and word2vec vectors, on sentences of the Brown corpus and glosses of WordNet. Vectors
alone are given, as two files; what was done to them is known, and the name is right, wrong, or withheld.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from benchmarks.detection import texts as sources
from benchmarks.detection.data import WORDNET
from embedwatch import Subject, check_pair, load_subject, open_source
from embedwatch.whole_files import write_whole

COUNT = 200
LONGEST = 16
"""Words of a text."""
LIMIT = 12
"""Tokens, or words, at which texts are cut."""
CACHE = Path(tempfile.gettempdir()) / "embedwatch-names"
PREFIXES = ("query: ", "Represent this sentence for searching relevant passages: ")
Rows = Callable[[list[str]], Tensor]
Variant = tuple[str, str, Rows]
"""What was done in words, the name for it, and what does it."""


def chosen(texts: list[str], seed: int) -> list[str]:
    """Return some texts of 5 to 16 words."""
    fitting = [text for text in texts if 5 <= len(text.split()) <= LONGEST]
    return random.Random(seed).sample(fitting, COUNT)  # noqa: S311  # no secret


def eight_bits(subject: Subject) -> None:
    """Round weights, and what enters each linear layer, to eight bits, as dynamic quantisation does."""
    for module in subject.module().modules():
        if isinstance(module, torch.nn.Linear):
            step = module.weight.detach().abs().max() / 127
            module.weight.data = (module.weight.detach() / step).round() * step
            module.register_forward_pre_hook(_entering)


def _entering(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    del module
    step = (inputs[0].max() - inputs[0].min()) / 255
    return ((inputs[0] / step).round() * step, *inputs[1:])


def of_model(folder: Path, pooling: str, others: tuple[str, ...]) -> Iterator[Variant]:
    """Yield how a model is used as it should be, and in other ways."""
    subject = load_subject(folder)

    def pooled(name: str) -> Rows:
        return lambda texts: subject.encode(texts, pooling=name)

    def prefixed(prefix: str) -> Rows:
        return lambda texts: subject.encode(texts, pooling=pooling, prefix=prefix)

    def cut(texts: list[str]) -> Tensor:
        return replace(subject.encoder(pooling=pooling), limit=LIMIT).encode(texts).vectors

    def altered(change: Callable[[Subject], Any]) -> Rows:
        def rows(texts: list[str]) -> Tensor:
            other = load_subject(folder)
            change(other)
            return other.encode(texts, pooling=pooling).float()

        return rows

    yield "as it is", "", pooled(pooling)
    for name in others:
        yield f"{name} pooling", "pooling", pooled(name)
    for prefix in PREFIXES:
        yield f"prefix {prefix!r}", "prefix", prefixed(prefix)
    yield f"cut at {LIMIT} tokens", "truncation", cut
    yield "bfloat16 weights", "precision", altered(lambda other: other.module().bfloat16())
    yield "int8 weights", "precision", altered(eight_bits)
    yield from _of_rows(pooled(pooling))


def _of_rows(base: Rows) -> Iterator[Variant]:
    yield "stored as bfloat16", "precision", lambda texts: base(texts).bfloat16().float()
    yield "half of the dimensions", "truncation", lambda texts: (rows := base(texts))[:, : rows.shape[1] // 2]
    yield "noise", "altered", lambda texts: _noisy(base(texts))


def _noisy(rows: Tensor) -> Tensor:
    rows = torch.nn.functional.normalize(rows)
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(0))
    return rows + 0.5 * torch.nn.functional.normalize(noise)


def of_words(path: Path, least: int = 2) -> Iterator[Variant]:
    """Yield averages of the vectors of words, and the same otherwise."""
    source = open_source(path)
    rows = torch.cat([batch.rows.float() for batch in source.batches(65_536)])
    beside = next(path.parent.glob("*index.parquet"), None)  # the words of an array lie in a file of their own
    words = source.names(list(range(len(rows)))) if beside is None else pq.read_table(beside)["index"].to_pylist()
    names = {name: place for place, name in enumerate(words)}

    def pooled(texts: list[str], *, pool: str = "mean", limit: int | None = None, table: Tensor = rows) -> Tensor:
        found = []
        for text in texts:
            known = [names[word] for word in text.lower().replace(":", " ").split() if word in names][:limit]
            inside = table[known] if len(known) >= least else torch.full((1, table.shape[1]), torch.nan)
            found.append(inside.amax(0) if pool == "max" else inside[0] if pool == "cls" else inside.mean(0))
        return torch.stack(found)

    yield "as it is", "", pooled
    yield "maximum", "pooling", lambda texts: pooled(texts, pool="max")

    def prefixed(prefix: str) -> Rows:
        return lambda texts: pooled([prefix + text for text in texts])

    for prefix in PREFIXES:
        yield f"prefix {prefix!r}", "prefix", prefixed(prefix)
    yield f"cut at {LIMIT // 2} words", "truncation", lambda texts: pooled(texts, limit=LIMIT // 2)
    yield "bfloat16 table", "precision", lambda texts: pooled(texts, table=rows.bfloat16().float())
    step = rows.abs().amax() / 31
    yield "table of six bits", "precision", lambda texts: pooled(texts, table=(rows / step).round() * step)
    yield from _of_rows(pooled)


def kept(model: str, about: str, texts: list[str], rows: Rows) -> Tensor:
    """Return vectors, made where the cache does not have them."""
    digest = hashlib.blake2b("\n".join([model, about, *texts]).encode(), digest_size=8).hexdigest()
    path = CACHE / f"{model}-{digest}.npy"
    if not path.is_file():
        CACHE.mkdir(parents=True, exist_ok=True)
        found = rows(texts)
        partial = path.with_suffix(f".{os.getpid()}.npy")
        np.save(partial, found.numpy())
        partial.replace(path)
    return torch.from_numpy(np.load(path, allow_pickle=False))


def judged(model: str, corpus: str, texts: list[str], variants: Iterator[Variant]) -> Iterator[dict[str, Any]]:
    """Yield what each variant of a model is called beside the model as it is."""
    base: Tensor | None = None
    for about, name, make in variants:
        rows = kept(model, about, texts, make)
        base = rows if base is None else base
        with tempfile.TemporaryDirectory() as folder:
            sides = Path(folder, "left.npy"), Path(folder, "right.npy")
            for path, each in zip(sides, (base, rows), strict=True):
                np.save(path, each.numpy())
            found = check_pair(*sides, on_error="raise")
        known = {
            key: found.number(key) for key in ("centred_cosine", "offset_ratio", "overlap_ratio", "residual_ratio")
        }
        lengths = [found.number("mean_length", side=side) for side in ("left", "right")]
        yield {
            "model": model,
            "texts": corpus,
            "done": about,
            "name": name,
            "verdict": found.verdict,
            "told": found.cause,
            "right": graded(name, found.verdict, found.cause),
            **{key: None if value is None else round(value, 4) for key, value in known.items()},
            "mean_lengths": [None if each is None else round(each, 3) for each in lengths],
            "recall_1": found.number("recall_ratio", k="1"),
            "distance_0.9": found.number("distance", q="0.9"),
            "same": found.number("same_ratio"),
        }


def graded(name: str, verdict: str, told: str) -> str:
    """Return whether what was told is right, wrong, or says less than there is."""
    if not name:
        return "right" if verdict == "identical" else "wrong"
    if told == name:
        return "right"
    unsure = told in ("", "altered", "recipe", "configuration") or verdict in ("alignable", "weak")
    return "withheld" if unsure else "wrong"


def main() -> None:
    """Encode, judge, and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--brown", type=Path, required=True, help="folder of the Brown corpus")
    parser.add_argument("--wordnet", type=Path, default=WORDNET)
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2")
    parser.add_argument("--smollm2", type=Path, help="folder of SmolLM2-135M")
    parser.add_argument("--glove", type=Path, help="file of GloVe vectors")
    parser.add_argument("--word2vec", type=Path, help="file of word2vec vectors")
    parser.add_argument("--only", nargs="+", help="names of models")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the part `names` into this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    corpora = {
        "brown": chosen(sources.brown(arguments.brown).texts, 0),
        "glosses": chosen(sources.glosses(arguments.wordnet).texts, 1),
    }
    models: dict[str, tuple[str, Callable[[], Iterator[Variant]] | None]] = {
        "mpnet": ("brown", arguments.mpnet and (lambda: of_model(arguments.mpnet, "mean", ("cls", "max", "last")))),
        "glove": ("brown", arguments.glove and (lambda: of_words(arguments.glove))),
        "smollm2-mean": (
            "glosses",
            arguments.smollm2 and (lambda: of_model(arguments.smollm2, "mean", ("last", "max"))),
        ),
        "smollm2-last": (
            "glosses",
            arguments.smollm2 and (lambda: of_model(arguments.smollm2, "last", ("mean", "max"))),
        ),
        "word2vec": ("glosses", arguments.word2vec and (lambda: of_words(arguments.word2vec))),
    }
    lines: list[dict[str, Any]] = []
    for model, (corpus, variants) in models.items():
        if variants is not None and (not arguments.only or model in arguments.only):
            for line in judged(model, corpus, corpora[corpus], variants()):
                lines.append(line)
                print(json.dumps(line), flush=True)
    counts = {grade: sum(line["right"] == grade for line in lines) for grade in ("right", "wrong", "withheld")}
    print(json.dumps(counts))
    if arguments.write:
        path: Path = arguments.write
        held = json.loads(path.read_text(encoding="utf-8"))
        date = datetime.now(timezone.utc).date().isoformat()
        held["parts"]["names"] = {
            "date": date,
            "torch": torch.__version__.split("+")[0],
            "counts": counts,
            "lines": lines,
        }
        write_whole(path, (json.dumps(held, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
