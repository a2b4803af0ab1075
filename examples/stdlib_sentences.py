"""Write real English sentences to a file, one a line: the first sentences of the standard library's docstrings.

    python examples/stdlib_sentences.py sentences.txt --limit 1000

They come with every Python, need no download, and are about one subject, as the texts of a real service are. The files
are parsed, not imported. The same Python gives the same sentences in the same order.
"""

from __future__ import annotations

import argparse
import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LEAST_WORDS = 4
LEFT_OUT = {"test", "tests", "idle_test", "idlelib", "site-packages", "dist-packages", "lib2to3"}


def main() -> None:
    """Read the arguments, write the file."""
    parser = argparse.ArgumentParser(description="Write the first sentences of the standard library's docstrings.")
    parser.add_argument("out", type=Path, help="file to write, one sentence a line")
    parser.add_argument("--limit", type=int, default=0, help="at most so many, spread over the whole library")
    options = parser.parse_args()
    found = sentences(Path(sysconfig.get_path("stdlib")))
    if options.limit > 0:
        found = spread(found, options.limit)
    options.out.write_text("\n".join(found) + "\n", encoding="utf-8")
    print(f"{options.out}: {len(found):,} sentences")


def sentences(library: Path) -> list[str]:
    """Return the distinct first sentences of all docstrings below a folder, ordered by file and line."""
    found: dict[str, None] = {}
    for path in sorted(library.rglob("*.py")):
        if LEFT_OUT.isdisjoint(path.relative_to(library).parts):
            found.update(dict.fromkeys(filter(None, map(first_sentence, docstrings(path)))))
    return list(found)


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a file: of the module, its classes and functions."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # templates and files in an encoding that is not declared
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def first_sentence(text: str) -> str:
    r"""Return the first sentence of a text on one line, or nothing where it has none of a few words.

    Example:
        >>> first_sentence("Return the node\nthat was asked for. Never raises.")
        'Return the node that was asked for.'
        >>> first_sentence("spam(eggs)")
        ''
    """
    paragraph = re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0]
    sentence = re.match(r"[A-Z].*?(?<!e\.g)(?<!i\.e)[.!?](?=\s|$)", " ".join(paragraph.split()))
    return sentence[0] if sentence and len(sentence[0].split()) >= LEAST_WORDS else ""


def spread(items: list[str], limit: int) -> list[str]:
    """Return at most `limit` items at even distances."""
    count = min(limit, len(items))
    return [items[index * len(items) // count] for index in range(count)]


if __name__ == "__main__":
    main()
