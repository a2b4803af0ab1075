"""`embedwatch canary` as a user and a machine meet it: exit status, tables, JSON, wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from tests.canary.provider_server import ProviderServer
from tests.canary.spaces import TEXTS, changed, letters
from tests.loading import tiny


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["canary", *map(str, arguments)])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save("bert", tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture
def probes(tmp_path: Path) -> Path:
    (tmp_path / "probes.txt").write_text("\n".join(tiny.texts(24)) + "\n\n", encoding="utf-8")
    return tmp_path / "probes.txt"


@pytest.fixture
def recorded(model: Path, probes: Path, tmp_path: Path) -> Path:
    done = run("record", model, probes, "-o", tmp_path / "tiny.canary", "--metric", "dot")
    assert done.exit_code == 0, done.output
    return tmp_path / "tiny.canary"


def saved(path: Path, space: str) -> Path:
    np.save(path, changed(space)(TEXTS).float().numpy())
    return path


def test_a_model_is_recorded_and_is_still_the_same(recorded: Path, model: Path) -> None:
    shown = run("show", recorded)
    assert shown.stdout.startswith("tiny-bert · 24 texts · 16-d · dot · noise 1 - cos up to ")
    assert json.loads(run("show", recorded, "--json").stdout)["texts"] == tiny.texts(24)
    done = run("check", recorded, model)
    assert done.exit_code == 0, done.output
    assert "1 ok" in done.stdout
    assert run("check", recorded, model, "--quiet").stdout.count("\n") == 1


def test_another_pooling_fails_and_says_what_moved(recorded: Path, model: Path) -> None:
    done = run("check", recorded, model, "--pooling", "max")
    assert done.exit_code == 1
    assert "fail" in done.stdout
    assert "“w" in done.stdout  # texts are named
    data = json.loads(run("check", recorded, model, "--pooling", "max", "--json").stdout)
    assert (data["exit"], data["status"]) == (1, "fail")
    assert run("check", recorded, model, "--pooling", "max", "--fail-on", "never").exit_code == 0


def test_vectors_of_a_provider_in_files(tmp_path: Path) -> None:
    files = [saved(tmp_path / f"{day}.npy", "jitter") for day in ("monday", "tuesday", "friday")]
    out = tmp_path / "p.canary"
    done = run("record", "--vectors", *files, "-o", out)
    assert done.exit_code == 0, done.output
    assert "monday · 64 texts, which are not kept · 48-d · cosine" in done.stdout
    assert "in 3 repeats" in done.stdout
    assert run("check", out, "--vectors", saved(tmp_path / "now.npy", "jitter")).exit_code == 0
    for space, status in (("bfloat16", "warn"), ("cut", "fail"), ("rotated", "fail"), ("nan", "fail")):
        now = saved(tmp_path / "now.npy", space)
        data = json.loads(run("check", out, "--vectors", now, "--json").stdout)
        assert (data["exit"], data["status"]) == (1, status), data["verdicts"][0]["reason"]


def test_a_provider_behind_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-1")
    with ProviderServer(letters, key="sk-1") as server:
        ways = ("--url", server.url, "--url-model", "letters-3", "--key-env", "SOME_KEY")
        done = run("record", *ways, "-o", tmp_path / "p.canary")
        assert done.exit_code == 0, done.output
        assert run("check", tmp_path / "p.canary", *ways).exit_code == 0
        monkeypatch.setenv("SOME_KEY", "sk-2")
        refused = run("check", tmp_path / "p.canary", *ways)
    assert refused.exit_code == 2
    assert "got status 401; see whether the key is right" in refused.stderr
    assert "sk-" not in refused.output


def test_without_texts_in_the_file_they_are_given(model: Path, probes: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    assert run("record", model, probes, "-o", out, "--no-texts", "--quiet").output == ""
    told = run("check", out, model)
    assert told.exit_code == 2
    assert told.stderr.startswith("embedwatch: `--texts` must be given for a canary recorded without them")
    assert run("check", out, model, "--texts", probes).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["record", "-o", "c"], "`MODEL` must be given, or `--vectors`, or `--url`"),
        (["record", "no/such", "-o", "c"], "neither a file nor a model"),
        (["record", "--vectors", "absent.npy", "-o", "c"], "absent.npy"),
        (["record", "--vectors", "a.npy", "--url", "http://h", "-o", "c"], "`--url` must be left out with `--vectors`"),
        (["record", "--url", "http://h", "-o", "c"], "`--url-model`"),
        (["record", "m", "--key-env", "K", "-o", "c"], "`--key-env` must come with an address"),
        (["check", "absent.canary", "m"], "absent.canary cannot be read"),
        (["show", "absent.canary"], "absent.canary cannot be read"),
        (["record", "m"], "Missing option"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert told in done.stderr
    assert done.stderr.startswith("embedwatch: ")
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_no_canary(tmp_path: Path, recorded: Path, model: Path) -> None:
    whole = recorded.read_bytes()
    recorded.write_bytes(whole[: len(whole) // 2])
    done = run("check", recorded, model)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    many = saved(tmp_path / "many.npy", "unchanged")
    np.save(many, np.ones((2_000, 8), dtype="float32"))
    assert "got more than 1,024" in run("record", "--vectors", many, "-o", tmp_path / "c").stderr


def test_a_folder_that_cannot_be_written(model: Path, probes: Path, tmp_path: Path) -> None:
    done = run("record", model, probes, "-o", tmp_path / "absent" / "c")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr
