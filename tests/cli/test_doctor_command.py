"""`embedwatch doctor`: packages beside their ranges, extras, threads, forks, and a tiny run that can fail."""

from __future__ import annotations

import json
import os
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from embedwatch.cli.doctor import trial
from embedwatch.cli.doctor.findings import Finding, worst
from embedwatch.cli.doctor.machine import fork_hangs, judge_pools, judge_threads, usable_cores
from embedwatch.cli.doctor.packages import BRINGS, examine_packages
from tests.checkout import ROOT

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def metadata(folder: Path, *lines: str) -> Distribution:
    """Return the metadata of a made-up release of embedwatch."""
    place = folder / "embedwatch-9.9.dist-info"
    place.mkdir()
    place.joinpath("METADATA").write_text("\n".join(["Metadata-Version: 2.4", "Name: embedwatch", *lines, "", ""]))
    return PathDistribution(place)


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_packages_are_compared_with_their_ranges(tmp_path: Path) -> None:
    own = metadata(
        tmp_path,
        "Requires-Python: >=3.10",
        "Requires-Dist: click>=8.1",
        "Requires-Dist: torch<2",
        "Requires-Dist: no-such-package-of-anybody>=3",
        "Requires-Dist: winreg-of-nobody; sys_platform == 'win32'",
    )
    found = by_name(examine_packages(own))
    assert list(found) == ["python", "click", "no-such-package-of-anybody", "torch"]
    assert [finding.status for finding in found.values()] == ["ok", "ok", "fail", "fail"]
    assert found["torch"].remedy == "pip install 'torch<2'"
    assert found["no-such-package-of-anybody"].reason == "missing, needs >=3"


def test_a_python_that_is_too_old_fails(tmp_path: Path) -> None:
    (python,) = examine_packages(metadata(tmp_path, "Requires-Python: >=4"))
    assert (python.status, python.remedy) == ("fail", "make an environment with Python >=4")


def test_extras_say_what_they_bring_and_what_is_missing(tmp_path: Path) -> None:
    own = metadata(
        tmp_path,
        "Provides-Extra: daemon",
        "Provides-Extra: testing",
        "Provides-Extra: dev",
        "Requires-Dist: no-such-package-of-anybody>=3; extra == 'daemon'",
        "Requires-Dist: pytest>=1; extra == 'testing'",
        "Requires-Dist: embedwatch[testing]; extra == 'dev'",
        "Requires-Dist: numpy<1; extra == 'dev'",
    )
    found = by_name(examine_packages(own))
    assert [found[name].status for name in ("daemon", "testing", "dev")] == ["info", "ok", "warn"]
    assert found["daemon"].reason == f"not installed: no-such-package-of-anybody; brings {BRINGS['daemon']}"
    assert "embedwatch[daemon]" in found["daemon"].remedy
    assert found["dev"].remedy == "pip install 'numpy<1'"


def test_every_extra_says_what_it_brings() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(BRINGS) == set(project["optional-dependencies"])


def test_cores_are_those_of_the_quota(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text("50000 100000\n")
    assert usable_cores(limit) == 0.5
    whole = usable_cores(tmp_path / "none")
    assert whole >= 1
    limit.write_text("max 100000\n")
    assert usable_cores(limit) == whole


def test_more_threads_than_cores_warn() -> None:
    assert judge_threads(2, 2.0, {}).status == "ok"
    found = judge_threads(16, 2.5, {"OMP_NUM_THREADS": "16"})
    assert (found.status, found.reason) == ("warn", "torch takes 16 of 2.5 cores; OMP_NUM_THREADS is 16")
    assert "OMP_NUM_THREADS=2:" in found.remedy


def pool(prefix: str, api: str = "openmp") -> dict[str, Any]:
    return {
        "prefix": prefix, "user_api": api, "internal_api": api, "version": None, "num_threads": 2, "filepath": "/x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("prefixes", "status"), [((), "ok"), (("libgomp", "libgomp", "libomp"), "ok"), (("libiomp", "libomp"), "warn")]
)
def test_two_openmp_that_hang_each_other_warn(prefixes: tuple[str, ...], status: str) -> None:
    found = judge_pools([*map(pool, prefixes), pool("libopenblas", "blas")])
    assert found.status == status
    assert "blas (2)" in found.reason


def test_info_is_no_worse_than_ok() -> None:
    assert worst([]) == worst([Finding("extras", "x", "info", "")]) == "ok"
    assert worst([Finding("trial", "x", "fail", ""), Finding("extras", "y", "info", "")]) == "fail"


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    result = run("--json")
    told: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == told["exit"]
    return told


def test_the_whole_is_json_and_the_tiny_run_succeeds(whole: dict[str, Any]) -> None:
    assert set(whole) == {"embedwatch", "python", "platform", "status", "counts", "findings", "exit"}
    assert sum(whole["counts"].values()) == len(whole["findings"])
    assert {finding["part"] for finding in whole["findings"]} == {"packages", "extras", "machine", "trial"}
    tried = {each["name"]: each for each in whole["findings"] if each["part"] == "trial"}
    assert {name: each["status"] for name, each in tried.items()} == {"audit": "ok", "watch": "ok"}
    assert "2,000 sound rows" in tried["audit"]["reason"]
    assert "5 places seen over 12 steps" in tried["watch"]["reason"]


def test_people_get_a_line_for_each_and_the_trial_can_be_left_out(whole: dict[str, Any]) -> None:
    result = run("--skip-trial")
    assert "trial" not in result.stdout.splitlines()
    for each in whole["findings"]:
        if each["part"] != "trial":
            assert f"{each['status']:<5} {each['name']}" in result.stdout
    quiet = run("--skip-trial", "--quiet").stdout
    assert "  ok " not in quiet
    assert quiet.splitlines()[-1].endswith(f"(exit {result.exit_code})")


def test_the_trial_fails_where_a_check_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    from embedwatch import auditing

    real = auditing.audit
    monkeypatch.setattr(auditing, "audit", lambda path: real(path, skip=["nonfinite_rows"]))
    found = trial._audit()
    assert (found.status, found.reason) == ("fail", "a NaN among the rows was told as []")
    assert "report it" in found.remedy


def test_an_exception_in_the_trial_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "ROWS", -1)
    monkeypatch.setattr(trial, "_watch", lambda: Finding("trial", "watch", "ok", ""))
    found = by_name(trial.run_trial())
    assert found["audit"].status == "fail"
    assert found["audit"].reason.startswith("ValueError: ")


def test_wrong_options_are_one_line() -> None:
    result = run("--fail-on", "often")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_trap_of_a_fork_is_tried_for_real() -> None:
    assert fork_hangs(1) is False
    assert fork_hangs(2) in (True, False), "whichever it is, the trial ended as it should"
