"""What the page is made of and reads: its files and their headers, maps, courses, and verdicts that turned."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError
from embedwatch.core.measurement import Metric
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.verdict import Evidence, Status, Verdict
from embedwatch.daemon.chronicle import TOLD, WINDOWS, Chapter, Chronicle, course_json
from embedwatch.daemon.maps import LOOKED_AT, MOST_ROWS, SAMPLE_BYTES, MapRows, Maps
from embedwatch.daemon.page_files import PAGE_POLICY, page_files
from embedwatch.references import Reference
from tests.daemon.page_scenes import Minutes, packed, reference_of_topics, scene
from tests.daemon.serving import Served, ask, send, serving
from tests.topics import stream

SPACE = Space("faq", "pooled")
LARGEST_BUNDLE = 1_500_000
SHARE = Metric("some_ratio", "A share.")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference_of_topics(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, reference: Reference) -> Iterator[Served]:
    clock = Minutes(time.time() - 600)
    with scene(tmp_path_factory.mktemp("page"), clock, reference) as found:
        for number in range(2):
            rows = stream(300, seed=number)
            if number:
                rows[7] = torch.nan
            send(found.port, packed(rows, numbered=True), "/api/v1/ingest/faq/pooled", "application/x-npz")
            clock.now += 60
            found.heart.close_windows()
        yield found


class TestFiles:
    def test_each_is_sent_as_it_lies_there_with_a_policy(self, served: Served) -> None:
        for path, file in page_files().items():
            reply = ask(served.port, path)
            assert (reply.status, reply.body) == (200, file.body)
            assert reply.headers["content-security-policy"] == PAGE_POLICY
            assert gzip.decompress(ask(served.port, path, Accept_Encoding="gzip").body) == file.body
            again = ask(served.port, path, If_None_Match=reply.headers["etag"])
            assert (again.status, again.body) == (304, b"")

    def test_the_policy_allows_no_eval_and_nothing_inside_of_the_page(self) -> None:
        assert "unsafe" not in PAGE_POLICY
        text = page_files()["/"].body.decode()
        assert not re.search(r"<style|style=|<script(?![^>]* src=)| on\w+=", text)
        assert not re.search(r"https?://", text)

    def test_all_of_it_is_small(self) -> None:
        assert sum(len(file.body) for file in page_files().values()) < LARGEST_BUNDLE

    def test_everything_that_it_names_is_there(self) -> None:
        there = set(page_files())
        assert {
            f"/{name}" for name in re.findall(r'(?:src|href)="(page/[^"]+)"', page_files()["/"].body.decode())
        } <= there
        for path, file in page_files().items():
            if path.endswith(".js") and files("embedwatch.daemon").joinpath("page", path.rpartition("/")[2]).is_file():
                named = re.findall(r'from "\./([^"]+)"', file.body.decode())
                assert {f"/page/{name}" for name in named} <= there, path

    def test_others_are_not_there(self, served: Served) -> None:
        for name in ("nothing.js", "..%2Fapp.py", "%2e%2e/app.py", "index.html"):
            assert ask(served.port, f"/page/{name}").status == 404

    def test_they_are_open_and_what_they_read_is_not(self, tmp_path: Path) -> None:
        tokens = tmp_path / "tokens"
        tokens.write_text("t" * 32)
        with serving(tmp_path, auth={"token_file": str(tokens)}) as served:
            assert {ask(served.port, path).status for path in page_files()} == {200}
            for path in ("status", "spaces", "changes", "courses/m/p", "maps/m/p"):
                assert ask(served.port, f"/api/v1/{path}").status == 401

    def test_a_script_is_not_answered_with_the_dialog_of_the_browser(self, tmp_path: Path) -> None:
        users = tmp_path / "users"
        users.write_text("ann:$2b$04$abcdefghijklmnopqrstuuIDUPiNd4kp4ZXRBQ8y4f1hGv8qDTWTq\n")
        with serving(tmp_path, auth={"users_file": str(users)}) as served:
            challenge = ask(served.port, "/api/v1/status").headers["www-authenticate"]
            assert challenge.startswith("Basic")
            quiet = ask(served.port, "/api/v1/status", X_Embedwatch_Page="1").headers["www-authenticate"]
            assert quiet.startswith("Bearer")


class TestReading:
    def test_a_list_says_how_each_space_fared(self, served: Served) -> None:
        (found,) = ask(served.port, "/api/v1/spaces").json
        assert [status for _, status in found["statuses"]] == ["ok", "fail"] or found["statuses"][1][1] == "fail"
        assert len(found["course"]["values"]) == 2

    def test_one_is_explained(self, served: Served) -> None:
        found = ask(served.port, "/api/v1/spaces/faq/pooled").json
        (broken,) = [each for each in found["verdicts"] if each["check"] == "nonfinite_rows"]
        assert dict(broken["explained"])["do"] == broken["remedy"]
        assert found["map"]["spread"] is False

    def test_turns_are_told_the_newest_first(self, served: Served) -> None:
        turns = ask(served.port, "/api/v1/changes").json
        assert [turn["time"] for turn in turns] == sorted((turn["time"] for turn in turns), reverse=True)
        (turn,) = [each for each in turns if each["check"] == "nonfinite_rows"]
        assert (turn["before"], turn["status"], turn["space"]["model"]) == ("ok", "fail", "faq")

    def test_a_course_has_a_value_for_each_window(self, served: Served) -> None:
        found = ask(served.port, "/api/v1/courses/faq/pooled").json
        assert found["rows"] == [300, 300]
        (broken,) = [each for each in found["series"] if each["name"] == "nonfinite_rows_total"] or [None]
        assert broken is None or broken["values"] == [0, 1]
        assert all(len(each["values"]) == 2 for each in found["series"])
        assert ask(served.port, "/api/v1/courses/faq/nowhere").status == 404

    def test_a_map_is_bytes_that_exist_already(self, served: Served) -> None:
        plain = ask(served.port, "/api/v1/maps/faq/pooled")
        found = plain.json
        assert (found["rows"], found["drawn"], len(found["pca"]["now"])) == (300, 299, 299), "not the row with NaN"
        assert len(found["pca"]["reference"]) == MOST_ROWS
        assert sorted(found["numbers"])[:8] == [0, 1, 2, 3, 4, 5, 6, 8]
        zipped = ask(served.port, "/api/v1/maps/faq/pooled", Accept_Encoding="gzip")
        assert json.loads(gzip.decompress(zipped.body))["pca"] == found["pca"]
        assert ask(served.port, "/api/v1/maps/faq/nowhere").status == 404


def sampled(rows: torch.Tensor) -> MapRows:
    sample = MapRows(rows.shape[1])
    for start in range(0, len(rows), 128):
        part = rows[start : start + 128]
        sample.add(VectorBatch(part, torch.arange(start, start + len(part)), source="rows"))
    return sample


class Hands:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class TestMaps:
    def drawn(self, rows: torch.Tensor, reference: Reference | None) -> dict[str, object]:
        maps = Maps()
        maps.draw(SPACE, sampled(rows), reference, ended=1.0, of=len(rows))
        return dict(json.loads(maps.body(SPACE, zipped=False) or b"{}"))

    def test_principal_components_are_those_of_an_independent_implementation(self) -> None:
        from sklearn.decomposition import PCA

        rows = stream(200, seed=3)
        found = self.drawn(rows, None)
        order = torch.tensor(found["numbers"])
        wanted = PCA(2).fit(rows.numpy())
        theirs = torch.from_numpy(wanted.transform(rows.numpy()))[order]
        ours = torch.tensor(found["pca"]["now"])  # type: ignore[index]
        for axis in range(2):
            assert abs(torch.corrcoef(torch.stack([ours[:, axis], theirs[:, axis].float()]))[0, 1]) > 0.999
        assert found["shares"] == pytest.approx(wanted.explained_variance_ratio_, abs=2e-3)
        assert (found["reference"], found["far"]) == (None, [])

    def test_a_sample_is_the_same_in_any_order_and_bounded(self) -> None:
        rows = stream(2_000, seed=4)
        there, back = MapRows(16), MapRows(16)
        for part in torch.arange(2_000).split(300):
            there.add(VectorBatch(rows[part], part, source="rows"))
        for part in reversed(torch.arange(2_000).split(500)):
            back.add(VectorBatch(rows[part], part, source="rows"))
        assert len(there.rows) == MOST_ROWS
        assert torch.equal(there.numbers, back.numbers)
        assert MapRows.memory(4_096) <= 2 * SAMPLE_BYTES * 1.01
        assert MapRows.memory(16) < MapRows.memory(384) < MapRows.memory(4_096) * 1.01

    def test_rows_where_the_reference_has_none_are_told(self, reference: Reference) -> None:
        rows = stream(500, seed=5)
        healthy = self.drawn(rows, reference)
        assert len(healthy["far"]) < 25, "about 5 of 500"  # type: ignore[arg-type]
        rows[:50] = stream(50, seed=6) + 6.0
        found = self.drawn(rows, reference)
        numbers = [found["numbers"][place] for place in found["far"]]  # type: ignore[index, attr-defined]
        assert set(range(50)) <= set(numbers)
        assert set(numbers[:50]) == set(range(50)), "the farthest first"

    def test_the_axes_of_a_reference_do_not_turn(self, reference: Reference) -> None:
        one, other = (self.drawn(stream(300, seed=seed), reference)["pca"]["reference"] for seed in (7, 8))  # type: ignore[index]
        assert one == other

    def test_t_sne_is_made_where_somebody_looks_and_then_rests(self) -> None:
        ticks = Hands()
        maps = Maps(ticks)
        others = [Space("faq", f"place {number}") for number in range(2)]
        for space in (SPACE, *others):
            maps.draw(space, sampled(stream(60, seed=9)), None, ended=1.0, of=60)
        maps.spread()
        assert not any(maps.about(space)["spread"] for space in (SPACE, *others))  # type: ignore[index]
        maps.body(others[0], zipped=False, spread=True)
        ticks.now += 1
        maps.body(SPACE, zipped=False, spread=True)
        maps.spread()  # of whom asked last, and then it rests
        assert maps.about(SPACE) == {"time": 1.0, "spread": True}
        assert len(json.loads(maps.body(SPACE, zipped=False) or b"")["tsne"]["now"]) == 60
        ticks.now += LOOKED_AT + 1
        maps.spread()
        assert maps.about(others[0]) == {"time": 1.0, "spread": False}, "nobody looks any more"

    @pytest.mark.parametrize(
        "rows", [torch.zeros(40, 3), torch.ones(1, 5), torch.full((20, 2), 3e38), torch.randn(30, 1)]
    )
    def test_odd_rows_give_a_map_that_is_json(self, rows: torch.Tensor) -> None:
        maps = Maps()
        maps.draw(SPACE, sampled(rows), None, ended=1.0, of=len(rows))
        maps.body(SPACE, zipped=False, spread=True)
        maps.spread()
        found = json.loads(maps.body(SPACE, zipped=False) or b"", parse_constant=pytest.fail)
        assert len(found["pca"]["now"]) == found["drawn"]

    def test_another_dimension_than_the_reference_is_drawn_alone(self, reference: Reference) -> None:
        assert self.drawn(torch.randn(50, 7), reference)["reference"] is None


def judged(status: Status, time: float, value: float = 1.0) -> tuple[Snapshot, Verdict]:
    snapshot = Snapshot(SPACE, (SHARE.measure(value),), Provenance(time=time, rows=5))
    evidence = Evidence(value, rows=5, measurement="some_ratio")
    return snapshot, Verdict("some", "some", SPACE, status, evidence, None, "Because.", "", "")


def _listed(pair: tuple[Snapshot, Verdict]) -> tuple[Snapshot, list[Verdict]]:
    return pair[0], [pair[1]]


class TestChronicle:
    def test_only_turns_from_and_to_what_is_grave_are_told(self) -> None:
        chronicle, before = Chronicle(), {}
        for time_, status in enumerate(("unknown", "ok", "fail", "fail", "warn", "ok", "unknown")):
            snapshot, verdict = judged(status, float(time_))  # type: ignore[arg-type]
            chronicle.add(snapshot, [verdict], before)
            before = {"some": verdict.status}
        assert [(turn["time"], turn["before"], turn["status"]) for turn in chronicle.turns] == [
            (2.0, "ok", "fail"),
            (4.0, "fail", "warn"),
            (5.0, "warn", "ok"),
        ]
        assert [status for _, status in chronicle.statuses][:3] == ["unknown", "ok", "fail"]

    def test_what_is_new_is_told_once_and_restored_whole(self) -> None:
        chronicle = Chronicle()
        for time_, status in enumerate(("ok", "fail")):
            chronicle.add(*_listed(judged(status, float(time_))), {"some": "ok"})  # type: ignore[arg-type]
        news = chronicle.news()
        assert [list(each) for each in news.statuses] == [[0.0, "ok"], [1.0, "fail"]]
        assert [turn["time"] for turn in news.turns] == [1.0]
        other = Chronicle()
        other.restore(Chapter(*json.loads(json.dumps(news))))
        assert (other.to_json(), list(other.turns)) == (chronicle.to_json(), list(chronicle.turns))
        assert other.news() == Chapter([], []), "the store has what it gave"
        chronicle.settle()
        assert chronicle.news() == Chapter([], [])
        for time_ in range(2, 2 * WINDOWS):
            chronicle.add(*_listed(judged("ok", float(time_))), {"some": "ok"})
        assert [len(chronicle.statuses), len(chronicle.news().statuses)] == [WINDOWS, WINDOWS]

    @pytest.mark.parametrize(
        "chapter",
        [
            Chapter([[1.0, "purple"]]),
            Chapter([["late", "ok"]]),
            Chapter([[1.0]]),
            Chapter([[1.0, "ok"]], [{"time": 1.0}]),
            Chapter([], [dict.fromkeys(TOLD, "late")]),
            Chapter([[1.0, ["ok"]]]),
        ],
    )
    def test_a_chapter_that_is_none_is_refused_whole(self, chapter: Chapter) -> None:
        chronicle = Chronicle()
        with pytest.raises(InputError, match="`chapter` must hold statuses"):
            chronicle.restore(chapter)
        assert chronicle.to_json()["statuses"] == []

    def test_the_course_is_of_what_the_gravest_verdict_rests_on(self) -> None:
        chronicle = Chronicle()
        pairs = [judged("fail", float(time_), time_ / 10) for time_ in range(3)]
        chronicle.follow([snapshot for snapshot, _ in pairs], [pairs[-1][1]])
        assert chronicle.to_json()["course"]["values"] == [0.0, 0.1, 0.2]

    def test_gaps_of_a_course_stay_gaps(self) -> None:
        snapshots = [judged("ok", 0.0, 1.0)[0], Snapshot(SPACE, (), Provenance(time=1.0, rows=0)), judged("ok", 2.0)[0]]
        assert course_json(snapshots)["series"][0]["values"] == [1.0, None, 1.0]
