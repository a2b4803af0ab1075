"""`embedwatch train`: trains for seconds, goes on, refuses in one line, and loads nothing before it must."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console as Terminal

from embedwatch.cli import main
from embedwatch.cli.train_display import Bar, Findings
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.verdict import Evidence, Limit, Status, Verdict
from embedwatch_model.events import Progress, StepRecord
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
    assert "`--lr` must be 0.001 to go on" in refused.stderr
    assert refused.stderr.count("\n") == 1


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
        (b"text", ("--vocabulary", "10"), "`--vocabulary` must be at least 260"),
        (b"text", ("--lr", "-1"), "`--lr` must be above 0"),
        (b"text", ("--steps", "0"), "`--steps` must be at least 1"),
        (b"text " * 99, ("--dropout", "1"), "`--dropout` must be"),
        (b"text", ("--parallel", "a", "b"), "`--parallel` must be the only corpus"),
        (b"text", ("--clip", "0"), "`--clip` must be above 0"),
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


@pytest.mark.parametrize(
    "options", [("--lr", "-1"), ("--length", "0"), ("--vocabulary", "10"), ("--no-watch", "--sink", "log")]
)
def test_wrong_options_are_refused_before_anything_is_prepared(options: tuple[str, ...], tmp_path: Path) -> None:
    done = run(tiny.corpus(tmp_path), "--out", tmp_path / "run", *FAST, *options)
    assert done.exit_code == 2
    assert "preparing" not in done.stderr
    assert f"`{options[0]}` must" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_folder_with_other_things_is_refused_before_anything_is_prepared(tmp_path: Path) -> None:
    done = run(tiny.corpus(tmp_path), "--out", tmp_path, *FAST)
    assert done.stderr.startswith(f"embedwatch: `{tmp_path}` must be new or a run")


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


class TestWatching:
    def test_it_is_watched_recorded_and_the_same_to_the_bit_as_without(self, tmp_path: Path) -> None:
        path, out, other = tiny.corpus(tmp_path), tmp_path / "run", tmp_path / "other"
        done = result(path, "--out", out, *FAST, "--steps", 30)
        assert done["recording"] == str(out / "embedwatch.jsonl")
        assert isinstance(done["findings"], list)
        alone = result(path, "--out", other, *FAST, "--steps", 30, "--no-watch")
        assert (alone["recording"], alone["findings"], alone["overhead"]) == (None, None, None)
        assert not (other / "embedwatch.jsonl").exists()
        assert (out / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
        shown = CliRunner().invoke(main, ["show", str(out), "--json", "--fail-on", "never"])
        assert shown.exit_code == 0
        assert "token_table" in shown.stdout

    def test_it_goes_on_beside_its_recording(self, tmp_path: Path) -> None:
        path, out = tiny.corpus(tmp_path), tmp_path / "run"
        result(path, "--out", out, *FAST, "--steps", 12)
        assert result(path, "--out", out, *FAST, "--steps", 12, "--no-watch")["from_step"] == 12

    @pytest.mark.parametrize(
        "options", [("--steps", 12), ("--steps", 60, "--lr", 1, "--validate-every", 1, "--patience", 1)]
    )
    def test_where_nothing_is_left_to_train_nothing_is_recorded(
        self, tmp_path: Path, options: tuple[object, ...]
    ) -> None:
        path, out = tiny.corpus(tmp_path), tmp_path / "run"
        done = result(path, "--out", out, *FAST, *options)
        recorded = (out / "embedwatch.jsonl").read_bytes()
        again = run(path, "--out", out, *FAST, *options)
        assert (out / "embedwatch.jsonl").read_bytes() == recorded
        assert again.stdout.splitlines()[1:] == ["nothing was trained, so nothing was watched"]
        assert again.stderr == ""
        assert result(path, "--out", out, *FAST, *options)["step"] == done["step"]
        shown = json.loads(CliRunner().invoke(main, ["show", str(out), "--json", "--fail-on", "never"]).stdout)
        assert shown["notes"] == []

    def test_findings_are_told_when_they_come_with_numbers_and_remedy(self, tmp_path: Path) -> None:
        arguments = (tiny.corpus(tmp_path), "--out", tmp_path / "run", *FAST, "--steps", 4, "--lr", 3, "--warmup", 1)
        done = run(*arguments)
        assert done.exit_code == 0
        found = [line for line in done.stderr.splitlines() if line.startswith("  fail    movement of rows in one step")]
        assert len(found) == 1
        assert re.search(r"  healthy < 0\.\d+  ", found[0])
        assert found[0].endswith("embedding.tokens.weight at step 1")
        assert "→ Lower the learning rate" in done.stderr
        finished, concluded = done.stdout.splitlines()
        assert finished.startswith("finished at step 4")
        assert " in " in concluded
        assert concluded.endswith(f"embedwatch show {tmp_path / 'run'}")

    def test_quiet_tells_only_what_is_wrong(self, tmp_path: Path) -> None:
        path = tiny.corpus(tmp_path)
        arguments = ("--out", tmp_path / "run", *FAST, "--steps", 4, "--lr", 3, "--warmup", 1, "-q")
        told = run(path, *arguments).stderr
        assert told.startswith("  fail    movement of rows")
        assert "step 4 of 4" not in told
        assert "  ok  " not in told

    def test_machines_get_the_findings_at_the_end_and_no_lines(self, tmp_path: Path) -> None:
        arguments = (tiny.corpus(tmp_path), "--out", tmp_path / "run", *FAST, "--steps", 4, "--lr", 3, "--warmup", 1)
        done = run(*arguments, "--json", "-q")
        assert done.stderr == ""
        findings = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
        assert findings["token_updates"]["status"] in ("warn", "fail")
        assert findings["token_updates"]["space"]["model"] == "run"
        assert findings["token_updates"]["remedy"]

    def test_a_run_that_fails_is_judged_to_its_end(self, tmp_path: Path) -> None:
        options = ("--out", tmp_path / "run", *FAST, "--steps", 60, "--lr", 1e30, "--warmup", 1, "--clip", 1e30)
        done = run(tiny.corpus(tmp_path), *options)
        assert done.exit_code == 2
        assert "`--lr` must keep gradients finite" in done.stderr
        last = json.loads((tmp_path / "run" / "embedwatch.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        assert last["snapshot"]["provenance"]["step"] >= 20

    def test_other_sinks_get_the_same(self, tmp_path: Path) -> None:
        copy = tmp_path / "copy.jsonl"
        sinks = ("--sink", f"jsonl:{copy}", "--sink", "memory")
        result(tiny.corpus(tmp_path), "--out", tmp_path / "run", *FAST, "--steps", 3, *sinks)
        assert copy.read_text(encoding="utf-8") == (tmp_path / "run" / "embedwatch.jsonl").read_text(encoding="utf-8")

    def test_windows_and_looks_are_as_asked(self, tmp_path: Path) -> None:
        asked = ("--watch-window", 2, "--watch-every", 1)
        result(tiny.corpus(tmp_path), "--out", tmp_path / "run", *FAST, "--steps", 3, *asked)
        lines = (tmp_path / "run" / "embedwatch.jsonl").read_text(encoding="utf-8").splitlines()
        steps = [json.loads(line)["snapshot"] for line in lines]
        closed = [each["provenance"]["step"] for each in steps if each["space"]["place"] == "training"]
        assert closed == [1, 3]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--sink", "carrier_pigeon"), 'no sink "carrier_pigeon"'),
            (("--sink", "jsonl"), "sink 'jsonl' must be written jsonl:PATH"),
            (("--no-watch", "--sink", "memory"), "`--no-watch` must stand without --sink, got both"),
            (("--no-watch", "--watch-every", "3"), "`--no-watch` must stand without --watch-every, got both"),
            (("--watch-window", "0"), "'--watch-window': 0 is not in the range"),
        ],
    )
    def test_misuse_is_refused_before_anything_is_made(
        self, options: tuple[str, ...], words: str, tmp_path: Path
    ) -> None:
        done = run(tiny.corpus(tmp_path), "--out", tmp_path / "run", *FAST, *options)
        assert done.exit_code == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "run").exists()


class TestDisplay:
    """What a person sees, on a terminal that keeps what is drawn."""

    @pytest.fixture
    def terminal(self) -> Terminal:
        return Terminal(file=io.StringIO(), force_terminal=True, width=120, color_system=None)

    def judged(self, status: Status, *, step: int) -> tuple[Snapshot, list[Verdict]]:
        space = Space("run", "layers.3")
        limit = Limit(warn=1.0)
        verdict = Verdict(
            "zero_rows", "zero rows", space, status, Evidence(7.0, limit), 1.0, "7 of 9 are zero.", "Bad.", "Look."
        )
        return Snapshot(space, (), Provenance(0.0, 9, step=step)), [verdict]

    def text(self, terminal: Terminal) -> str:
        assert isinstance(terminal.file, io.StringIO)
        return terminal.file.getvalue()

    def test_a_finding_stands_above_the_bar_which_says_what_watching_costs(self, terminal: Terminal) -> None:
        class Running:
            settings = type("Settings", (), {"schedule": type("Schedule", (), {"steps": 100})})
            progress = Progress(step=40)

        trainer: Any = Running()
        with Bar(terminal, overhead=lambda: 0.0042) as bar:
            bar.on_start(trainer)
            bar.on_step(trainer, StepRecord(41, 3.12, 2.1e-4, 1.0, False, 100, 0.1))
            Findings(terminal).write(*self.judged("warn", step=1200))
            bar.bar.refresh()
            drawn = self.text(terminal)
        above, below = drawn.rindex("→ Look."), drawn.rindex("embedwatch 0.4 %")
        assert "  warn    zero rows  7  healthy < 1  layers.3 at step 1,200\n" in drawn
        assert "          7 of 9 are zero.\n" in drawn
        assert above < below

    @pytest.mark.parametrize(("quiet", "told"), [(False, ["warn", "fail", "ok"]), (True, ["warn", "fail"])])
    def test_only_changes_are_told(self, quiet: bool, told: list[str], terminal: Terminal) -> None:
        findings = Findings(terminal, quiet=quiet)
        course: tuple[Status, ...] = ("ok", "warn", "warn", "unknown", "fail", "ok", "ok")
        for step, status in enumerate(course):
            findings.write(*self.judged(status, step=step))
        assert re.findall(r"^  (\w+)", self.text(terminal), flags=re.M) == told


def test_help_loads_no_torch() -> None:
    code = (
        "import sys\nfrom embedwatch.cli import main\n"
        "try:\n    main(['train', '--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'tokenizers', 'embedwatch_model', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
