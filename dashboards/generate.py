"""Writes rules, their tests and dashboards from the checks: `python dashboards/generate.py`, or `make generate`.

With `--check` it writes nothing, names the files that are stale, and exits 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from embedwatch.operations import files


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="where the files lie")
    options = parser.parse_args(arguments)
    stale = [name for name, text in files().items() if _read(options.folder / name) != text]
    if options.check:
        for name in stale:
            print(f"{options.folder / name} is stale; run `make generate`", file=sys.stderr)
        return 1 if stale else 0
    for name, text in files().items():
        path = options.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path, "renewed" if name in stale else "is fresh")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
