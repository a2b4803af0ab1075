"""The benchmark of the comparison: its samples, its faults, its yardstick, its intervals and its tables."""

from __future__ import annotations

import doctest
import json
import math
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.detection import faults, judging, limits, mmd, tables
from benchmarks.detection.__main__ import PAGE
from benchmarks.detection.judging import LEVELS, Judged, judged, line, pooled, share, watched
from benchmarks.detection.limits import limit
from benchmarks.detection.mmd import discrepancies, exact_p_value, kernel_matrix
from benchmarks.detection.pairs import bursty, independent, mixed, mixed_in, new_topic, topics_of
from benchmarks.detection.parts import PARTS
from benchmarks.detection.peers import MissingPeersError, asked, summed
from benchmarks.detection.texts import brown, glosses
from benchmarks.detection.vectors import round_weights, stored

ROWS, DIMENSION = 600, 8


def numbered(rows: int = ROWS) -> Tensor:
    """Rows whose first number tells which they are."""
    return torch.arange(rows, dtype=torch.float32)[:, None].repeat(1, DIMENSION)


def cloud(seed: int, rows: int = ROWS, dimension: int = DIMENSION) -> Tensor:
    return torch.randn(rows, dimension, generator=torch.Generator().manual_seed(seed))


def places(rows: Tensor) -> set[int]:
    return {int(value) for value in rows[:, 0]}


def test_independent_samples_share_no_row_and_differ_by_seed() -> None:
    pair = independent(numbered(), 0, 100, reference=300)
    assert (len(places(pair.reference)), len(places(pair.window))) == (300, 100)
    assert not places(pair.reference) & places(pair.window)
    assert places(independent(numbered(), 0, 100, reference=300).window) == places(pair.window)
    assert places(independent(numbered(), 1, 100, reference=300).window) != places(pair.window)


@pytest.mark.parametrize("stay", [0.0, 0.9])
def test_streams_stay_in_a_topic_and_share_no_row(stay: float) -> None:
    topics = [str(place % 4) for place in range(8_000)]
    pair = bursty(numbered(8_000), topics, 3, 2_000, stay=stay, reference=2_000)
    assert not places(pair.reference) & places(pair.window)
    seen = [int(value) % 4 for value in pair.window[:, 0]]
    stayed = sum(before == after for before, after in pairwise(seen)) / (len(seen) - 1)
    assert stayed == pytest.approx(stay + (1 - stay) / 4, abs=0.04)


def test_topics_are_drawn_by_their_share() -> None:
    topics = ["large"] * 4_500 + ["small"] * 500
    window = bursty(numbered(5_000), topics, 0, 2_000, stay=0.0, reference=2_000).window
    assert sum(value >= 4_500 for value in places(window)) / len(places(window)) == pytest.approx(0.1, abs=0.05)


def test_a_mixture_replaces_as_many_rows_as_it_says() -> None:
    pair = independent(numbered(), 0, 200, reference=300)
    others = numbered() + 10_000
    changed = mixed(pair, others, 0, 0.05)
    assert sum(value >= 10_000 for value in places(changed.window)) == 10
    assert torch.equal(changed.reference, pair.reference)
    assert not bool((pair.window >= 10_000).any())
    make = mixed_in(lambda seed: independent(numbered(), seed, 200, reference=300), others, 0.05)
    assert torch.equal(make(0).window, changed.window)


def test_a_new_topic_is_nowhere_else() -> None:
    topics = ["rare"] * 5 + ["first"] * 2_500 + ["second"] * 2_500
    held = {"first": set(range(5, 2_505)), "second": set(range(2_505, 5_005))}
    for seed, name in enumerate(held):
        pair = new_topic(numbered(5_005), topics, seed, 200, 0.05)
        assert [len(places(side) & held[name]) for side in pair] == [0, 10]
    with pytest.raises(ValueError, match="`topics` must hold one with at least 400 rows"):
        new_topic(numbered(20), ["one"] * 20, 0, 8_000, 0.05)


def test_topics_by_k_means_tell_clouds_apart() -> None:
    rows = torch.cat([cloud(0, 100) + 50, cloud(1, 100) - 50])
    found = topics_of(rows, 2)
    assert len(set(found[:100])) == len(set(found[100:])) == 1
    assert found[0] != found[-1]


