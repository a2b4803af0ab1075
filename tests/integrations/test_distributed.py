"""Ranks of one training, each a process: what the first delivers is what one process would have found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from embedwatch import UsageError, watch
from embedwatch.core.snapshot import OF_MODEL
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.sampling import sample_rows
from embedwatch.observe.tables import TableState, first_row_here, joined_states
from tests.integrations import rank

SCRIPT = Path(__file__).with_name("rank.py")
DEADLINE = 100
OF_ONE_RANK = ("token_scale_rms", "output_top_share_ratio")
"""Of rows of one rank, and a mean of shares over ranks: no sums of what ranks saw."""
FOLLOWED = ("token_update_ratio", "token_update_max_ratio")
"""Of tokens that a rank met and whose rows it has: fewer than one process meets."""

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="ranks talk over gloo")


def trained(manner: str, size: int, folder: Path) -> list[dict[str, Any]]:
    """Train on so many ranks; return what each found."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[2])}
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), manner, str(number), str(size), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(size)
    ]
    deadline = time.monotonic() + DEADLINE
    try:
        said = [process.communicate(timeout=max(deadline - time.monotonic(), 1))[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * size, said
    return [json.loads((folder / f"{manner}-{number}.json").read_text()) for number in range(size)]


def places(found: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Each delivery by place and step, without the Monitor's own."""
    return {(each["place"], each["step"]): each for each in found["deliveries"] if each["place"] != "monitor"}


def rows(found: dict[str, Any], place: str) -> list[int]:
    return [each["rows"] for (name, _), each in places(found).items() if name == place]


def assert_same_numbers(left: dict[str, Any], right: dict[str, Any], *, but: tuple[str, ...]) -> None:
    kept = {name: value for name, value in left.items() if name not in but}
    other = {name: value for name, value in right.items() if name not in but}
    assert other == pytest.approx(kept, rel=1e-4, abs=1e-6)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], dict[str, Any]]:
    return places(rank.train("plain", 0, 1, tmp_path_factory.mktemp("alone")))


def test_two_ranks_come_to_what_one_process_does(tmp_path: Path, alone: dict[tuple[str, int], dict[str, Any]]) -> None:
    first, second = trained("ddp", 2, tmp_path)
    found = places(first)
    assert found.keys() == alone.keys()
    for key, expected in alone.items():
        assert found[key]["rows"] == expected["rows"]
        assert_same_numbers(expected["numbers"], found[key]["numbers"], but=OF_ONE_RANK)
    ranks = [each["coverage"].get("ranks_seen") for (place, _), each in found.items() if place != "token_table"]
    assert set(ranks[2:]) >= {2}
    assert alone["training", rank.STEPS]["numbers"]["gradient_norm_applied_mean"] > 0
    assert second["deliveries"] == []
    assert first["errors"] == second["errors"] == {}


@pytest.mark.slow
def test_a_table_in_parts_is_judged_whole(tmp_path: Path, alone: dict[tuple[str, int], dict[str, Any]]) -> None:
    first, *others = trained("fsdp", 3, tmp_path)
    found = places(first)
    tables = [key for key in alone if key[0].startswith("token_table")]
    assert found["token_table", rank.STEPS]["rows"] == rank.VOCABULARY
    assert found["token_table.word_kinds", rank.STEPS]["rows"] == rank.TINY  # 2, 2 and no rows
    assert not {place for place, _ in found}.intersection(OF_MODEL), "no rank has the whole model to examine"
    for key, expected in alone.items():
        if key[0] not in OF_MODEL and (key not in tables or key[1] == rank.STEPS):
            assert found[key]["rows"] == expected["rows"]
            assert_same_numbers(expected["numbers"], found[key]["numbers"], but=(*OF_ONE_RANK, *FOLLOWED))
    update = found["tokens.weight", rank.STEPS]["numbers"]["token_update_ratio"]
    assert update == pytest.approx(alone["tokens.weight", rank.STEPS]["numbers"]["token_update_ratio"], rel=0.3)
    assert first["errors"] == {}
    assert all(other["errors"] == {} and other["deliveries"] == [] for other in others)


def test_a_rank_that_does_not_watch_holds_nobody_up(tmp_path: Path) -> None:
    first, second = trained("absent", 2, tmp_path)
    assert second == {"watched": False}
    assert first["errors"] == {"ranks join": 1}
    assert first["waited"] < rank.PATIENCE / 2
    assert rows(first, "tokens")[0] == rank.BATCH * rank.LENGTH // 2  # its own
    assert [each["coverage"]["ranks_seen"] for (place, _), each in places(first).items() if place == "training"] == [
        1,
        1,
        1,
    ]


@pytest.mark.slow
def test_a_rank_that_dies_leaves_the_others_to_themselves(tmp_path: Path) -> None:
    first, second = trained("vanishing", 2, tmp_path)
    assert second == {"gone": True}
    assert first["errors"] == {"ranks join": 1}
    assert first["waited"] < rank.PATIENCE / 2
    assert [each["coverage"]["ranks_seen"] for (place, _), each in places(first).items() if place == "training"] == [
        2,
        1,
        1,
    ]


@pytest.mark.slow
def test_windows_of_different_steps_are_not_put_together(tmp_path: Path) -> None:
    first, second = trained("apart", 2, tmp_path)
    assert first["errors"] == second["errors"] == {"ranks join": 1}
    assert [each["coverage"]["ranks_seen"] for (place, _), each in places(first).items() if place == "training"] == [
        2,
        1,
        1,
        1,
    ]


def test_together_needs_ranks_and_a_plain_answer() -> None:
    with pytest.raises(UsageError, match="init_process_group"):
        watch(rank.Model(), together=True)
    with pytest.raises(UsageError, match="'yes'"):
        watch(rank.Model(), together="yes")


def test_rows_of_all_ranks_have_numbers_of_their_own() -> None:
    numbers = set()
    for number in range(3):
        pulse = Pulse(every=1, rank=number)
        for passes in range(1, 5):
            pulse.begin(grad=True)
            assert pulse.forwards == passes
            numbers |= set(sample_rows(torch.zeros(6, 2), 6, forward=pulse.context.forward, seed=0).numbers.tolist())
    assert len(numbers) == 3 * 4 * 6


def state(first: int, norms: list[float], counts: list[int], moved: list[int], by: list[float]) -> TableState:
    length = torch.tensor(norms)
    followed = torch.tensor(moved).long()
    return TableState(
        "table", None, length, torch.tensor(counts), length / 10, followed, torch.tensor(by).double(), first
    )


def test_copies_of_a_table_count_once_and_tokens_add_up() -> None:
    one, two = state(0, [1.0, 2.0], [3, 0], [0], [0.5]), state(0, [1.0, 2.0], [1, 1], [0, 1], [0.7, 0.1])
    batch = joined_states([one, two]).batch()
    assert batch.norms.tolist() == [1.0, 2.0]
    assert batch.counts.tolist() == [4, 1]
    assert batch.update.tolist() == pytest.approx([0.6, 0.1])


def test_parts_of_a_table_are_laid_together_in_whatever_order() -> None:
    nothing = state(5, [], [0, 0, 0, 0, 1], [], [])
    last, first = state(3, [4.0, 5.0], [1] * 5, [4], [0.2]), state(0, [1.0, 2.0, 3.0], [2] * 5, [0], [0.1])
    joined = joined_states([nothing, last, first])
    assert joined.whole
    batch = joined.batch()
    assert batch.ids.tolist() == [0, 1, 2, 3, 4]
    assert batch.norms.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert batch.counts.tolist() == [3, 3, 3, 3, 4]
    assert not joined_states([nothing, last]).whole


def test_a_part_alone_names_its_own_tokens() -> None:
    batch = state(3, [4.0, 5.0], [0, 0, 0, 7, 8], [4], [0.2]).batch()
    assert batch.ids.tolist() == [3, 4]
    assert batch.counts.tolist() == [7, 8]
    assert batch.update.tolist()[1] == pytest.approx(0.2)


def test_a_plain_table_begins_at_its_first_row() -> None:
    assert first_row_here(torch.zeros(4, 2)) == 0
