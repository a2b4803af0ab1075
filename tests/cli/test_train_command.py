"""`embedwatch train`: trains for seconds, goes on, refuses in one line, and loads nothing before it must."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from tests.model import training as tiny

FAST = ("--size", "1", "--vocabulary", "280", "--length", "16", "--batch", "4")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["train", *map(str, arguments)])


def result(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_trains_resumes_and_refuses_other_settings(tmp_path: Path) -> None:
    path, out = tiny.corpus(tmp_path), tmp_path / "run"
    first = result(path, "--out", out, *FAST, "--steps", 12)
    assert (first["reason"], first["step"], first["from_step"]) == ("finished", 12, 0)
    assert result(path, "--out", out, *FAST, "--steps", 12)["from_step"] == 12
    assert (out / "model.safetensors").exists()
    refused = run(path, "--out", out, *FAST, "--steps", 12, "--lr", 0.5)
    assert refused.exit_code == 2
    assert "`training.rate` must be 0.001 to go on" in refused.stderr
    assert refused.stderr.count("\n") == 2  # what it does, and why not


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "restarts", "constant"])
def test_every_schedule_trains(schedule: str, tmp_path: Path) -> None:
    path = tiny.corpus(tmp_path)
    done = result(path, "--out", tmp_path / "run", *FAST, "--steps", 30, "--schedule", schedule, "--lr", 0.01)
    assert done["best"] < 4.0  # log 280 = 5.63 and a little more at the start


@pytest.mark.parametrize("form", ["--parallel", "table"])
def test_translation_takes_two_files_or_a_table(form: str, tmp_path: Path) -> None:
    table = tiny.table(tmp_path)
    given: list[object] = [table]
    if form == "--parallel":
        given = ["--parallel"]
        for column, name in enumerate(("de", "en")):
            lines = [line.split("\t")[column] for line in table.read_text().splitlines()]
            (tmp_path / name).write_text("\n".join(lines))
            given.append(tmp_path / name)
    out = tmp_path / "run"
    assert result(*given, "--objective", "translation", "--out", out, *FAST, "--steps", 3)["step"] == 3
    assert json.loads((out / "config.json").read_text())["kind"] == "encoder_decoder"
    assert json.loads((out / "run.json").read_text())["training"]["smoothing"] == 0.1


def test_masked_trains_an_encoder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result(
        tiny.corpus(tmp_path), "--objective", "masked", "--out", out, *FAST, "--steps", 3, "--bf16", "--accumulate", 2
    )
    assert json.loads((out / "config.json").read_text())["kind"] == "encoder"


def test_shows_loss_rate_and_speed_in_plain_lines(tmp_path: Path) -> None:
    done = run(tiny.corpus(tmp_path), "--out", tmp_path / "run", *FAST, "--steps", 6, "--validate-every", 3)
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert lines[1].startswith("step 3 of 6  loss ")
    for word in ("val ", "lr ", "tok/s"):
        assert word in lines[1]
    assert done.stdout.startswith("finished at step 6 · best val ")


def test_the_rate_follows_the_batch(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result(tiny.corpus(tmp_path), "--out", out, *FAST, "--steps", 1, "--accumulate", 16, "--scale-lr", "sqrt")
    assert json.loads((out / "run.json").read_text())["training"]["rate"] == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (b"", (), "got an empty file"),
        (b"caf\xe9" * 99, (), "must be UTF-8, got byte 0xE9 at 3"),
        (b"one line", (), "must fill 2 windows of 16 tokens"),
        (None, (), "got nothing"),
        (b"text", ("--size", "0"), "must be tiny, small, base or a number of layers"),
        (b"text", ("--objective", "translation"), "must have a tab in each line"),
        (b"text", ("--vocabulary", "10"), "`vocabulary` must be at least 260"),
        (b"text", ("--lr", "-1"), "`rate` must be above 0"),
        (b"text", ("--steps", "0"), "`steps` must be at least 1"),
        (b"text " * 99, ("--dropout", "1"), "`dropout` must be"),
        (b"text", ("--parallel", "a", "b"), "`parallel` must be the only corpus"),
        (b"text", ("--clip", "0"), "`clip` must be above 0"),
    ],
)
def test_misuse_is_one_line_and_exit_2(
    content: bytes | None, options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    done = run(path, "--out", tmp_path / "run", "-q", *FAST, *options)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_sigint_ends_cleanly_and_the_run_goes_on(tmp_path: Path) -> None:
    path, out = tiny.corpus(tmp_path), tmp_path / "run"
    command = [sys.executable, "-m", "embedwatch", "train", str(path), "--out", str(out), *FAST]
    options = ["--steps", "100000", "--json", "-q"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "history.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed, complaints = process.communicate(timeout=60)
    assert process.returncode == 130, complaints
    done = json.loads(printed)
    assert done["reason"] == "interrupted"
    assert (out / "checkpoints" / f"step-{done['step']:08d}").is_dir()


def test_help_loads_no_torch() -> None:
    code = (
        "import sys\nfrom embedwatch.cli import main\n"
        "try:\n    main(['train', '--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'tokenizers', 'embedwatch_model', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