def test_faults_do_what_they_say() -> None:
    rows = cloud(0, 2_000, 300)
    rows = rows / rows.norm(dim=1, keepdim=True) + 0.2 / 300**0.5
    lengths = rows.norm(dim=1)
    assert torch.allclose(faults.longer(rows, 0).norm(dim=1), 1.05 * lengths)
    turned = faults.rotated(rows, 0)
    assert torch.allclose(turned.norm(dim=1), lengths, atol=1e-5)
    cosines = torch.nn.functional.cosine_similarity(rows, turned)
    assert torch.allclose(cosines, torch.full_like(cosines, math.cos(math.radians(5))), atol=1e-4)
    noise = torch.nn.functional.cosine_similarity(rows, faults.noisy(rows, 1)).mean()
    assert float(noise) == pytest.approx(1 / math.sqrt(1.01), abs=1e-3)
    assert int(torch.linalg.matrix_rank(rows - rows.mean(0))) == 300
    flat = faults.truncated(torch.cat([rows, rows]), 0)
    values = torch.linalg.svdvals(flat - flat.mean(0))
    assert float(values[faults.RANK + 2]) < 1e-1 * float(values[faults.RANK - 1])
    apart = rows + 1 / 300**0.5
    near = faults.collapsed(apart, 0)
    spread = [float((each - each.mean(0)).square().sum()) for each in (apart, near)]
    assert 0.8 < spread[1] / spread[0] < 0.95
    assert torch.allclose(near.norm(dim=1), apart.norm(dim=1), atol=1e-5)
    eight = faults.as_int8(rows, 0)
    assert 0 < float((eight - rows).abs().max()) < 2 * float(rows.abs().max()) / faults.INT8_LARGEST


@pytest.mark.parametrize("name", list(faults.FAULTS))
def test_faults_leave_the_rows_alone_and_repeat_by_seed(name: str) -> None:
    rows = cloud(0, 400, 300)
    before = rows.clone()
    found = faults.FAULTS[name](rows, 5)
    assert torch.equal(rows, before)
    assert not torch.equal(found, rows)
    assert torch.equal(found, faults.FAULTS[name](rows, 5))


def test_weights_are_rounded_to_eight_bits() -> None:
    layer = torch.nn.Linear(64, 3)
    before = layer.weight.detach().clone()
    round_weights(layer)
    steps = layer.weight.detach() / (before.abs().amax(1, keepdim=True) / 127)
    assert torch.allclose(steps, steps.round(), atol=1e-4)
    assert 0 < float((layer.weight.detach() - before).abs().max()) < float(before.abs().max()) / 127


def test_stored_rows_have_length_one_and_are_rounded() -> None:
    rows = stored(cloud(0) * 3)
    assert torch.allclose(rows.norm(dim=1), torch.ones(ROWS))
    coarse = stored(cloud(0), torch.bfloat16)
    assert 1e-4 < float((coarse - rows).abs().max()) < 1e-2


def test_the_yardstick_equals_its_formula() -> None:
    rows = cloud(0, 30).double()
    kernel = kernel_matrix(rows)
    squares = torch.cdist(rows, rows).square()
    middle = squares[torch.triu(torch.ones(30, 30), 1).bool()].median()
    assert torch.allclose(kernel + torch.eye(30), torch.exp(-squares / (2 * middle)))
    labels = torch.zeros(1, 30).double()
    labels[0, 20:] = 1
    left, right = kernel[:20, :20], kernel[20:, 20:]
    expected = left.sum() / (20 * 19) + right.sum() / (10 * 9) - 2 * kernel[:20, 20:].mean()
    assert torch.allclose(discrepancies(kernel, labels), expected[None])


def test_the_yardstick_is_calibrated_and_sees_a_shift() -> None:
    found = [exact_p_value(*cloud(seed, 80, 4).split(40), seed=seed, permutations=99) for seed in range(200)]
    assert 0.02 <= sum(value <= 0.1 for value in found) / 200 <= 0.18
    rows = cloud(0, 200, 4)
    assert exact_p_value(rows[:100], rows[100:] + 1, seed=0, permutations=99) == 0.01


def test_intervals_are_those_of_wilson() -> None:
    assert share(2, 200)["interval"] == [0.00275, 0.03572]  # statsmodels: proportion_confint(2, 200, method="wilson")
    assert share(0, 50)["interval"] == [0.0, 0.07135]
    assert share(50, 50)["interval"] == [0.92865, 1.0]
    with pytest.raises(ValueError, match="`hits` must be from 0 to `count`"):
        share(3, 2)
    assert pooled([{"a": share(1, 50)}, {"a": share(2, 150)}], "a") == share(3, 200)


