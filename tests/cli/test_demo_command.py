"""`embedwatch demo`: when its fault comes and goes, what it does to one row, and what it refuses."""

from __future__ import annotations

import socket

import pytest
import torch
from click.testing import CliRunner, Result

from embedwatch.cli import main
from embedwatch.cli.demo_fault import GROWTH, ILL, MOST, QUIET, Act, PumpedToken


class Clock:
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pumped() -> tuple[PumpedToken, torch.Tensor]:
    table = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    return PumpedToken(table, 7), table


def course(seconds: float | None, until: float) -> tuple[list[str], list[bool], Act]:
    told: list[str] = []
    clock, states = Clock(), []
    act = Act(seconds, told.append, clock)
    token, _ = pumped()
    for _ in range(int(until)):
        act.play(token)
        states.append(act.is_due())
        clock.now += 1.0
    return told, states, act


def test_the_fault_comes_once_and_goes_before_the_end() -> None:
    told, states, act = course(100.0, 99.0)
    assert [text.split(":")[0] for text in told] == ["fault", "healed"]
    assert (states.index(True), states.index(True) + sum(states)) == (30, 65)
    assert (act.faults, act.is_over) == (1, False)


def test_without_an_end_it_comes_again_and_again() -> None:
    told, states, act = course(None, 3 * (QUIET + ILL) + 1)
    assert len(told) == 6
    assert sum(states) == 3 * ILL
    assert not act.is_over


def test_one_row_grows_to_a_limit_and_is_as_long_as_before() -> None:
    token, table = pumped()
    before = table.clone()
    token.remember()
    token.grow()
    assert torch.allclose(table[7], before[7] * GROWTH)
    for _ in range(300):
        token.grow()
    others = [row for row in range(50) if row != 7]
    assert torch.equal(table[others], before[others])
    assert MOST <= float(table[7].norm() / table.norm(dim=1).median()) < MOST * GROWTH
    token.heal()
    assert torch.allclose(table[7], before[7], rtol=1e-5)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["demo", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--for", "2"), "a duration must be a number with a unit, got '2'"),
        (("--for", "5s"), "must be at least 40s"),
        (("--port", "70000"), "70000"),
        (("--model", "no/such", "--port", "0"), "`no/such` is neither a file nor a model"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("--port", str(port))
    assert result.exit_code == 2
    assert f"`port` must be free on 127.0.0.1, got {port}" in result.stderr
