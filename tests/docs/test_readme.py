"""What README.md and docs/*.md show is run: Python blocks as they stand, console blocks against the real commands."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from tests.checkout import ROOT
from tests.docs.generator import DOCS, load

PAGES = sorted(path for path in (ROOT / "README.md", *DOCS.rglob("*.md")) if path.exists())


class Block(NamedTuple):
    """A fenced block: what stands after the fence, its text, and the line of its first line."""

    language: str
    text: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a Markdown text; a fence may be indented, as in a list."""
    for match in re.finditer(r"^([ ]*)(`{3,})[ ]*([\w-]*)[^\n`]*\n(.*?)^\1\2[ ]*$", text, flags=re.M | re.S):
        indent, _, language, body = match.groups()
        lines = (line.removeprefix(indent) for line in body.split("\n"))
        yield Block(language, "\n".join(lines), text.count("\n", 0, match.start(4)) + 1)


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the arguments of each `$ embedwatch …` in a console block; a backslash continues the line."""
    for line in re.sub(r"\\\n\s*>?", " ", block.text).split("\n"):
        if line.startswith("$ "):
            for words in simple_commands(line[2:]):
                while words and re.fullmatch(r"\w+=\S*", words[0]):  # environment
                    words = words[1:]
                if words and words[0] == "embedwatch":
                    yield words[1:]


def simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command between pipes and the like; what stands in quotes is a word."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;"):
            yield words
            words = []
        else:
            words.append(word)


def stale(arguments: list[str]) -> list[str]:
    """Return what a documented command line asks for that the commands do not have."""
    known = {path: (command, context) for path, command, context in load().commands()}
    path, rest = "embedwatch", arguments
    while rest and isinstance(known[path][0], click.Group):
        if rest[0].startswith("-"):
            break
        path, rest = f"{path} {rest[0]}", rest[1:]
        if path not in known:
            return [f"no command {path!r}"]
    command, context = known[path]
    options = {name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)}
    asked = [word.split("=", 1)[0] for word in rest if re.match(r"--?[A-Za-z]", word)]
    return [f"{path} has no option {name}" for name in asked if name not in options]


def run(path: Path) -> None:
    """Execute the Python blocks of a page in order, in one namespace; an error names the page's own line."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, str(path), "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_console_blocks_use_what_exists(page: Path) -> None:
    found = [
        f"line {block.line}: {fault}"
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language == "console"
        for command in commands(block)
        for fault in stale(command)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_fence_is_closed_and_every_local_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^\s*```", text, flags=re.M)) % 2 == 0
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert page.parent.joinpath(target).exists(), target


class TestTheTestItself:
    def test_blocks_are_found_with_their_lines(self) -> None:
        text = "a\n```python\nx = 1\n```\n\n- b\n  ```console\n  $ embedwatch\n  ```\n````\n```python\n```\n````\n"
        assert [(b.language, b.text, b.line) for b in blocks(text)] == [
            ("python", "x = 1\n", 3),
            ("console", "$ embedwatch\n", 8),
            ("", "```python\n```\n", 11),
        ]

    def test_blocks_of_a_page_share_a_namespace_and_name_their_line(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("```python\nx = 1\n```\n\n```python\nassert x == 1\nx / 0\n```\n")
        with pytest.raises(ZeroDivisionError) as caught:
            run(page)
        assert caught.traceback[-1].lineno + 1 == 7

    @pytest.mark.parametrize(
        ("line", "arguments"),
        [
            ("$ embedwatch audit x.npy --json | jq .", [["audit", "x.npy", "--json"]]),
            ("$ HF_HUB_OFFLINE=1 embedwatch list", [["list"]]),
            ("$ make demo && embedwatch list  # all", [["list"]]),
            ("$ embedwatch audit \\\n    x.npy", [["audit", "x.npy"]]),
            ("$ cat x | jq '.[] | .y' | embedwatch list; ls", [["list"]]),
            ("embedwatch: no such file", []),
        ],
    )
    def test_commands_are_found(self, line: str, arguments: list[list[str]]) -> None:
        assert list(commands(Block("console", line, 1))) == arguments

    @pytest.mark.parametrize(
        "arguments", [["aduit", "x.npy"], ["audit", "x.npy", "--no-such-option"], ["--no-such-option"], ["audit", "-Z"]]
    )
    def test_what_does_not_exist_is_found(self, arguments: list[str]) -> None:
        assert stale(arguments)

    @pytest.mark.parametrize("arguments", [["--help"], ["audit", "x.npy", "--help"], ["list", "statistics"]])
    def test_what_exists_passes(self, arguments: list[str]) -> None:
        assert stale(arguments) == []
