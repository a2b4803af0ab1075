"""Polling: each checkpoint once, in order, when it is whole; files when they change."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from embedwatch.core import Space, UsageError
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.daemon.polling import BACKLOG, Polled, Polling
from embedwatch.sinks.memory import Memory
from tests.loading import tiny

NEVER = 1e6
DEADLINE = 30.0


class Clock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A heart, a polling of one source, and a clock."""

    def __init__(self, polled: Polled, storage: Path | None = None) -> None:
        self.memory, self.clock = Memory(), Clock()
        self.heart = Heart(HeartSettings(storage, interval=NEVER), sinks=[(self.memory, False)])
        self.heart.start()
        self.polling = Polling(self.heart, [polled], settle=5.0, ticks=self.clock)

    def pass_time(self, seconds: float = 10.0, times: int = 4) -> None:
        for _ in range(times):
            self.polling.look()
            self.clock.now += seconds
        self.heart.close_windows()

    def steps(self) -> list[int | None]:
        return [s.provenance.step for s, _, _ in self.memory.deliveries if s.space.model != "embedwatch"]

    def told(self) -> list[dict[str, Any]]:
        return [each for each in self.heart.failures() if "message" in each]

    def close(self) -> None:
        self.polling.close()
        self.heart.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "watched").mkdir()
    return tmp_path / "watched"


@pytest.fixture
def benches() -> Iterator[list[Bench]]:
    made: list[Bench] = []
    yield made
    for bench in made:
        bench.close()


def vectors(path: Path, *, seed: int = 0, rows: int = 100) -> Path:
    np.save(path, np.random.default_rng(seed).normal(size=(rows, 8)).astype("float32"))
    return path


def single(folder: Path, step: int) -> Path:
    """Write a checkpoint that is one file of one tensor."""
    made = folder / f"step-{step}.safetensors"
    generator = torch.Generator().manual_seed(step)
    safetensors.torch.save_file({"vectors": torch.randn(50, 8, generator=generator)}, made)
    return made


def grown(folder: Path, step: int, *, longest: float) -> Path:
    """Write a checkpoint of a whole model; one row of its table is so many times as long as it was."""
    model = tiny.build("bert")
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        table[7] *= longest
    made = folder / f"checkpoint-{step}"
    model.save_pretrained(made)
    return made


def test_each_new_checkpoint_is_audited_once_with_its_step(folder: Path, benches: list[Bench]) -> None:
    bench = Bench(Polled("checkpoints", folder, "run", every=10.0))
    benches.append(bench)
    single(folder, 20)
    bench.pass_time()
    assert bench.steps() == [20]
    single(folder, 100)
    single(folder, 30)
    bench.pass_time(times=8)
    assert bench.steps() == [20, 30, 100]
    bench.pass_time()
    assert bench.steps() == [20, 30, 100]
    assert {each["space"]["model"] for each in bench.heart.spaces()} == {"run"}
    assert bench.polling.errors == {}


def test_a_checkpoint_that_is_being_written_is_left_alone(folder: Path, benches: list[Bench]) -> None:
    bench = Bench(Polled("checkpoints", folder, "run", every=1.0))
    benches.append(bench)
    whole = single(folder, 1).read_bytes()
    (folder / "step-1.safetensors").unlink()
    growing = folder / "step-2.safetensors"
    for size in range(0, len(whole), 200):
        growing.write_bytes(whole[:size])
        os.utime(growing, ns=(size, size))
        bench.pass_time(seconds=2.0, times=1)
    assert bench.polling.errors == {}
    assert bench.steps() == []
    growing.write_bytes(whole)
    bench.pass_time()
    assert bench.steps() == [2]


def test_of_many_old_checkpoints_only_the_newest_are_audited(folder: Path, benches: list[Bench]) -> None:
    for step in range(BACKLOG + 4):
        single(folder, step)
    (folder / ".step-99.safetensors").write_bytes(b"hidden: it is being written")
    bench = Bench(Polled("checkpoints", folder, "run", every=10.0))
    benches.append(bench)
    bench.pass_time(times=12)
    assert bench.steps() == [4, 5, 6]


def test_what_was_audited_is_known_after_a_restart(folder: Path, tmp_path: Path) -> None:
    single(folder, 5)
    counts = []
    for _ in range(2):
        bench = Bench(Polled("checkpoints", folder, "run", every=10.0), tmp_path / "state")
        bench.pass_time()
        counts.append((bench.polling.audited, bench.steps()))
        bench.close()
    assert counts == [(1, [5]), (0, [])]


