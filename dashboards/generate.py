"""Writes rules, their tests, dashboards and manifests: `python dashboards/generate.py`, or `make generate`.

With `--check` it writes nothing, names the files that are stale, and exits 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from embedwatch.operations import deployment, files

FOLDERS = {"dashboards": files, "examples/deploy": deployment}
"""Where generated files lie in the checkout, and what makes them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="folder of the checkout")
    options = parser.parse_args(arguments)
    made = {f"{folder}/{name}": text for folder, make in FOLDERS.items() for name, text in make().items()}
    stale = [name for name, text in made.items() if _read(options.root / name) != text]
    if options.check:
        for name in stale:
            print(f"{options.root / name} is stale; run `make generate`", file=sys.stderr)
        return 1 if stale else 0
    for name, text in made.items():
        path = options.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path, "renewed" if name in stale else "is fresh")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
