"""References in the daemon: rows, files and what senders measured are compared; what cannot be is unknown, and why."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from embedwatch.auditing import audit
from embedwatch.batch import VectorBatch
from embedwatch.core.errors import UsageError
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.course_maker import CourseMaker
from embedwatch.daemon.assembly import make_server
from embedwatch.daemon.config import ReferenceFolder
from embedwatch.daemon.config_file import load_config
from embedwatch.daemon.gathered import COMPARED, Gathered
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.daemon.live import Live
from embedwatch.daemon.polled_items import Polled
from embedwatch.daemon.polling import Polling
from embedwatch.daemon.references import References, load_references
from embedwatch.daemon.server import Server
from embedwatch.parcels import Parcel, open_more, parcel_of_batch, parcel_of_window
from embedwatch.references import Reference, create_reference, load_reference, save_reference
from embedwatch.window import Window
from tests.daemon.serving import ask, send, until
from tests.topics import DIMENSION, stream

SPACE = Space("faq", "pooled")
ROWS = 3_000


def npy(rows: torch.Tensor) -> bytes:
    file = io.BytesIO()
    np.save(file, rows.numpy(), allow_pickle=False)
    return file.getvalue()


def reference_at(path: Path, rows: torch.Tensor) -> Path:
    source = path.with_suffix(".npy")
    np.save(source, rows.numpy())
    save_reference(create_reference(source), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference_at(tmp_path_factory.mktemp("references") / "faq", stream(ROWS, seed=0))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return load_reference(folder)


DAY = 86_400.0
"""Between two windows: so few evaluations that each may decide alone."""


class Days:
    """A clock on which each window closes a day after the one before."""

    def __init__(self) -> None:
        self.now = time.time() - 1_000 * DAY

    def __call__(self) -> float:
        return self.now

    def close(self, heart: Heart) -> None:
        self.now += DAY
        heart.close_windows()


class Served(NamedTuple):
    server: Server
    heart: Heart
    live: Live
    days: Days
    file: Path

    @property
    def port(self) -> int:
        return self.server.listeners[0].address.port

    def close(self) -> None:
        self.days.close(self.heart)

    def drift(self) -> dict[str, Any]:
        (found,) = [each for each in ask(self.port, "/api/v1/verdicts").json if each["check"] == "drift"]
        return dict(found)

    def send(self, rows: torch.Tensor, path: str = "/api/v1/ingest/faq/pooled") -> None:
        assert send(self.port, npy(rows), path).status == 202


@contextmanager
def served(tmp_path: Path, *references: dict[str, Any]) -> Iterator[Served]:
    """Serve a configuration file, which a test may write anew."""
    file = tmp_path / "embedwatch.yaml"
    config = {
        "web": {"listen": ["127.0.0.1:0"], "enable_lifecycle": True},
        "log": {"level": "error"},
        "references": [{name: str(value) for name, value in each.items()} for each in references],
    }
    file.write_text(json.dumps(config))
    live, days = Live(lambda: load_config(file, environment={})), Days()
    settings = HeartSettings(tmp_path / "state", interval=3600.0)
    heart = Heart(settings, clock=days, reference_of=live.reference_of)
    server = Server(heart, live)
    server.start()
    try:
        yield Served(server, heart, live, days, file)
    finally:
        server.stop()


def test_rows_are_compared_and_the_api_and_metrics_say_with_what(
    tmp_path: Path, folder: Path, reference: Reference
) -> None:
    with served(tmp_path, {"path": folder, "model": "faq", "place": "pool*"}) as here:
        here.send(stream(800, seed=1))
        here.close()
        assert here.drift()["status"] == "ok", here.drift()["reason"]
        assert here.drift()["reference"] == reference.fingerprint
        here.send(1.3 * stream(800, seed=2))
        here.close()
        assert here.drift()["status"] == "fail", here.drift()["reason"]
        (space,) = ask(here.port, "/api/v1/spaces").json
        made = {"fingerprint": reference.fingerprint, "rows": ROWS, "created": reference.origin.created}
        assert space["reference"] == made
        labels = '{model="faq",place="pooled",segment="all"}'
        page = ask(here.port, "/metrics").body.decode()
        assert f"embedwatch_reference_rows{labels} 3000.0" in page
        assert f"embedwatch_reference_created_timestamp_seconds{labels} " in page
        assert ask(here.port, "/api/v1/failures").json == []


def test_other_spaces_are_not_compared(tmp_path: Path, folder: Path) -> None:
    with served(tmp_path, {"path": folder, "model": "faq", "place": "pooled"}) as here:
        here.send(stream(400, seed=1), "/api/v1/ingest/other/pooled")
        here.send(stream(400, seed=1), "/api/v1/ingest/faq/pooled?segment=de")
        here.close()
        assert [each for each in here.heart.verdicts() if each["check"] == "drift"] == []
        assert {space["reference"] for space in here.heart.spaces()} == {None}


def test_another_dimension_is_unknown_and_says_why(tmp_path: Path, folder: Path) -> None:
    with served(tmp_path, {"path": folder, "model": "faq", "place": "pooled"}) as here:
        here.send(torch.randn(400, DIMENSION + 1))
        here.close()
        verdict = here.drift()
        assert verdict["status"] == "unknown"
        assert verdict["reason"].startswith(
            f"The reference has {DIMENSION} dimensions, these rows have {DIMENSION + 1}: vectors of two models do not"
        )
        assert here.heart.failures() == []


def test_states_without_rows_are_unknown_and_say_why(folder: Path, reference: Reference) -> None:
    heart = Heart(HeartSettings(interval=3600.0), reference_of=lambda space: reference)
    heart.start()
    with closing(heart):
        window = Window(CourseMaker().statistics("pooled"))
        window.update(VectorBatch(stream(500, seed=1), torch.arange(500)))
        window.close(1.7e9)
        states = parcel_of_window(window, window.snapshot(SPACE, role="pooled"), sender="w", number=0)
        batch = VectorBatch(stream(500, seed=2))
        rows = parcel_of_batch(batch, SPACE, role="pooled", sender="r", number=0, time=1.7e9)
        for number, parcels in enumerate(([states], [rows, states], [states, rows])):
            for parcel in parcels:
                heart.accept(replace(parcel, number=number))
            heart.close_windows()
            (verdict,) = [each for each in heart.verdicts() if each["check"] == "drift"]
            assert verdict["status"] == "unknown"
            assert "came as states or numbers" in verdict["reason"]
            assert heart.space(SPACE)["rows"] == 500 * len(parcels)  # type: ignore[index]
        assert heart.failures() == []


def test_what_a_sender_compared_arrives(reference: Reference) -> None:
    course = CourseMaker(reference_of=lambda space: reference).make(SPACE, "pooled", Window([]).boundary)
    course.update(VectorBatch(1.3 * stream(800, seed=1), torch.arange(800)))
    judged = course.close(1.7e9)
    assert judged is not None
    assert judged.window is not None
    parcel = Parcel.from_bytes(parcel_of_window(judged.window, judged.snapshot, sender="w", number=0).to_bytes())
    assert parcel.reference == reference.fingerprint
    more = {each.key: each.number for each in open_more(parcel)}
    assert more["drift_p_value"] == judged.snapshot.number("drift_p_value")
    days = Days()
    heart = Heart(HeartSettings(interval=3600.0), clock=days)
    heart.start()
    with closing(heart):
        for number in range(6):
            heart.accept(replace(parcel, number=number))
            if number in (2, 5):
                days.close(heart)
        found = heart.space(SPACE)
        assert found is not None
        (verdict,) = [each for each in found["verdicts"] if each["check"] == "drift"]
        assert (verdict["status"], verdict["reference"]) == ("fail", reference.fingerprint)
        snapshot = Snapshot.from_json(found["snapshot"])
        assert snapshot.provenance.rows == 2_400
        assert snapshot.provenance.coverage[COMPARED] == 3
        assert snapshot.number("drift_p_value") == pytest.approx(3 * (more["drift_p_value"] or 0))
        assert snapshot.number("drift_rows") == 800
        assert any("the gravest of 3 windows of senders" in note for note in snapshot.provenance.notes)


P_VALUE, ROWS_COMPARED = Metric("drift_p_value", "How likely."), Metric("drift_rows", "Rows.")


def told(p_value: float | None, rows: int) -> tuple[Measurement, ...]:
    return P_VALUE.measure(p_value), ROWS_COMPARED.measure(rows)


def test_the_gravest_sender_counts_as_one_of_all() -> None:
    gathered = Gathered()
    about = Parcel(SPACE, "pooled", "state", 10, 4, "w", 0, 1.7e9)
    for mark, p_value, rows in (("a", 0.4, 1), ("a", 0.02, 2), ("b", None, 3), ("a", 0.3, 4)):
        gathered.add(replace(about, reference=mark), told(p_value, rows))
    assert {each.name: each.number for each in gathered.told()} == {
        "drift_p_value": pytest.approx(0.06),
        "drift_rows": 2,
    }
    assert gathered.reference == "a"
    assert any("different references" in note for note in gathered.notes)
    saved = replace(about, reference=gathered.reference, coverage=gathered.provenance()["coverage"])
    again = Gathered()
    again.add(saved, gathered.more)
    assert again.told() == gathered.told()
    certain = Gathered()
    for _ in range(3):
        certain.add(about, told(0.9, 1))
    assert certain.told()[0].number == 1.0


def test_files_are_compared(tmp_path: Path, reference: Reference) -> None:
    heart = Heart(HeartSettings(interval=3600.0), reference_of=lambda space: reference if space.model == "f" else None)
    heart.start()
    path = tmp_path / "rows.npy"
    np.save(path, (1.3 * stream(800, seed=1)).numpy())
    with closing(heart):
        polling = Polling(heart, [Polled("files", path, "f", 0.1), Polled("files", path, "g", 0.1)], settle=0.0)
        until(lambda: polling.look() or polling.audited == 2, "two audits")
        heart.close_windows()
        found = {each["space"]["model"]: each for each in heart.verdicts() if each["check"] == "drift"}
        assert list(found) == ["f"]
        assert found["f"]["reference"] == reference.fingerprint
        shown = heart.space(Space("f", "vectors"))
        assert shown is not None
        snapshot = Snapshot.from_json(shown["snapshot"])
        assert (snapshot.number("drift_rows"), snapshot.number("reference_rows")) == (800, ROWS)
        assert (snapshot.number("drift_p_value") or 1) < 0.01
        assert polling.errors == {}


def test_an_audit_of_another_dimension_is_unknown(tmp_path: Path, reference: Reference) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.ones((300, DIMENSION + 2), dtype="float32"))
    (judged,) = audit(path, reference_of=lambda space: reference).spaces
    (verdict,) = [each for each in judged.verdicts if each.check == "drift"]
    assert verdict.status == "unknown"
    assert "these rows have 18" in verdict.reason
    assert [each for each in audit(path).spaces[0].verdicts if each.check == "drift"] == []


def test_a_reload_takes_another_reference_and_keeps_the_old_one_where_it_cannot_be_read(
    tmp_path: Path, folder: Path, reference: Reference
) -> None:
    other = reference_at(tmp_path / "other", 1.3 * stream(ROWS, seed=5))
    named = {"model": "faq", "place": "pooled"}
    with served(tmp_path, {"path": folder, **named}) as here:
        for seed in (2, 6):
            here.send(1.3 * stream(800, seed=seed))
            here.close()
        assert here.drift()["status"] == "fail"
        text = here.file.read_text()
        here.file.write_text(text.replace(str(folder), str(tmp_path / "none")))
        reply = ask(here.port, "/-/reload", "POST")
        assert reply.status == 400
        assert reply.error.count("`references[0].path`: ") == 1
        assert here.live.reference_of(SPACE) is not None
        assert here.drift()["reference"] == reference.fingerprint
        here.file.write_text(text.replace(str(folder), str(other)))
        assert ask(here.port, "/-/reload", "POST").status == 200
        here.close()  # the window that was open is still compared with the old one
        here.send(1.3 * stream(800, seed=3))
        here.close()
        here.send(1.3 * stream(800, seed=4))
        here.close()
        assert here.drift()["status"] == "ok", here.drift()["reason"]
        assert here.drift()["reference"] == load_reference(other).fingerprint


def test_after_a_restart_with_another_reference_old_verdicts_are_not_shown(
    tmp_path: Path, folder: Path, reference: Reference
) -> None:
    named = {"model": "faq", "place": "pooled"}
    with served(tmp_path, {"path": folder, **named}) as here:
        for seed in (2, 6):
            here.send(1.3 * stream(800, seed=seed))
            here.close()
    with closing(sqlite3.connect(tmp_path / "state" / "state.sqlite")) as database:
        kept = dict(database.execute("SELECT name, reference FROM verdicts WHERE space LIKE '%pooled%'"))
    assert kept["drift"] == reference.fingerprint
    assert kept["nonfinite_rows"] == ""
    with served(tmp_path, {"path": folder, **named}) as here:
        assert (here.drift()["status"], here.drift()["fresh"]) == ("fail", False)
        assert here.drift()["reference"] == reference.fingerprint
    other = reference_at(tmp_path / "other", 1.3 * stream(ROWS, seed=5))
    with served(tmp_path, {"path": other, **named}) as here:
        checks = [each["check"] for each in ask(here.port, "/api/v1/verdicts").json]
        assert "nonfinite_rows" in checks
        assert "drift" not in checks


def test_a_window_that_was_open_at_a_restart_is_unknown(tmp_path: Path, folder: Path) -> None:
    named = {"path": folder, "model": "faq", "place": "pooled"}
    with served(tmp_path, named) as here:
        here.send(stream(800, seed=2))
    with served(tmp_path, named) as here:
        here.send(stream(800, seed=3))
        here.close()
        assert here.drift()["status"] == "unknown"
        assert "from before a restart" in here.drift()["reason"]


def test_a_reference_holds_for_its_own_space_unless_told(folder: Path, reference: Reference) -> None:
    own = reference.origin.space
    found = load_references([ReferenceFolder(path=folder)])
    assert found.of(own) is not None
    assert found.of(SPACE) is None
    several = load_references([ReferenceFolder(path=folder, model="f?q", segment="*"), ReferenceFolder(path=folder)])
    assert several.of(Space("faq", own.place, "de")) is not None
    assert several.of(Space("faq", "elsewhere")) is None
    assert several.of(Space("faq", own.place, "all", "3")) is None
    assert References().of(own) is None


def test_the_first_that_matches_counts(tmp_path: Path, folder: Path) -> None:
    other = reference_at(tmp_path / "other", stream(400, seed=5))
    both = [ReferenceFolder(path=path, model="*", place="*") for path in (other, folder)]
    found = load_references(both).of(SPACE)
    assert found is not None
    assert found.origin.rows == 400


def test_a_folder_of_several_is_taken_whole_and_needs_no_place(tmp_path: Path) -> None:
    for place in ("body", "head"):
        made = create_reference(_source(tmp_path, place))
        origin = replace(made.origin, space=Space("live", place))
        save_reference(replace(made, origin=origin), tmp_path / "all" / place)
    found = load_references([ReferenceFolder(path=tmp_path / "all", model="encoder")])
    assert {found.of(Space("encoder", place)) is not None for place in ("body", "head")} == {True}
    assert found.of(Space("encoder", "tail")) is None
    with pytest.raises(UsageError, match=r"`references\[0\]\.place` must be left out for a folder of 2 references"):
        load_references([ReferenceFolder(path=tmp_path / "all", place="body")])


def _source(tmp_path: Path, name: str) -> Path:
    path = tmp_path / f"{name}.npy"
    np.save(path, stream(300, seed=len(name)).numpy())
    return path


def test_what_cannot_be_read_is_one_line(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r"^`references\[1\]\.path`: .* must be the folder of a reference, or hold such"
    ):
        load_references([ReferenceFolder(path=folder), ReferenceFolder(path=tmp_path)])
    damaged = reference_at(tmp_path / "damaged", stream(300, seed=1))
    damaged.joinpath("maps.safetensors").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"`references\[0\]\.path`: .*maps\.safetensors must have"):
        load_references([ReferenceFolder(path=damaged)])


def test_a_sender_keeps_its_reference_over_snapshots() -> None:
    about = Provenance(1.7e9, 3, reference="ab12")
    assert Snapshot.from_json(Snapshot(SPACE, (), about).to_json()).provenance.reference == "ab12"


def test_the_spaces_that_are_compared_share_the_alarms_that_are_accepted(reference: Reference) -> None:
    days = Days()
    other = Space("faq", "other")
    known = {SPACE: reference, other: reference}
    heart = Heart(HeartSettings(interval=3600.0, alarms="3 per 30d"), clock=days, reference_of=known.get)
    heart.start()
    try:
        for round_ in range(2):
            for number, space in enumerate((SPACE, other, Space("faq", "plain"))):
                batch = VectorBatch(stream(800, seed=10 * round_ + number))
                heart.accept(
                    parcel_of_batch(batch, space, role="pooled", sender="s", number=10 * round_ + number, time=days())
                )
            days.close(heart)
        budgets = [each.get("budget") for each in heart.verdicts() if each["check"] == "drift"]
        assert budgets == ["3 per 30d over 2 spaces at 1 evaluations a day"] * 2
    finally:
        heart.close()


def test_a_server_takes_the_alarms_that_are_accepted_from_its_configuration(tmp_path: Path, folder: Path) -> None:
    flags = {
        "web": {"listen": ["127.0.0.1:0"]},
        "storage": {"path": str(tmp_path / "state")},
        "evaluation": {"interval": "500ms", "alarms": "2 per 1w"},
        "log": {"level": "error"},
        "references": [{"path": str(folder), "model": "faq", "place": "pooled"}],
    }
    server = make_server(Live(lambda: load_config(environment={}, flags=flags)))
    server.start()
    try:
        port = server.listeners[0].address.port
        assert send(port, npy(stream(800, seed=1)), "/api/v1/ingest/faq/pooled").status == 202
        until(lambda: b'"budget":"2 per 7d at' in ask(port, "/api/v1/verdicts").body.replace(b": ", b":"), "a verdict")
    finally:
        server.stop()