def test_a_line_counts_what_was_said() -> None:
    said = [
        Judged({0.01: 0.004, 0.001: 0.0005}, {0.01: "warn", 0.001: "warn"}, {"content": 0.002}, 3.0, 0.02),
        Judged({0.01: 0.01, 0.001: 0.01}, {0.01: "ok", 0.001: "ok"}, {"content": 0.5}, 1.0, 0.0),
        Judged({0.01: None, 0.001: None}, {0.01: "unknown", 0.001: "unknown"}),
        Judged({0.01: 0.6, 0.001: 0.6}, {0.01: "ok", 0.001: "ok"}, {"content": 0.5}, 1.0, None),
    ]
    found = line(said, base="here")
    assert (found["at_0.01"]["found"], found["at_0.001"]["found"], found["warned_at_0.01"]["found"]) == (2, 1, 1)
    assert (found["base"], found["trials"], found["unknown"], found["no_p_value"]) == ("here", 4, 0.25, 0.25)
    assert (found["families_at_0.01"], found["mean_foreign_ratio"]) == ({"content": 0.25}, 0.01)


def test_a_pair_is_judged() -> None:
    pair = independent(cloud(0, 1_500), 0, 400, reference=1_000)
    same, other = judged(pair, 0, LEVELS), judged(pair._replace(window=pair.window * 1.5), 0, LEVELS)
    assert same.statuses == {0.01: "ok", 0.001: "ok"}
    assert other.statuses == {0.01: "fail", 0.001: "fail"}
    assert all((value or 1) <= 0.001 for level, value in other.p_values.items() if level == 0.001)
    assert same.seconds > 0


def test_a_healthy_stream_is_watched_window_by_window() -> None:
    alarms, single, windows = watched(cloud(0, 3_600), 0, 400)
    assert (alarms, windows) == (0, 4)
    assert single <= 1


def test_other_detectors_are_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(MissingPeersError, match="`--peers` must be the Python"):
        next(asked(tmp_path / "python", tmp_path, []))


def test_answers_of_other_detectors_are_summed() -> None:
    answers = [{"detector": "one", "alarm": place < 2, "p": 0.004 * place, "cpu_seconds": place} for place in range(4)]
    found = summed(answers)
    assert (found["alarms"]["found"], found["at_0.01"]["found"], found["cpu_seconds_each"]) == (2, 3, 1.5)
    assert "at_0.01" not in summed([{"detector": "two", "alarm": False, "cpu_seconds": 0.0}])


def test_sentences_and_genres_of_the_brown_corpus(tmp_path: Path) -> None:
    tagged = "The/at old/jj man/nn sat/vbd down/rp ./."
    (tmp_path / "ca01").write_text(f"{tagged}\nToo/ql short/jj\n\n{tagged}\n", encoding="utf-8")
    (tmp_path / "cb02").write_text("and/or/cc so/rb it/pps went/vbd on/rp\n", encoding="utf-8")
    assert brown(tmp_path) == (["The old man sat down .", "and/or so it went on"], ["a", "b"])


def test_glosses_of_wordnet(tmp_path: Path) -> None:
    for name in ("noun", "verb", "adj"):
        entry = f'00001 03 n 01 x 0 000 | a thing that is {name} and more; "an example"\n00002 | short one\n'
        (tmp_path / f"data.{name}").write_text(f"  1 licence | with a bar in this line here\n{entry}", encoding="utf-8")
    assert sorted(glosses(tmp_path).texts) == [f"a thing that is {name} and more" for name in ("adj", "noun", "verb")]


def test_the_page_has_the_tables_of_what_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    results = PAGE.parents[1] / "benchmarks" / "results"
    named = [path for path in results.glob("detection-*.json") if f"results/{path.name}" in page]
    assert len(named) == 1
    assert tables.renewed(page, json.loads(named[0].read_text(encoding="utf-8"))) == page
    assert {found["name"] for found in tables.MARK.finditer(page)} == set(tables.TABLES)


def test_a_table_of_a_part_that_was_not_measured_says_so() -> None:
    page = "before\n\n<!-- table: topics -->\nold\n<!-- end -->\n\nafter\n"
    told = tables.renewed(page, {"parts": {}})
    assert told == "before\n\n<!-- table: topics -->\n\nNot measured yet.\n\n<!-- end -->\n\nafter\n"
    assert tables.renewed(told, {"parts": {}}) == told


def test_every_table_has_its_parts() -> None:
    known = {*PARTS, "peers", "cost"}
    assert {part for name in tables.TABLES for part in tables.NEEDS.get(name, (name,))} <= known


@pytest.mark.parametrize("module", [judging, limits, mmd, tables])
def test_examples_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


PART = {"date": "2026-11-30", "machine": "2 cores", "python": "3.11.7", "torch": "2.13.0", "cpu_seconds": 1_234}


def drawn(found: int, of: int = 50, **facts: Any) -> dict[str, Any]:
    rate = share(found, of)
    return {"model": "minilm", "base": "stdlib", "trials": of, "at_0.01": rate, "warned_at_0.01": rate, **facts}


def table(name: str, **parts: list[dict[str, Any]]) -> list[str]:
    page = f"<!-- table: {name} --><!-- end -->"
    measured = {"parts": {part: {**PART, "lines": lines} for part, lines in parts.items()}}
    return tables.renewed(page, measured).splitlines()


