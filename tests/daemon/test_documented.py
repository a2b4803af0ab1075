"""What docs/daemon.md shows: its requests are sent to a real daemon, and answered as it says."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.daemon.serving import ask, serving, until

ROOT = Path(__file__).parents[2]
PAGE = ROOT.joinpath("docs", "daemon.md").read_text(encoding="utf-8")
DOCUMENTED_PORT = "127.0.0.1:9477"
ROWS, DIMENSION = 2_000, 64
needs_tools = pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="curl or jq is missing")


class Shown(NamedTuple):
    """A command of a console block, and the lines that it prints."""

    command: str
    output: str


def shown(page: str, heading: str) -> list[Shown]:
    """Return the requests of one section."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", section, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("curl") and DOCUMENTED_PORT in command:
                found.append(Shown(command, output))
    return found


@needs_tools
def test_requests_are_answered_as_the_page_says(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(ROWS, DIMENSION)).astype("float32")
    np.save(tmp_path / "healthy.npy", rows)
    (tmp_path / "healthy.npy.gz").write_bytes(gzip.compress((tmp_path / "healthy.npy").read_bytes()))
    rows[17] = np.nan
    rows[:, 3] *= 40
    np.save(tmp_path / "faulty.npy", rows)
    (tmp_path / "rows.py").write_text("import numpy as np\n")

    def answer(command: str, port: int) -> str:
        real = command.replace(DOCUMENTED_PORT, f"127.0.0.1:{port}")
        done = subprocess.run(["bash", "-c", real], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    sent, read = shown(PAGE, "Send vectors"), shown(PAGE, "Read")
    assert (len(sent), len(read)) == (6, 2)
    with serving(tmp_path) as served:
        for each in sent:
            assert answer(each.command, served.port) == each.output
        served.heart.close_windows()
        until(lambda: b"embedwatch_check_failing{" in ask(served.port, "/metrics").body, "a window")
        for each in read:
            assert answer(each.command, served.port) == each.output


def test_the_configuration_on_the_page_is_the_example() -> None:
    example = ROOT.joinpath("examples", "embedwatch.yaml").read_text(encoding="utf-8")
    assert f"```yaml\n{example}```\n" in PAGE


def test_every_path_is_on_the_page(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        paths = ask(served.port, "/openapi.json").json["paths"]
    plain = {re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), path) for path in paths} - {"/api/v1/parcels"}
    assert [path for path in plain if path not in PAGE] == [], "parcels are sent by the sink"
