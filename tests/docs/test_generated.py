"""The generated pages are fresh and leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from embedwatch.core import Check, Diagnostic, Limit, Metric, Sink, Source, Statistic
from embedwatch.drills.fault import Fault
from tests.docs.generator import DOCS, load

generate = load()
PAGES = {
    "metrics.md": (Statistic, Diagnostic),
    "checks.md": (Check,),
    "sources.md": (Source,),
    "sinks.md": (Sink,),
    "faults.md": (Fault,),
}


def read(page: str) -> str:
    return DOCS.joinpath(page).read_text(encoding="utf-8")


def headings(page: str) -> list[str]:
    return re.findall(r"^## (.+)$", read(page), flags=re.M)


@pytest.mark.parametrize("page", generate.pages())
def test_the_page_is_fresh(page: str) -> None:
    assert read(page) == generate.pages()[page], "run `make generate`"


@pytest.mark.parametrize("page", PAGES)
def test_every_class_has_its_section(page: str) -> None:
    added = list(generate.ADDED) if page == "metrics.md" else []
    assert headings(page) == [*(name for base in PAGES[page] for name in generate.ours(base)), *added]


def test_there_is_something_to_document() -> None:
    assert min(len(generate.ours(base)) for base in (Statistic, Check, Source, Sink)) >= 2


def test_every_metric_is_documented_with_its_help() -> None:
    text = read("metrics.md")
    for base in (Statistic, Diagnostic):
        for cls in generate.ours(base).values():
            for metric in cls.metrics:
                rows = [line for line in text.split("\n") if line.startswith(f"| `{metric.name}` |")]
                assert len(rows) == 1, metric.name
                assert metric.help.replace("|", "\\|") in rows[0]


def test_every_check_says_what_it_means_and_what_to_do() -> None:
    text = read("checks.md")
    for cls in generate.ours(Check).values():
        section = " ".join(text.split(f"\n## {cls.name}\n")[1].split("\n## ")[0].split())
        for said in (cls.meaning, cls.impact, cls.diagnosis, cls.mitigation):
            assert said.strip(), f"{cls.name} leaves one of its texts empty"
            assert " ".join(said.split()) in section


def test_every_command_and_option_is_documented() -> None:
    text = read("cli.md")
    found = {path: (command, context) for path, command, context in generate.commands()}
    assert headings("cli.md") == list(found)
    assert {"embedwatch", "embedwatch audit", "embedwatch list"} <= set(found)
    for path, (command, context) in found.items():
        section = text.split(f"\n## {path}\n")[1].split("\n## ")[0]
        for parameter in command.params:
            is_option = parameter.param_type_name == "option"
            for name in parameter.opts if is_option else parameter.get_usage_pieces(context):
                assert name in section, f"{path} {name}"
        assert command.help, f"{path} has no help"


@pytest.mark.parametrize("page", generate.pages())
def test_links_inside_a_page_lead_somewhere(page: str) -> None:
    for anchor in re.findall(r"\]\(#([^)]+)\)", read(page)):
        assert anchor in headings(page)


class TestCheckMode:
    def test_writes_fresh_pages_and_then_finds_nothing_stale(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert generate.main(["--folder", str(tmp_path)]) == 0
        assert generate.main(["--folder", str(tmp_path), "--check"]) == 0
        written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")}
        assert written == {*generate.pages(), *generate.alert_pages()}
        assert not capsys.readouterr().err

    @pytest.mark.parametrize("page", generate.pages())
    def test_names_the_page_that_is_stale_and_leaves_it(
        self, tmp_path: Path, page: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name, text in {**generate.pages(), **generate.alert_pages()}.items():
            tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
            tmp_path.joinpath(name).write_text(text, encoding="utf-8")
        tmp_path.joinpath(page).write_text("old", encoding="utf-8")
        assert generate.main(["--folder", str(tmp_path), "--check"]) == 1
        assert re.findall(r"(\w+\.md) is stale", capsys.readouterr().err) == [page]
        assert tmp_path.joinpath(page).read_text(encoding="utf-8") == "old"

    def test_a_missing_page_is_stale(self, tmp_path: Path) -> None:
        assert generate.main(["--folder", str(tmp_path), "--check"]) == 1


class Documented(Check, register=False):
    """Looks at | one thing.

    A paragraph
    in two lines.

    Range: 0 to 1,
        and no more.
    Empty: `None`.

    Args:
        never: shown.

    References:
        Somebody 2020.

    Example:
        >>> 1
        1
    """

    name = "documented"
    limit = Limit(fail=1.5, side="below")

    def evaluate(self, *arguments: Any) -> Any:
        return None


class TestRendering:
    def test_a_docstring_becomes_paragraphs_and_facts(self) -> None:
        paragraphs, facts = generate.explain(Documented)
        assert paragraphs == ["A paragraph\nin two lines."]
        assert [(label, " ".join(text.split())) for label, text in facts] == [
            ("Range", "0 to 1, and no more."),
            ("Empty", "`None`."),
            ("References", "Somebody 2020."),
        ]

    def test_limits_say_their_side(self) -> None:
        assert generate._limits(Documented) == "fail ≤ 1.5"

    def test_a_bar_does_not_end_a_cell(self) -> None:
        table = generate._metric_table([Metric("x", "P(a | b).")])
        assert table.split("\n")[2].replace("\\|", "").count("|") == 7

    @pytest.mark.parametrize(
        ("size", "text"), [(999, "999 bytes"), (1_000, "1 kB"), (2_360_000, "2.36 MB"), (5 * 10**9, "5e+03 MB")]
    )
    def test_sizes(self, size: int, text: str) -> None:
        class Sized:
            def memory(self, dimension: int) -> int:
                return size

        assert generate._size(Sized) == text
