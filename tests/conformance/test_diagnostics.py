"""Every registered Diagnostic delivers what it declares."""

from __future__ import annotations

import copy
import json

import pytest

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.registry import registered

DIAGNOSTICS = registered(Diagnostic)
OWN = [name for name, cls in DIAGNOSTICS.items() if cls.examines != "subject"]
"""Those that take parts of a model in a class of their own; a whole Subject comes with the tests of each."""


@pytest.mark.parametrize("name", OWN)
def test_delivers_what_it_declares(name: str) -> None:
    diagnostic = DIAGNOSTICS[name]()
    declared = {metric.name for metric in diagnostic.metrics}
    delivered = set()
    for subject in diagnostic.examples():
        before = repr(copy.deepcopy(subject))
        measurements, exhibits = diagnostic.examine(subject)
        keys = [measurement.key for measurement in measurements]
        assert len(keys) == len(set(keys)), keys
        assert repr(subject) == before
        json.dumps([[each.to_json() for each in found] for found in (measurements, exhibits)], allow_nan=False)
        delivered |= {measurement.name for measurement in measurements}
    assert delivered == declared
