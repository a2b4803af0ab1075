"""docs/canary.md names what the check names."""

from __future__ import annotations

import re
from pathlib import Path

import embedwatch.checks.canary as check
from tests.docs.generator import DOCS

CAUSE = re.compile(r'Cause\(\s*"([^"]+)"')


def test_every_cause_stands_in_the_table_of_the_page() -> None:
    causes = set(CAUSE.findall(Path(check.__file__).read_text(encoding="utf-8")))
    table = (
        DOCS.joinpath("canary.md").read_text(encoding="utf-8").split("## What the verdict names")[1].split("\n## ")[0]
    )
    assert len(causes) == 11
    assert causes == set(re.findall(r"^\| `([^`]+)` \|", table, re.M))
