"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

import embedwatch
import embedwatch_model

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def module_names() -> list[str]:
    found = []
    for package in (embedwatch, embedwatch_model):
        found.append(package.__name__)
        found += sorted(each.name for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
    return found


def examples(module: ModuleType) -> Iterator[doctest.DocTest]:
    yield from (test for test in doctest.DocTestFinder(exclude_empty=True).find(module) if test.examples)


@pytest.mark.parametrize("name", module_names())
def test_examples_run(name: str) -> None:
    if name.endswith("__main__"):
        return  # importing it runs the command
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report: list[str] = []
    for test in examples(importlib.import_module(name)):
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


def test_there_are_examples_and_a_wrong_one_is_noticed() -> None:
    names = [test.name for test in examples(importlib.import_module("embedwatch_model.embedding"))]
    assert names == ["embedwatch_model.embedding.TokenEmbedding"]
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner(optionflags=FLAGS).run(wrong, out=lambda text: None).failed == 1


def test_every_statistic_has_an_example() -> None:
    from embedwatch.core import Statistic, registry

    for cls in registry.registered(Statistic).values():
        if cls.__module__.startswith("embedwatch."):
            assert ">>>" in (cls.__doc__ or ""), f"{cls.__qualname__} shows no example"
