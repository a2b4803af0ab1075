"""`embedwatch serve` and `embedwatch config` as processes: signals, logs, locks, checks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from tests.daemon.serving import ask, npy, raw, send, until
from tests.loading import tiny

ROOT = Path(__file__).parents[2]


class Process:
    """A daemon; its log is read by a thread, so that it never waits for us."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "embedwatch", "serve", "--web.listen-address", "127.0.0.1:0", *arguments]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        until(lambda: self.said("msg=ready") or self.process.poll() is not None, "the start")
        assert self.process.poll() is None, self.lines
        (self.port,) = map(int, re.findall(r"at=http://127.0.0.1:(\d+)", self.said("msg=serving")))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def said(self, part: str) -> str:
        return next((line for line in self.lines if part in line), "")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        status = self.process.wait(60)
        self._reader.join(30)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


@contextmanager
def daemon(folder: Path, *arguments: str) -> Iterator[Process]:
    found = Process(folder, *arguments)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
        found.end()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_it_serves_without_a_file_and_ends_on_sigterm(tmp_path: Path) -> None:
    with daemon(tmp_path) as found:
        assert ask(found.port, "/-/ready").status == 200
        assert send(found.port, npy(77)).status == 202
        second = subprocess.run(
            [sys.executable, "-m", "embedwatch", "serve", "--web.listen-address", "0"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert second.returncode == 2
        assert "Traceback" not in second.stderr
        found.signal(signal.SIGTERM)
        assert found.process.wait(60) == 0
    assert found.said("msg=draining")
    assert found.said("msg=ended")
    assert all(re.match(r"ts=\S+Z level=\w+ msg=", line) for line in found.lines)


def test_sighup_keeps_the_old_configuration_on_error(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("web: {max_rows: 10}")
    with daemon(tmp_path, "-c", str(file)) as found:
        assert send(found.port, npy(11)).status == 413
        file.write_text("web: {max_rowz: 12}")
        found.signal(signal.SIGHUP)
        until(lambda: found.said("configuration refused"), "a refusal")
        assert "did you mean" in found.said("configuration refused")
        assert send(found.port, npy(11)).status == 413
        assert b"embedwatch_config_last_reload_successful 0.0" in ask(found.port, "/metrics").body
        file.write_text("web: {max_rows: 12}\nstorage: {slot: 1MiB}")
        found.signal(signal.SIGHUP)
        until(lambda: found.said("a restart is needed"), "a warning")
        assert send(found.port, npy(11)).status == 202
        assert b"embedwatch_config_last_reload_successful 1.0" in ask(found.port, "/metrics").body
        found.signal(signal.SIGINT)
        assert found.process.wait(60) == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """A body that never ends keeps the first signal waiting."""
    with daemon(tmp_path) as found, raw(found.port) as slow:
        slow.sendall(
            b"POST /api/v1/ingest/m/p HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-npy\r\n"
            b"Content-Length: 1000\r\n\r\nabc"
        )
        found.signal(signal.SIGTERM)
        until(lambda: found.said("msg=draining"), "the first signal")
        found.signal(signal.SIGTERM)
        assert found.process.wait(60) == 128 + signal.SIGTERM


def test_logs_hold_no_data(tmp_path: Path) -> None:
    with daemon(tmp_path, "--log.level", "debug", "--log.format", "logfmt") as found:
        body = json.dumps({"vectors": [[0.123456, 0.654321]], "labels": ["secretlabel"]})
        assert send(found.port, body, kind="application/json").status == 202
        assert send(found.port, '{"secretkey": 0.77777}', kind="application/json").status == 400
        until(lambda: found.said("msg=answered"), "a line")
        found.signal(signal.SIGTERM)
        found.process.wait(60)
    text = "".join(found.lines)
    for secret in ("0.123456", "secretlabel", "secretkey", "0.77777"):
        assert secret not in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--web.listen-address", ":0"], "`web.listen` must be this machine only"),
        (["--web.listen-address", "nowhere"], "`web.listen[0]` must be an address: [HOST:]PORT"),
        (["-c", "none.yaml"], "none.yaml: must be a readable file"),
        (["--log.level", "loud"], "`log.level` must be 'debug', 'info', 'warning' or 'error', got 'loud'"),
        (["--log.format", "xml"], "`log.format`"),
    ],
)
def test_wrong_options_are_one_line(arguments: list[str], told: str) -> None:
    result = run("serve", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


def test_check(tmp_path: Path) -> None:
    result = run("config", "check", ROOT / "examples" / "embedwatch.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    file = tmp_path / "e.yaml"
    file.write_text("web: {lisen: []}\ndrain: 5")
    result = run("config", "check", file)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 2)
    file.write_text(
        "web: {auth: {token_file: none}, tls: {cert_file: a.crt, key_file: a.key}}\nsinks: [jsonll:x]\n"
        "sources: [{kind: files, path: nowhere, name: n}]"
    )
    result = run("config", "check", file)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 4)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("log: {level: inof}", 'did you mean "info"?'),
        ("log: {level: xyz}", "choose one of them"),
        ("sources: [{kind: checkpoint, path: x, name: n}]", 'did you mean "checkpoints"?'),
        ("sources: [{kind: files, path: /, name: /n}]", "must be one line of up to 200 letters"),
        ("sources: [{kind: files, path: /}]", "`sources[0].name` must be given, got nothing; add it"),
        ("evaluation: {only: [normz]}", 'did you mean "norm"?'),
        ("evaluation: {skip: [colapse]}", 'did you mean "collapse"?'),
        ("sinks: ['jsonl:']", "must be written jsonl:PATH"),
        ("sinks: [log:x]", "must be written log, got 'log:x'"),
        ("web: [", "must be YAML"),
    ],
)
def test_check_says_in_one_line_what_to_do(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(text)
    result = run("config", "check", file)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert told in result.stderr
    for_machines = run("config", "check", file, "--json")
    assert (for_machines.exit_code, for_machines.stderr) == (2, "")
    assert json.loads(for_machines.stdout) == {
        "file": str(file),
        "right": False,
        "problems": [result.stderr.removesuffix("\n")],
    }


def test_what_is_right_and_what_is_shown_are_there_for_machines_too(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text("drain: 5s\nsinks: ['daemon:https://ann:secret@host:9477']")
    assert json.loads(run("config", "check", file, "--json").stdout) == {
        "file": str(file),
        "right": True,
        "problems": [],
    }
    shown = run("config", "show", file, "--json").stdout
    assert json.loads(shown)["drain"] == "5s"
    assert "secret" not in shown


def test_show_masks_and_can_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDWATCH_EVALUATION__INTERVAL", "7m")
    file = tmp_path / "e.yaml"
    file.write_text("sinks: ['daemon:https://ann:secret@host:9477']")
    shown = run("config", "show", file).stdout
    assert "secret" not in shown
    assert "https://***@host:9477" in shown
    assert "interval: 7m" in shown
    file.write_text(shown)
    assert run("config", "check", file).exit_code == 0


def test_schema_is_json() -> None:
    assert json.loads(run("config", "schema").stdout)["additionalProperties"] is False


def test_checking_and_help_cost_no_torch() -> None:
    for arguments in (["serve", "--help"], ["config", "check", str(ROOT / "examples" / "embedwatch.yaml")]):
        code = (
            f"import sys\nfrom embedwatch.cli import main\ntry: main({arguments!r})\nexcept SystemExit: pass\n"
            "print('torch' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ}
        )
        assert done.stdout.splitlines()[-1] == "False", arguments


BLOCKERS = {
    "not there": "import sys\nsys.modules['fastapi'] = None\n",
    "kept from being imported": (
        "import sys\n"
        "class Blocker:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'fastapi':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Blocker)\n"
    ),
}


@pytest.mark.parametrize("how", BLOCKERS)
@pytest.mark.parametrize("command", ["serve", "config check e.yaml", "config show", "config schema"])
def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path, how: str, command: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKERS[how])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "embedwatch", *command.split()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "embedwatch: the daemon must have fastapi, got an installation without; pip install 'embedwatch[daemon]'\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != "") == ["sitecustomize.py"]


@pytest.mark.slow
def test_checkpoints_are_looked_at_on_schedule_from_the_file_to_the_pages(tmp_path: Path) -> None:
    """A new one is judged; a broken one and a folder that vanishes are shown, counted and logged once."""
    folder = tmp_path / "run"
    tiny.build("bert").save_pretrained(folder / "checkpoint-100")
    half = folder / "checkpoint-200"
    half.mkdir()
    (half / "config.json").write_text('{"model_type": "bert"}')
    file = tmp_path / "e.yaml"
    file.write_text(
        f"evaluation: {{interval: 500ms}}\nsources: [{{kind: checkpoints, path: {folder}, name: run, every: 500ms}}]"
    )
    with daemon(tmp_path, "-c", str(file)) as found:

        def metrics() -> str:
            return ask(found.port, "/metrics").body.decode()

        def space(segment: str) -> dict[str, Any]:
            shown: dict[str, Any] = ask(found.port, f"/api/v1/spaces/run/token_table?segment={segment}").json
            return shown

        until(lambda: 'embedwatch_training_step{model="run"} 100.0' in metrics(), "the first checkpoint")
        tiny.build("bert").save_pretrained(folder / "checkpoint-300")
        until(lambda: 'embedwatch_training_step{model="run"} 300.0' in metrics(), "the new one")
        assert [space(segment)["snapshot"]["provenance"]["step"] for segment in ("all", "tokens")] == [300, 300]
        assert {"collapse", "extreme_norms"} <= {verdict["check"] for verdict in space("all")["verdicts"]}
        until(lambda: 'stage="audit"' in metrics(), "the broken one")
        folder.rename(tmp_path / "away")
        until(lambda: 'stage="poll"' in metrics(), "the folder that is away")
        failures = ask(found.port, "/api/v1/failures").json
        told = [each for each in failures if "message" in each]
        assert [(each["stage"], each["name"]) for each in told] == [("poll", "run"), ("audit", "run")]
        assert "must exist to be looked at" in told[0]["message"]
        assert {(each["stage"], each["name"]) for each in failures if "count" in each} == {
            ("poll", "run"),
            ("audit", "run"),
        }
        for stage in ("poll", "audit"):
            assert sum(f"{stage} 'run' failed; it counts" in line for line in found.lines) == 1
