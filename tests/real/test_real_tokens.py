"""Tokens, scale and layers of real models: lists that were checked by hand, and rows planted in their tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from embedwatch.core.boundary import Boundary
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.verdict import Verdict
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading import load_subject
from embedwatch.loading.live import MatrixRows
from embedwatch.loading.suspects import find_suspects

pytestmark = [pytest.mark.real, pytest.mark.slow]

TEXTS = (
    "The library reads the headers of a file before its rows.",
    "A river that freezes in winter carries less sand to the sea.",
    "Return the number of items in the list, or zero where it is empty.",
    "She asked whether the train to the coast still ran on Sundays.",
) * 4
PLACES = ("scale", "vocabulary", "layers")


@cache
def examined(model: Path, texts: tuple[str, ...] = ()) -> dict[str, tuple[dict[str, Any], dict[str, Verdict], Any]]:
    found = {}
    inquiry = Inquiry(load_subject(model), texts=texts)
    for judged in diagnose(inquiry, places=PLACES, exhibits=True, boundary=Boundary(on_error="raise")):
        numbers = {measurement.name: measurement.number for measurement in judged.snapshot}
        exhibits = {exhibit.name: exhibit for exhibit in judged.exhibits}
        found[judged.snapshot.space.place] = numbers, {verdict.check: verdict for verdict in judged.verdicts}, exhibits
    return found


def accused(model: Path) -> set[str]:
    return {
        verdict.check
        for _, verdicts, _ in examined(model).values()
        for verdict in verdicts.values()
        if verdict.status in ("warn", "fail")
    }


def column(exhibit: Exhibit, name: str) -> list[Any]:
    place = exhibit.columns.index(name)
    return [row[place] for row in exhibit.rows]


def test_healthy_models_are_accused_of_nothing(minilm: Path, e5: Path, smollm2: Path) -> None:
    assert accused(minilm) == accused(e5) == accused(smollm2) == set()


def test_no_real_model_looks_fresh(minilm: Path, e5: Path, smollm2: Path) -> None:
    for model in (minilm, e5, smollm2):
        numbers = examined(model)["scale"][0]
        assert (numbers["fresh_signs_ratio"], numbers["fresh_layers_ratio"]) == (0, 0)


def test_smollm2_never_saw_names_from_its_tokenizers_code(smollm2: Path) -> None:
    numbers, _, exhibits = examined(smollm2)["vocabulary"]
    assert numbers["untrained_tokens"] < 40
    assert numbers["unreachable_tokens_ratio"] == 0
    first = column(exhibits["untrained_tokens"], "token")[:32]
    assert {"<gh_stars>", "<jupyter_code>", "ĠInstancePreprocess", "ManagementPlaneProtection"} <= set(first[:16])
    assert {"MetaInfoClass", "swigfaiss", "kinesisfirehose", "deliverystream", "Ġpvproperty"} <= set(first)


def test_smollm2_cannot_repeat_them(smollm2: Path) -> None:
    inquiry = Inquiry(load_subject(smollm2), deep=True)
    (judged,) = diagnose(inquiry, only=("token_repeat",), places=("vocabulary",), boundary=Boundary(on_error="raise"))
    numbers = {measurement.name: measurement.number or 0.0 for measurement in judged.snapshot}
    assert numbers["unrepeatable_tokens"] == numbers["repeat_asked_tokens"] == 16
    assert numbers["suspect_repeat_probability"] < 0.002
    assert numbers["ordinary_repeat_probability"] > 0.5


def test_minilm_lacks_scripts_and_what_its_tokenizer_cuts_apart(minilm: Path) -> None:
    numbers, _, exhibits = examined(minilm)["vocabulary"]
    assert numbers["known_unused_tokens"] == 994
    assert 0.002 < numbers["untrained_tokens_ratio"] < 0.015
    assert 0.01 < numbers["unreachable_tokens_ratio"] < 0.013
    table = exhibits["untrained_tokens"]
    named = list(zip(column(table, "token"), column(table, "kind"), column(table, "reachable"), strict=True))[:100]
    assert all(not token.lstrip("#").isascii() for token, kind, hit in named if kind == "ordinary" and hit == "yes")
    assert {"##後", "##劉", "##？"} <= {token for token, _, hit in named if hit == "no"}


class Planted:
    """A real model with some rows of its table replaced."""

    def __init__(self, model: Path, rows: list[int], values: Tensor) -> None:
        self._subject = load_subject(model)
        table = self._subject.token_table()
        self._table = table.read(0, len(table)).float()
        self._table[rows] = values

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    def token_table(self) -> MatrixRows:
        return MatrixRows(self._table)


@pytest.mark.parametrize(("name", "how"), [("minilm", "drawn"), ("minilm", "mean"), ("smollm2", "drawn")])
def test_planted_rows_are_among_the_first_candidates(name: str, how: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    table = load_subject(model).token_table()
    generator = torch.Generator().manual_seed(0)
    rows = sorted((torch.randperm(20_000, generator=generator)[:20] + 5_000).tolist())
    values = 0.02 * torch.randn(20, table.dimension, generator=generator)
    if how == "mean":
        values = table.read(0, len(table)).float().mean(0) + 1e-4 * values
    assert set(rows) <= set(find_suspects(Planted(model, rows, values)).ranked()[:60])


def test_the_stream_of_smollm2_is_massive_and_not_alike(smollm2: Path) -> None:
    numbers, verdicts, _ = examined(smollm2, TEXTS)["layers"]
    assert numbers["massive_layers"] > 5
    assert 0.3 < numbers["alike_distance_min"] < 0.8
    assert {verdict.status for verdict in verdicts.values()} == {"ok"}


def test_what_enters_real_models(minilm: Path, smollm2: Path) -> None:
    scale = examined(smollm2)["scale"][0]
    assert scale["lookup_scale_power"] == pytest.approx(0, abs=1e-3)
    assert scale["position_rms"] is None
    balance = examined(minilm)["scale"][0]["lookup_position_ratio"]
    assert balance == pytest.approx(2.25, abs=0.05)
