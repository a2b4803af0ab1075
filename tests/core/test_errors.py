"""The error tree."""

from __future__ import annotations

import inspect
import re

import pytest

from embedwatch.core import errors

LEAVES = {
    name: cls
    for name, cls in vars(errors).items()
    if inspect.isclass(cls) and issubclass(cls, errors.EmbedwatchError) and cls is not errors.EmbedwatchError
}


def test_every_error_has_our_root_and_one_of_pythons() -> None:
    assert len(LEAVES) >= 5
    for cls in LEAVES.values():
        assert cls.__mro__[1] is errors.EmbedwatchError
        assert cls.__mro__[2] is Exception or issubclass(cls, ValueError | TypeError | RuntimeError)
        assert issubclass(cls, ValueError | TypeError | RuntimeError)


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = dict(re.findall(r"[├└]── (\w+)\s+(\w+)", errors.__doc__ or ""))
    assert drawn == {name: cls.__bases__[1].__name__ for name, cls in LEAVES.items()}


def test_every_error_is_exported() -> None:
    assert set(LEAVES) | {"EmbedwatchError", "did_you_mean"} == set(errors.__all__)


@pytest.mark.parametrize(
    ("word", "answer"),
    [("nroms", 'did you mean "norms"?'), ("norm", 'did you mean "norms"?'), ("spectrum", ""), ("", "")],
)
def test_did_you_mean_names_the_nearest_or_nothing(word: str, answer: str) -> None:
    assert errors.did_you_mean(word, ["defects", "norms"]) == answer


def test_did_you_mean_takes_an_empty_list() -> None:
    assert errors.did_you_mean("norms", []) == ""
