"""Overlap of neighbours between uses of one model, by each way to count it: which of them gives which figure.

Run from the root of the repository, on a machine with apt:

    python -m benchmarks.alignment_ladder [--only synopses …] [--wordnet FOLDER] [--write FILE]

A study of the same models had 0.994 for bfloat16, 0.822 for int8, 0.663 for CLS instead of mean pooling and 0.606 for
the two prefixes of e5, on 2,000 one-line package descriptions of which it is not known which. Here several draws and
sorts of texts are encoded, and the 10 nearest counted with the row itself among them and without, from either side.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.detection import texts as sources
from benchmarks.detection.data import WORDNET
from benchmarks.detection.vectors import _folder, encoder
from embedwatch import load_subject
from embedwatch.geometry.pairs import unit
from embedwatch.whole_files import write_whole

STUDY = {"bfloat16": 0.994, "int8": 0.822, "cls": 0.663, "prefix": 0.606}
WITHIN = 0.02
COUNT = 2_000
COUNT_E5 = 1_000
K = 10
LEAST_WORDS = 4
MORE = re.compile(r"\s[-(].*")
"""What stands behind the subject of a synopsis, as in `library for X - development files`."""


def synopses(*, least: int = LEAST_WORDS, once: bool = False, seed: int = 0) -> list[str]:
    """Return descriptions of Debian packages, each once.

    Args:
        least: words of one.
        once: leave out those that differ from another only behind a dash or bracket, as `- documentation`.
        seed: of the draw.
    """
    told = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    every = sorted({line[13:].strip() for line in told.splitlines() if line.startswith("Description: ")})
    if once:
        every = list({MORE.sub("", text).lower(): text for text in every}.values())
    random.Random(seed).shuffle(every)  # noqa: S311  # no secret
    return [text for text in every if len(text.split()) >= least][:COUNT]


def overlap(queries: Tensor, gallery: Tensor, *, own: bool) -> float:
    """Return the mean share of the gallery's own 10 nearest that queries find in it. Shape: (N, D), (N, D)."""
    found = []
    for rows in (queries, gallery):
        cosines = rows @ gallery.T
        if not own:
            cosines.fill_diagonal_(-2)
        found.append(cosines.topk(K, dim=1).indices)
    return float((found[0][:, :, None] == found[1][:, None, :]).any(2).double().mean())


def counted(left: Tensor, right: Tensor) -> dict[str, float]:
    """Return the overlap by each way to count: left is the model as it is, right the variant."""
    u, v = unit(left), unit(right)
    ways: dict[str, float] = {}
    for own in (False, True):
        name = "own_counted" if own else "own_left_out"
        ways[f"{name}_right_searches"] = round(overlap(v, u, own=own), 4)
        ways[f"{name}_left_searches"] = round(overlap(u, v, own=own), 4)
    cosines = u @ v.T
    others = cosines[~torch.eye(len(u), dtype=torch.bool)]
    return {
        **ways,
        "cosine": round(float(cosines.diagonal().mean()), 4),
        "of_two_items": round(float(others.mean()), 4),
        "of_two_items_as_it_is": round(float((u @ u.T)[~torch.eye(len(u), dtype=torch.bool)].mean()), 4),
    }


def variants(texts: list[str], *, every: bool) -> dict[str, dict[str, float]]:
    """Return the counts of MiniLM with CLS pooling, and of every other variant where that is asked for."""
    subject = load_subject(_folder("minilm"))
    base = subject.encode(texts)
    found = {"cls": counted(base, subject.encode(texts, pooling="cls"))}
    if every:
        found["bfloat16"] = counted(base, encoder("minilm", "bf16").encode(texts).vectors.float())
        eight = encoder("minilm")
        torch.ao.quantization.quantize_dynamic(eight.backbone.part, {torch.nn.Linear}, inplace=True)
        found["int8"] = counted(base, eight.encode(texts).vectors)
        e5 = load_subject(_folder("e5"))
        sides = [e5.encode(texts[:COUNT_E5], prefix=prefix) for prefix in ("query: ", "passage: ")]
        found["prefix"] = counted(sides[1], sides[0])  # on the right the queries
    return found


def main() -> None:
    """Encode each set of texts, and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--wordnet", type=Path, default=WORDNET, help="folder of WordNet, with data.noun")
    parser.add_argument("--only", nargs="+", help="names of the sets")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the part `ladder` into this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started, parts = time.process_time(), {}
    sets: dict[str, Callable[[], list[str]]] = {
        "synopses": synopses,
        "synopses_of_any_length": lambda: synopses(least=1, seed=1),
        "synopses_each_subject_once": lambda: synopses(once=True, seed=2),
        "glosses": lambda: sources.glosses(arguments.wordnet).texts[:COUNT],
        "docstrings": lambda: sources.stdlib().texts[:COUNT],
    }
    for name in arguments.only or sets:
        parts[name] = variants(sets[name](), every=name == "synopses")
        print(name, json.dumps(parts[name]), flush=True)
    part: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{os.cpu_count()} cores",
        "torch": torch.__version__.split("+")[0],
        "cpu_seconds": round(time.process_time() - started),
        "rows": {"minilm": COUNT, "e5": COUNT_E5},
        "study": STUDY,
        "sets": parts,
    }
    if arguments.write:
        path: Path = arguments.write
        held = json.loads(path.read_text(encoding="utf-8"))
        held["parts"]["ladder"] = part
        write_whole(path, (json.dumps(held, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