def test_false_alarms_are_told_with_their_sum() -> None:
    finer: dict[str, Any] = {"at_0.001": share(0, 50), "warned_at_0.001": share(1, 50)}
    told = table("alarms", alarms=[drawn(1, **finer), drawn(0, model="e5", **finer)])
    assert (
        told[4]
        == "| MiniLM | docstrings | 50 | 2 % (0.35 to 10) | 0 % (0 to 7.1) | 2 % (0.35 to 10) | 2 % (0.35 to 10) |"
    )
    assert told[6].startswith("| all |  | 100 | 1 % (0.18 to 5.4) |")
    assert "1,234 CPU seconds" in told[-3]
    month = "\n".join(table("month", alarms=[drawn(1, **finer)]))
    assert "43,200 in 30 days" in month
    assert "864 of them (153 to" in month


def test_the_yardstick_stands_beside_the_same_windows() -> None:
    sources = [drawn(40, foreign="brown", share=0.05), drawn(50, foreign="brown", share=0.1)]
    exact = [drawn(10, foreign="brown"), drawn(5, foreign="new topic"), drawn(0, foreign="healthy")]
    told = table("kernels", kernels=exact, sources=sources, topics=[drawn(30, share=0.05)], alarms=[drawn(1)])
    assert told[4] == "| MiniLM | docstrings | Brown | 80 % (67 to 89) | 20 % (11 to 33) |"
    assert told[5].startswith("| MiniLM | docstrings | new topic | 60 %")
    assert told[6].startswith("| MiniLM | docstrings | healthy | 2 %")


def test_limits_tell_topics_that_are_found_from_those_that_are_missed() -> None:
    facts: dict[str, Any] = {"model": "minilm", "base": "stdlib", "of": 20}
    found = {**facts, "found": True, "trials": 15, "near": 9.25, "beyond": 0.0031, "oracle": share(15, 15)}
    told = table("limits", limits=[found, {**facts, "found": False, "trials": 0}])
    assert told[4] == "| MiniLM | docstrings | found: 15 of 20 | 9.2 | 0.31 % | 15 of 15 |"
    assert told[5] == "| MiniLM | docstrings | missed: 0 of 20 |  |  |  |"


def test_a_topic_of_its_own_is_known_and_found() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4_000, 8, generator=generator)
    rows[:100] += 8
    one = limit(rows, ["new"] * 100 + ["old"] * 3_900, 0)
    assert one.found
    assert one.oracle
    assert one.near > 29
    assert one.beyond == 0


def test_shares_of_everything_are_told_in_whole_percent() -> None:
    assert tables.percent(share(10, 10)) == "100 % (72 to 100)"
    assert tables.percent(share(996, 1_000)) == "99.6 % (99 to 99.8)"


def test_each_detector_has_a_row() -> None:
    ours = drawn(1, condition="healthy", detector="embedwatch", alarms=share(0, 50), cpu_seconds_each=0.25)
    other = {"condition": "healthy", "detector": "other", "trials": 10, "alarms": share(9, 10), "cpu_seconds_each": 7.1}
    told = table("peers", ours=[ours], peers=[other])
    assert told[2:6] == [
        "| detector | pairs each | healthy | CPU each |",
        "| --- | --- | --- | --- |",
        "| embedwatch | 50 | 0 %; at 1 %: 2 % | 0.25 s |",
        "| other | 10 | 90 % | 7.1 s |",
    ]


def test_cost_is_told_with_and_without_what_is_done_once() -> None:
    other = [
        {"what": "alibi-detect MMDDrift", "rows": 5_000, "cpu_seconds": 100.0, "peak_bytes": 3e9, "kernel_bytes": 4e8},
        {"what": "frouros MMD", "rows": 1_000, "reference": 2_000, "cpu_seconds": 50.0},
    ]
    ours = {"rows": 5_000, "fit_seconds": 0.3, "map_seconds": 0.05, "map_microseconds_each_row": 10.0}
    ours |= {"compare_seconds": 0.15, "compare_without_scan_seconds": 0.05, "cpu_seconds": 0.2}
    told = table("cost", cost=other, our_costs=[ours, {"bytes": 1e6, "rows": 10_000, "bound": 2e6}])
    assert "| compare without the scan of regions, once a window | 0.05 s | 100 s | 2,000 |" in told
    assert "| compare, once a window | 0.15 s | 100 s | 667 |" in told
    assert "| map and compare | 0.2 s | 100 s | 500 |" in told
    assert "| fit, map and compare | 0.5 s | 100 s | 200 |" in told
    assert any("1.00 MB after 10,000 rows; its stated bound is 2.0 MB" in each for each in told)
