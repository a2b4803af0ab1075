"""The check of fixed texts names what happened to a space."""

from __future__ import annotations

import pytest
import torch

from embedwatch.canary import Canary
from embedwatch.checks.canary import Canary as CanaryCheck
from embedwatch.checks.canary import cause_of
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from tests.canary.spaces import DIMENSION, TEXTS, changed, letters
from tests.canary.spaces import Space as Provider

EXPECTED = {
    "unchanged": ("unchanged", "ok"),
    "jitter": ("unchanged", "ok"),
    "bfloat16": ("rounded", "warn"),
    "float16": ("rounded", "warn"),
    "int8": ("rounded", "warn"),
    "lengths": ("lengths", "warn"),
    "cut": ("truncated", "fail"),
    "padded": ("truncated", "fail"),
    "rotated": ("rotated", "fail"),
    "other": ("other model", "fail"),
    "wider": ("other model", "fail"),
    "some": ("some texts", "fail"),
    "order": ("order", "fail"),
    "nan": ("lost", "fail"),
}


@pytest.fixture(scope="module")
def canary() -> Canary:
    return Canary.record(letters, model="letters")


@pytest.mark.parametrize("name", EXPECTED)
def test_each_change_is_named(canary: Canary, name: str) -> None:
    torch.manual_seed(0)
    outcome = canary.check(changed(name))
    assert (outcome.cause, outcome.status) == EXPECTED[name], outcome.verdicts[0].reason
    assert outcome.verdicts[0].reason.endswith(".")


def shifted(texts: list[str]) -> torch.Tensor:
    return torch.nn.functional.normalize(letters(texts) + 0.6 * letters(["query: "]), dim=1)


def noisy(texts: list[str]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(texts))
    return letters(texts) + 0.4 * torch.randn(len(texts), DIMENSION, generator=generator) / DIMENSION**0.5


def signs(texts: list[str]) -> torch.Tensor:
    return letters(texts).sign()


def turned_by_half_a_right_angle(texts: list[str]) -> torch.Tensor:
    """In every plane of two dimensions."""
    angle = torch.tensor(torch.pi / 4)
    turn = torch.eye(DIMENSION)
    for first in range(0, DIMENSION, 2):
        turn[first, first] = turn[first + 1, first + 1] = angle.cos()
        turn[first, first + 1], turn[first + 1, first] = angle.sin(), -angle.sin()
    return letters(texts) @ turn


@pytest.mark.parametrize(
    ("provider", "cause", "status", "told"),
    [
        (shifted, "recipe", "fail", "is one shift of all texts"),
        (noisy, "altered", "fail", "its prompt or prefix, its pooling, or its weights"),
        (signs, "rounded", "fail", "values are binary"),
        (turned_by_half_a_right_angle, "rotated", "fail", "100% of the similarities kept"),
        (lambda texts: 3 * letters(texts).half(), "rounded", "warn", "besides, vectors had length 1 and are 3 times"),
    ],
)
def test_finer_changes(canary: Canary, provider: Provider, cause: str, status: str, told: str) -> None:
    outcome = canary.check(provider)
    assert (outcome.cause, outcome.status) == (cause, status), outcome.verdicts[0].reason
    assert told in outcome.verdicts[0].reason


def test_texts_that_were_lost_do_not_hide_the_others(canary: Canary) -> None:
    def provider(texts: list[str]) -> torch.Tensor:
        rows = changed("rotated")(texts)
        rows[0] = 0
        return rows

    outcome = canary.check(provider)
    assert outcome.cause == "lost"
    assert "2 of 64 texts have a zero vector. All others: The same space, rotated" in outcome.verdicts[0].reason


def test_some_servers_that_round_are_a_warning(canary: Canary) -> None:
    def provider(texts: list[str]) -> torch.Tensor:
        rows = letters(texts)
        rows[::3] = rows[::3].bfloat16().float()
        return rows

    outcome = canary.check(provider)
    assert (outcome.cause, outcome.status) == ("some texts", "warn")
    assert "on some of several servers" in outcome.verdicts[0].reason


def test_noise_in_directions_that_no_text_uses_is_no_rotation() -> None:
    """It keeps the cosines between texts, as a rotation does."""
    generator = torch.Generator().manual_seed(0)
    used = torch.randn(20, 2048, generator=generator)
    then = torch.randn(100, 20, generator=generator) @ used
    for share, cause in ((0.02, "rounded"), (0.2, "altered")):
        noise = torch.randn(100, 2048, generator=generator) * share * then.std()
        assert Canary.of_vectors([then]).compare(then + noise).cause == cause


def test_lengths_fail_where_they_count() -> None:
    canary = Canary.record(letters, metric="dot")
    outcome = canary.check(changed("lengths"))
    assert (outcome.cause, outcome.status) == ("lengths", "fail")
    assert "which counts for your metric" in outcome.verdicts[0].reason


def test_texts_that_moved_are_named(canary: Canary) -> None:
    outcome = canary.check(changed("some"))
    assert {row[0] for row in outcome.exhibits[0].rows} == {62, 63}
    assert outcome.verdicts[0].evidence.value == pytest.approx(2 / 64)


def test_a_single_text_of_the_largest_canary_is_above_the_limit() -> None:
    generator = torch.Generator().manual_seed(0)
    then = torch.randn(1024, 16, generator=generator)
    now = then.clone()
    now[7] = -now[7]
    outcome = Canary.of_vectors([then]).compare(now)
    assert (outcome.cause, outcome.status) == ("some texts", "fail")


def test_vectors_that_are_all_zero_are_lost(canary: Canary) -> None:
    outcome = canary.check(lambda texts: torch.zeros(len(texts), DIMENSION))
    assert (outcome.cause, outcome.status) == ("lost", "fail")
    assert "64 of 64 texts have a zero vector" in outcome.verdicts[0].reason


def test_vectors_that_are_all_alike_are_another_model(canary: Canary) -> None:
    outcome = canary.check(lambda texts: letters([TEXTS[0]]).repeat(len(texts), 1))
    assert outcome.status == "fail"


def test_nothing_is_said_of_nothing() -> None:
    empty = Snapshot(Space("m", "canary"), (), Provenance(time=0.0, rows=0))
    assert cause_of(empty) is None
    assert CanaryCheck().evaluate(empty).value is None
    assert not CanaryCheck().applies(empty)
