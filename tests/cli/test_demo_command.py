"""`embedwatch demo`: when its fault comes and goes, what it does to one row, and what it refuses."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from embedwatch.cli import demo_run, main
from embedwatch.cli.demo_fault import GROWTH, ILL, MOST, QUIET, Act, PumpedToken
from embedwatch.core.errors import InputError
from tests.server_process import free_port


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


SLOW_DAEMON = """
import http.server, sys, time
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/-/ready" else 404)
        self.end_headers()
print("loading", flush=True)
time.sleep(0.5)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""


def waited(folder: Path, program: str) -> list[str]:
    """Wait for a program in place of the daemon; return what was said meanwhile."""
    told: list[str] = []
    port, log = free_port(), folder / "daemon.log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", program, str(port)], stdout=out, stderr=out)
    try:
        demo_run._wait(process, f"127.0.0.1:{port}", log, told.append)
    finally:
        process.kill()
        process.wait()
    return told


def test_what_it_waits_for_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "SILENT_SECONDS", 0.0)
    (said,) = waited(tmp_path, SLOW_DAEMON)
    assert said.startswith("waiting for the daemon to load and to answer at 127.0.0.1:")


def test_a_daemon_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="within 180 s, got: it ended with status 3, and its last words were: no room;"
    ):
        waited(tmp_path, "print('no room'); raise SystemExit(3)")


def test_a_daemon_that_does_not_answer_in_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "START_SECONDS", 0.3)
    with pytest.raises(InputError, match="got: no answer, and it said nothing; try again"):
        waited(tmp_path, "import time; time.sleep(60)")
