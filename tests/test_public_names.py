"""The names that `import embedwatch` promises, and that they cost nothing until used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import embedwatch

SOURCE = Path(embedwatch.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", embedwatch.__all__)
def test_the_name_leads_to_what_its_home_defines(name: str) -> None:
    value = getattr(embedwatch, name)
    if name != "__version__":
        assert value.__name__ == name
        assert value.__module__.startswith("embedwatch.")
        assert value.__doc__


def test_the_three_lists_agree() -> None:
    """What is imported for type checkers, what is imported when used, and what is promised."""
    for_checkers = {
        alias.name: node.module
        for block in ast.parse(SOURCE).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert for_checkers == embedwatch._HOME_OF
    assert set(embedwatch.__all__) == {*for_checkers, "__version__"}
    assert dir(embedwatch) == sorted(embedwatch.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = embedwatch.no_such_name
    assert not hasattr(embedwatch, "__wrapped__")


def test_importing_costs_no_torch() -> None:
    code = "import embedwatch, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]