def test_a_pickle_is_counted_never_loaded_and_not_tried_again(folder: Path, benches: list[Bench]) -> None:
    (folder / "step-3.safetensors").write_bytes(b"\x80\x04a pickle")
    bench = Bench(Polled("checkpoints", folder, "run", every=10.0))
    benches.append(bench)
    bench.pass_time(times=8)
    assert bench.polling.errors == {("audit", "run"): 1}
    single(folder, 3)
    bench.pass_time(times=8)
    assert bench.steps() == [3], "it was replaced"


def dated(bench: Bench) -> dict[str, float]:
    """Return model to when what is shown of it held last, as a scrape gets it."""
    text = bench.heart.exposition("text/plain", gzip=False)[0].decode()
    found = re.findall(r'^embedwatch_window_timestamp_seconds\{model="(\w+)".*\} (\S+)$', text, re.MULTILINE)
    return {model: float(value) for model, value in found}


def test_a_file_that_stays_as_it_is_does_not_age_and_one_that_is_gone_does(folder: Path, benches: list[Bench]) -> None:
    path = vectors(folder / "faq.npy")
    bench = Bench(Polled("files", path, "faq", every=10.0))
    benches.append(bench)
    bench.pass_time()
    first = dated(bench)["faq"]
    bench.pass_time(times=1)
    second = dated(bench)["faq"]
    assert second > first
    assert bench.polling.audited == 1, "it was looked at, not read again"
    path.unlink()
    bench.pass_time()
    assert dated(bench)["faq"] == second


def test_a_file_is_shown_again_after_a_restart(folder: Path, tmp_path: Path) -> None:
    path, found = vectors(folder / "faq.npy"), []
    for _ in range(2):
        bench = Bench(Polled("files", path, "faq", every=10.0), tmp_path / "state")
        bench.pass_time()
        found.append([s.provenance.rows for s, _, _ in bench.memory.deliveries if s.space.model == "faq"])
        bench.close()
    assert found == [[100], [100]]


def test_a_file_is_audited_when_it_changes(folder: Path, benches: list[Bench]) -> None:
    path = vectors(folder / "faq.npy")
    bench = Bench(Polled("files", path, "faq", every=10.0))
    benches.append(bench)
    bench.pass_time()
    vectors(path, seed=1, rows=200)
    bench.pass_time()
    found = [s.provenance.rows for s, _, _ in bench.memory.deliveries if s.space.model == "faq"]
    assert found == [100, 200]


def test_each_file_of_a_folder_is_a_segment_and_parquet_parts_are_one(folder: Path, benches: list[Bench]) -> None:
    vectors(folder / "a.npy")
    vectors(folder / "b.npy", seed=1)
    bench = Bench(Polled("files", folder, "faq", every=10.0))
    benches.append(bench)
    bench.pass_time(times=8)
    assert {each["space"]["segment"] for each in bench.heart.spaces()} == {"a.npy", "b.npy"}

    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    parts = folder / "parts"
    parts.mkdir()
    for number in range(2):
        column = pa.FixedSizeListArray.from_arrays(
            pa.array(np.random.default_rng(number).normal(size=400).astype("float32")), 8
        )
        parquet.write_table(pa.table({"vector": column}), parts / f"{number}.parquet")
    other = Bench(Polled("files", parts, "parts", every=10.0))
    benches.append(other)
    other.pass_time(times=8)
    assert [(each["space"]["segment"], each["rows"]) for each in other.heart.spaces()] == [("all", 100)]


def test_a_path_that_is_not_there_is_counted_and_looked_at_again(folder: Path, benches: list[Bench]) -> None:
    bench = Bench(Polled("files", folder / "late.npy", "late", every=10.0))
    benches.append(bench)
    bench.pass_time(times=2)
    assert bench.polling.errors[("poll", "late")] == 2
    vectors(folder / "late.npy")
    bench.pass_time()
    assert [each["rows"] for each in bench.heart.spaces()] == [100]


def test_it_looks_by_itself_until_it_is_closed(folder: Path) -> None:
    vectors(folder / "a.npy")
    heart = Heart(HeartSettings(interval=NEVER))
    heart.start()
    polling = Polling(heart, [Polled("files", folder / "a.npy", "a", every=0.1)], settle=0.1)
    polling.start()
    deadline = time.monotonic() + DEADLINE
    while not polling.audited:
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
    polling.close()
    polling.close()
    heart.close()


def test_a_schedule_is_above_zero(folder: Path) -> None:
    with pytest.raises(UsageError, match="`every` must be above 0 seconds, got 0"):
        Polled("files", folder, "a", every=0)


