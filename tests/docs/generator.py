"""Loads docs/generate.py."""

from __future__ import annotations

from types import ModuleType

from tests.checkout import ROOT, load_script

DOCS = ROOT / "docs"


def load() -> ModuleType:
    return load_script(DOCS / "generate.py")
