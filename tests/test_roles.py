"""Checks hold for some sorts of places: what is normal inside a model is a defect of stored vectors."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from embedwatch import audit
from embedwatch.batch import VectorBatch
from embedwatch.core import Check, Limit, Metric, Provenance, Snapshot, Space, Statistic, ThresholdCheck
from embedwatch.core.check import LIVE, STORED
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import ROLES
from embedwatch.judging import Judge
from embedwatch.selection import Selection
from embedwatch.sources.labelled import LabelledSource
from embedwatch.sources.npy import NpySource
from embedwatch.sources.subject import EncodedTexts, TokenTable
from embedwatch.window import Window

ROWS, DIMENSION = 1_000, 64
MEASURED = ("dimensions", "distinct_rows", "duplicates", "mean_cosine", "norms", "spectrum", "validity")
Verdicts = dict[str, str]


def judged(rows: Tensor, role: str, *, step: int | None = None) -> Verdicts:
    """Status of every check that applies to rows at a place of this role."""
    window = Window([registered(Statistic)[name]() for name in MEASURED])
    window.update(VectorBatch(rows, torch.arange(len(rows)), source="rows"))
    snapshot = window.snapshot(Space("model", "place"), role=role, step=step)
    return {
        verdict.check: verdict.status
        for verdict in Judge([cls() for cls in registered(Check).values()]).judge(snapshot)
    }


def ill(found: Verdicts) -> Verdicts:
    return {name: status for name, status in found.items() if status in ("warn", "fail")}


def ordinary(rows: int = ROWS, *, seed: int = 0) -> Tensor:
    return torch.randn(rows, DIMENSION, generator=torch.Generator().manual_seed(seed))


def as_in_a_language_model(rows: int = ROWS) -> Tensor:
    """Rows with what is normal inside: a dimension of huge scale, and first tokens of huge norm in a few dimensions."""
    found = ordinary(rows)
    found[:, 7] = 40 + found[:, 7]
    found[::40, 7] = 3_000
    found[::40, 20] = -900
    return found


class Anywhere(ThresholdCheck, register=False):
    """Holds at every place."""

    name = "anywhere"
    metric = "number"
    limit = Limit(warn=1)


class Inside(Anywhere, register=False):
    """Holds inside a model."""

    name = "inside"
    roles = LIVE


class OfStored(Anywhere, register=False):
    """Holds for what is kept."""

    name = "of_stored"
    roles: ClassVar[tuple[str, ...]] = STORED


def snap(role: str) -> Snapshot:
    number = Metric("number", "A number.").measure(0.5)
    return Snapshot(Space("m", "p"), (number,), Provenance(time=0, rows=100, dimension=8, role=role))


@pytest.mark.parametrize("role", ["", *ROLES])
def test_a_check_without_roles_holds_everywhere(role: str) -> None:
    assert Anywhere().applies(snap(role))


@pytest.mark.parametrize("role", ["", *ROLES, "position"])
def test_a_check_holds_for_its_roles_alone_and_an_unknown_one_is_vectors(role: str) -> None:
    assert Inside().applies(snap(role)) == (role in ("token", "embedding", "hidden"))
    assert OfStored().applies(snap(role)) == (role in ("", "vectors", "table", "pooled"))


def test_what_is_normal_inside_a_model_is_a_defect_of_stored_vectors() -> None:
    rows = as_in_a_language_model()
    assert ill(judged(rows, "hidden")) == {}
    assert {"collapse", "dominating_dimension", "extreme_norms"} <= ill(judged(rows, "vectors")).keys()
    assert judged(rows, "") == judged(rows, "vectors")


@pytest.mark.parametrize("role", LIVE)
def test_ordinary_rows_are_sound_inside_a_model(role: str) -> None:
    found = judged(ordinary(), role)
    assert found["hidden_collapse"] == "ok"
    assert found.get("hidden_rank_collapse") == (None if role == "token" else "ok")
    assert ill(found) == {}


@pytest.mark.parametrize("noise", [0.01, 0.001, 0.0])
def test_one_vector_for_every_token_is_found_behind_huge_rows(noise: float) -> None:
    rows = as_in_a_language_model()
    usual = rows[1].clone()
    same = torch.ones(ROWS, dtype=torch.bool)
    same[::40] = False  # the first tokens keep their huge vectors
    rows[same] = usual + noise * torch.randn(int(same.sum()), DIMENSION, generator=torch.Generator().manual_seed(1))
    assert judged(rows, "hidden")["hidden_collapse"] == "fail"


def test_a_common_part_of_many_times_the_spread_is_a_collapse() -> None:
    rows = ordinary()
    assert judged(rows + 2, "hidden")["hidden_collapse"] == "ok"
    assert judged(rows + 4, "hidden")["hidden_collapse"] == "warn"
    assert judged(rows + 30, "hidden")["hidden_collapse"] == "fail"


def test_a_low_rank_is_found_behind_huge_dimensions_and_rows() -> None:
    rows = as_in_a_language_model()
    flat = ordinary(DIMENSION, seed=2)[:, :2] @ ordinary(2, seed=3) / DIMENSION**0.5
    low = ordinary() @ flat
    huge = torch.zeros_like(rows)
    huge[:, [7, 20]] = rows[:, [7, 20]]
    assert judged(low + huge, "hidden")["hidden_rank_collapse"] == "fail"
    assert judged(ordinary() + huge, "hidden")["hidden_rank_collapse"] == "ok"


def test_repeated_texts_are_not_a_low_rank() -> None:
    rows = ordinary(8).repeat(ROWS // 8, 1)
    found = judged(rows, "hidden")
    assert found["hidden_rank_collapse"] == "unknown"
    assert ill(found) == {}
    assert "duplicate_rows" not in found
    assert judged(rows, "vectors")["duplicate_rows"] == "fail"


def test_too_few_tokens_are_unknown() -> None:
    found = judged(ordinary(63), "hidden")
    assert {found[name] for name in ("hidden_collapse", "hidden_rank_collapse", "dead_dimensions")} == {"unknown"}


@pytest.mark.parametrize("role", ["vectors", "pooled", "embedding", "hidden"])
def test_zero_rows_and_rows_that_are_no_vectors_are_defects_everywhere(role: str) -> None:
    rows = ordinary()
    rows[10:30] = 0
    rows[40, 3] = torch.nan
    assert ill(judged(rows, role)).items() >= {"zero_rows": "fail", "nonfinite_rows": "fail"}.items()


def test_one_zero_row_of_a_table_is_its_padding() -> None:
    rows = ordinary()
    rows[0] = 0
    assert judged(rows, "table")["zero_rows"] == "ok"
    assert judged(rows, "pooled")["zero_rows"] == "warn"


def test_zero_rows_of_tokens_are_padding() -> None:
    rows = ordinary()
    rows[100:600] = 0
    assert judged(rows, "token")["zero_rows"] == "ok"
    assert judged(torch.zeros(ROWS, DIMENSION), "token", step=50)["zero_rows"] == "unknown"


def test_nothing_but_zeros_is_no_defect_at_the_first_step_of_a_layer() -> None:
    zeros = torch.zeros(ROWS, DIMENSION)
    assert judged(zeros, "hidden", step=1)["zero_rows"] == "unknown"
    assert judged(zeros, "hidden", step=2)["zero_rows"] == "fail"
    assert judged(zeros, "hidden")["zero_rows"] == "fail"
    assert judged(zeros, "vectors", step=1)["zero_rows"] == "fail"
    zeros[0] = 1
    assert judged(zeros, "hidden", step=1)["zero_rows"] == "fail"


ALIKE = ("hidden_collapse", "hidden_rank_collapse", "collapse", "rank_collapse", "null_directions", "dead_dimensions")


@pytest.mark.parametrize("role", [*LIVE, "pooled"])
@pytest.mark.parametrize("distinct", [1, 3, 9])
def test_input_that_is_all_alike_is_unknown_and_no_collapse(role: str, distinct: int) -> None:
    found = judged(ordinary(distinct).repeat_interleave(ROWS // distinct, 0), role)
    assert {found[name] for name in ALIKE if name in found} == {"unknown"}
    assert ill(found).keys() <= {"duplicate_rows"}


@pytest.mark.parametrize("distinct", [1, 3, 9])
def test_stored_vectors_that_are_all_alike_have_collapsed(distinct: int) -> None:
    rows = ordinary(1) + 1e-3 * ordinary(distinct, seed=1)
    found = judged(rows.repeat_interleave(ROWS // distinct, 0), "vectors")
    assert found["collapse"] == "fail"


def test_the_reason_says_how_many_rows_differ() -> None:
    window = Window([registered(Statistic)[name]() for name in MEASURED])
    window.update(VectorBatch(ordinary(3).repeat(100, 1)))
    (verdict,) = Judge([registered(Check)["hidden_collapse"]()]).judge(window.snapshot(Space("m", "p"), role="hidden"))
    assert verdict.reason == ("Inputs are alike, or one vector stands for many: 3 distinct rows of 300, needs 16.")


def test_who_names_a_check_keeps_what_it_weighs() -> None:
    chosen = Selection.live("vectors", only=["hidden_collapse"])
    assert {statistic.name for statistic in chosen.statistics} == {"dimensions", "distinct_rows"}


def test_sources_say_what_their_rows_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, ordinary().numpy())
    assert (TokenTable.role, EncodedTexts.role) == ("table", "pooled")
    assert audit(path).spaces[0].snapshot.provenance.role == "vectors"
    labels = tmp_path / "labels.txt"
    labels.write_text("a\n" * ROWS)
    source = NpySource.open(path)
    source.role = "pooled"
    assert audit(LabelledSource(source, labels)).spaces[0].snapshot.provenance.role == "pooled"