def test_a_token_that_grows_from_checkpoint_to_checkpoint_is_seen_coming_also_after_a_restart(
    folder: Path, tmp_path: Path
) -> None:
    """Each checkpoint by itself is sound: the course is not."""
    space = Space("run", "token_table", "tokens")
    statuses = []
    for restart in range(2):
        bench = Bench(Polled("checkpoints", folder, "run", every=10.0), tmp_path / "state")
        for number in range(4):
            step = 100 * (4 * restart + number + 1)
            grown(folder, step, longest=1.0 + step / 150)
            bench.pass_time()
        (verdict,) = [v for v in bench.heart.verdicts() if v["check"] == "token_norm_growth"]
        shown = bench.heart.space(space)
        assert shown is not None
        assert shown["snapshot"]["provenance"]["step"] == step
        assert {"token_norm_max", "token_norm_extreme_ratio"} <= set(names(shown))
        assert "tokens_seen_ratio" not in names(shown), "nobody knows which tokens came"
        assert bench.polling.errors == {}
        statuses.append(verdict["status"])
        bench.close()
    assert statuses == ["unknown", "warn"]
    assert "grows" in verdict["reason"]


def names(shown: dict[str, Any]) -> list[str]:
    return [measurement["name"] for measurement in shown["snapshot"]["measurements"]]


def test_a_file_of_one_tensor_has_no_tokens(folder: Path, benches: list[Bench]) -> None:
    bench = Bench(Polled("checkpoints", folder, "run", every=10.0))
    benches.append(bench)
    single(folder, 20)
    bench.pass_time()
    assert {each["space"]["place"] for each in bench.heart.spaces()} == {"vectors"}


def test_what_is_left_out_is_left_out_of_the_tokens_too(folder: Path) -> None:
    heart = Heart(HeartSettings(interval=NEVER))
    heart.start()
    clock = Clock()
    polling = Polling(heart, [Polled("checkpoints", folder, "run", every=1.0)], skip=["token_norms"], ticks=clock)
    grown(folder, 1, longest=1.0)
    for _ in range(3):
        polling.look()
        clock.now += 10
    heart.close_windows()
    places = [each["space"]["place"] for each in heart.spaces()]
    assert "token_table" in places
    assert {each["space"]["segment"] for each in heart.spaces()} == {"all"}
    heart.close()


def test_what_goes_wrong_is_counted_shown_once_and_logged_once(
    folder: Path, benches: list[Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(Polled("checkpoints", folder, "run", every=10.0))
    benches.append(bench)
    (folder / "step-1.safetensors").write_bytes(b"not one")
    bench.pass_time()
    half = folder / "step-2"
    half.mkdir()
    (half / "config.json").write_text('{"model_type": "bert"}')
    bench.pass_time()
    folder.rename(folder.with_name("away"))
    bench.pass_time(times=6)
    stages = [(each["stage"], each["name"], each["reason"]) for each in bench.told()]
    assert stages == [("poll", "run", "exception"), ("audit", "run", "exception"), ("audit", "run", "exception")]
    assert "must exist to be looked at" in bench.told()[0]["message"]
    assert len({each["message"] for each in bench.told()}) == 3
    counts = {(each["stage"], each["name"]): each["count"] for each in bench.heart.failures() if "count" in each}
    assert counts == {("audit", "run"): 2, ("poll", "run"): 6} == bench.polling.errors
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        "embedwatch: audit 'run' failed; it counts as unknown",
        "embedwatch: audit 'run' failed again",
        "embedwatch: poll 'run' failed; it counts as unknown",
        "embedwatch: poll 'run' failed 5 times in a row",
    ]
    metrics = bench.heart.exposition("", gzip=False)[0].decode()
    own = 'model="embedwatch",place="daemon",segment="all"'
    named = own.replace(",", ',name="run",', 1) + ',stage="poll"'
    assert f"embedwatch_errors_total{{{named}}} 6.0\n" in metrics
    assert f"embedwatch_parts_off{{{own}}} 1.0\n" in metrics
    folder.with_name("away").rename(folder)
    bench.pass_time(times=1)
    assert f"embedwatch_parts_off{{{own}}} 0.0\n" in bench.heart.exposition("", gzip=False)[0].decode()


def test_an_exception_that_is_not_ours_is_told_without_its_text(folder: Path, benches: list[Bench]) -> None:
    """Its text may quote data."""
    bench = Bench(Polled("checkpoints", folder, "run", every=10.0))
    benches.append(bench)
    with bench.polling._guard("audit", "run"):
        float("vector 0.12345")
    assert [each["message"] for each in bench.told()] == ["ValueError"]
