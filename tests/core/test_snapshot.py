"""Space, Provenance, Snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedwatch.core import Histogram, InputError, Metric, Provenance, Snapshot, Space
from embedwatch.core.snapshot import SCHEMA

NORM = Metric("norm_mean", "Mean Euclidean norm.")
BY_GROUP = Metric("cohesion", "Mean cosine within a group.", labels=("group",))
SIZES = Metric("norms", "Norms.", kind="histogram")


def snapshot() -> Snapshot:
    return Snapshot(
        Space("faq", "pooled", "de", head="3"),
        (
            NORM.measure(1.25),
            BY_GROUP.measure(0.5, group="水果"),
            BY_GROUP.measure(None, group="b"),
            SIZES.measure(Histogram((1.0,), (2, 1), 4.0, 3)),
        ),
        Provenance(
            time=1_796_000_000.5,
            rows=3,
            dimension=8,
            step=12,
            fingerprint="53aa5117",
            coverage={"rows": 3},
            versions={"torch": "2.13.0"},
            notes=("2 texts were cut.",),
        ),
    )


class TestSpace:
    def test_head_is_a_label_only_where_set(self) -> None:
        assert Space("m", "p").labels() == {"model": "m", "place": "p", "segment": "all"}
        assert Space("m", "p", head="0").labels()["head"] == "0"
        assert str(Space("m", "p", "de", "0")) == "m/p/segment=de/head=0"

    def test_can_be_a_key_and_be_sorted_with_its_like(self) -> None:
        spaces = [Space("b", "x"), Space("a", "y"), Space("a", "x")]
        assert [str(space) for space in sorted(spaces)] == ["a/x", "a/y", "b/x"]
        assert len({*spaces, Space("a", "x")}) == 3


class TestSnapshot:
    def test_finds_measurements_by_name_and_labels(self) -> None:
        snap = snapshot()
        assert snap.number("norm_mean") == 1.25
        assert snap.number("cohesion", group="水果") == 0.5
        assert snap.number("cohesion", group="b") is None
        assert snap.get("cohesion", group="b") is not None
        assert snap.get("cohesion", group="c") is None
        assert snap.get("nothing") is None
        assert snap.number("norms") is None
        assert [m.name for m in snap] == ["norm_mean", "cohesion", "cohesion", "norms"]

    def test_survives_json_as_mapping_and_as_text(self) -> None:
        snap = snapshot()
        text = json.dumps(snap.to_json(), allow_nan=False)
        for again in (Snapshot.from_json(text), Snapshot.from_json(snap.to_json())):
            assert again.to_json() == snap.to_json()
            assert again.space == snap.space
            assert again.provenance == snap.provenance

    def test_says_the_time_for_people_too(self) -> None:
        assert snapshot().to_json()["provenance"]["time_text"] == "2026-11-30T00:53:20+00:00"

    def test_refuses_a_schema_of_the_future(self) -> None:
        with pytest.raises(InputError, match=f"must be {SCHEMA}, got 99"):
            Snapshot.from_json({**snapshot().to_json(), "schema": 99})

    @pytest.mark.parametrize("missing", ["schema", "space", "provenance", "measurements"])
    def test_refuses_a_snapshot_with_a_part_missing(self, missing: str) -> None:
        data = snapshot().to_json()
        del data[missing]
        with pytest.raises(InputError, match="not a snapshot"):
            Snapshot.from_json(data)

    @pytest.mark.parametrize("text", ["", "{", "null", "[]", "3", '"x"', "{}", "\ud800"])
    def test_refuses_other_text_in_one_kind_of_error(self, text: str) -> None:
        with pytest.raises(InputError):
            Snapshot.from_json(text)

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("space",), []),
            (("space", "colour"), "red"),
            (("provenance",), "x"),
            (("provenance", "coverage"), "ab"),
            (("measurements",), 7),
            (("measurements",), ["x"]),
            (("measurements", 0, "labels"), "ab"),
            (("measurements", 0, "name"), "Not Snake"),
            (("measurements", 3, "value", "n"), 99),
            (("measurements", 3, "value", "sum"), "many"),
        ],
        ids=str,
    )
    def test_refuses_hostile_parts_in_one_kind_of_error(self, path: tuple[Any, ...], value: Any) -> None:
        data = json.loads(json.dumps(snapshot().to_json()))
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        with pytest.raises(InputError):
            Snapshot.from_json(data)

    @given(
        labels=st.text(max_size=20),
        values=st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.integers(), max_size=5),
    )
    def test_any_labels_and_numbers_survive_json(self, labels: str, values: list[float | int | None]) -> None:
        measurements = tuple(BY_GROUP.measure(value, group=labels) for value in values)
        snap = Snapshot(Space(labels, "p"), measurements, Provenance(time=0.0, rows=len(values)))
        assert Snapshot.from_json(json.dumps(snap.to_json())) == Snapshot.from_json(snap.to_json())
        assert Snapshot.from_json(json.dumps(snap.to_json())).to_json() == snap.to_json()


def test_the_reference_that_rows_were_compared_with_goes_through_json_where_there_is_one() -> None:
    compared = Snapshot(Space("m", "p"), (), Provenance(time=1.0, rows=1, reference="abc"))
    assert Snapshot.from_json(compared.to_json()) == compared
    assert "reference" not in Snapshot(Space("m", "p"), (), Provenance(time=1.0, rows=1)).to_json()["provenance"]
