"""Recording and checking a canary, and its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from embedwatch.canary import Canary, Floor
from embedwatch.canary.canary import LEAST_TEXTS
from embedwatch.canary.embedding import rounds
from embedwatch.canary.files import CANARY_SCHEMA, KEY
from embedwatch.canary.probes import PROBES
from embedwatch.core import InputError, UsageError
from tests.canary.spaces import TEXTS, changed, letters


@pytest.fixture(scope="module")
def canary() -> Canary:
    return Canary.record(letters, model="letters", notes=("sums of letters",))


class Noisy:
    """A provider whose vectors vary by themselves, so much that a text has a cosine of about 0.98 to itself."""

    def __init__(self, noise: float = 0.2) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._noise = noise

    def __call__(self, texts: list[str]) -> torch.Tensor:
        rows = letters(texts)
        return rows + self._noise * torch.randn(rows.shape, generator=self._generator) / rows.shape[1] ** 0.5


def test_our_texts_are_many_sorts_and_all_differ() -> None:
    assert len(PROBES) == len(set(PROBES)) == 64
    assert min(map(len, PROBES)) == 1
    assert max(map(len, PROBES)) > 700
    assert sum(not text.isascii() for text in PROBES) > 15


def test_all_texts_are_embedded_in_other_orders_and_batches() -> None:
    asked: list[list[str]] = []

    def embed(texts: list[str]) -> torch.Tensor:
        asked.append(texts)
        return letters(texts)

    canary = Canary.record(embed, repeats=4)
    sizes = [len(texts) for texts in asked]
    assert sorted(set(sizes)) == [1, 2, 7, 16, 32][: len(set(sizes))] or {32, 7, 1, 16} <= set(sizes)
    flat = [text for texts in asked for text in texts]
    assert len(flat) == 4 * 64
    assert flat[:64] == TEXTS
    assert all(sorted(flat[64 * turn : 64 * (turn + 1)]) == sorted(TEXTS) for turn in range(4))
    assert flat[64:128] != TEXTS
    assert torch.equal(canary.vectors, letters(TEXTS))
    assert [turn.size for turn in rounds(5, 3)] == [32, 7, 1]


def test_padding_that_leaks_into_vectors_is_in_the_floor() -> None:
    """A model that sees its batch: each vector depends a little on the longest text beside it."""

    def embed(texts: list[str]) -> torch.Tensor:
        longest = max(map(len, texts))
        return letters(texts) + 0.01 * torch.tensor([[(longest - len(text)) / 900] for text in texts])

    floor = Canary.record(embed).floor
    assert floor.largest > 1e-6
    assert Canary.record(embed).check(embed).status == "ok"
    assert Canary.record(letters).check(embed).status != "ok"


def test_noise_is_measured_and_does_not_alarm() -> None:
    noisy = Noisy()
    canary = Canary.record(noisy, repeats=5)
    assert 0.01 < canary.floor.median < canary.floor.ninety < canary.floor.largest < 0.1
    assert canary.floor.distance == 2 * canary.floor.largest
    assert [canary.check(noisy).status for _ in range(20)] == ["ok"] * 20
    assert canary.check(changed("other")).status == "fail"


def test_lists_arrays_and_tensors_are_taken(canary: Canary) -> None:
    for convert in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.double, torch.Tensor.clone):
        assert canary.check(lambda texts, convert=convert: convert(letters(texts))).status == "ok"


def test_a_missing_vector_is_nan_and_named(canary: Canary) -> None:
    def embed(texts: list[str]) -> list[Any]:
        return [None if text == TEXTS[40] else row for text, row in zip(texts, letters(texts).tolist(), strict=True)]

    outcome = canary.check(embed)
    assert outcome.status == "fail"
    assert "1 of 64 texts" in outcome.verdicts[0].reason
    assert outcome.exhibits[0].rows[0][:2] == (40, TEXTS[40][:60])


@pytest.mark.parametrize(
    ("embed", "told"),
    [
        (lambda texts: letters(texts)[:-1], "one vector for each of 32 texts, got shape"),
        (lambda texts: letters(texts)[0], "one vector for each of 32 texts, got shape"),
        (lambda texts: [[1.0], [1.0, 2.0]] * 16, "vectors of numbers, all of one dimension, got list"),
        (lambda texts: "vectors", "vectors of numbers, all of one dimension, got str"),
        (lambda texts: [["a"]] * len(texts), "vectors of numbers, all of one dimension, got list"),
        (lambda texts: np.zeros((len(texts), 0)), "one vector for each of 32 texts"),
    ],
)
def test_what_is_no_embedding_is_refused(canary: Canary, embed: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        canary.check(embed)


def test_what_is_not_healthy_is_not_recorded() -> None:
    with pytest.raises(InputError, match="finite vectors that are not zero, got one for text 4, 2 in all"):
        Canary.record(changed("nan"), repeats=1)
    with pytest.raises(InputError, match="finite vectors that are not zero, got one for text 1"):
        Canary.record(lambda texts: np.zeros((len(texts), 3)))
    widths = iter([4, 4, 5])
    with pytest.raises(InputError, match=r"got \(64, 4\) and \(64, 5\)"):
        Canary.record(lambda texts: np.ones((len(texts), next(widths, 5))), repeats=2)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["a"] * 20, "must all differ, got text 1 again as text 2"),
        (TEXTS[: LEAST_TEXTS - 1], "must be 12 to 1,024 texts, got 11"),
        ([str(number) for number in range(1025)], "must be 12 to 1,024 texts, got 1,025"),
        ([*TEXTS, " "], "must each hold words, got ' ' as text 65"),
        ("one text", "got one text"),
    ],
)
def test_texts_that_do_not_fit(texts: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Canary.record(letters, texts)


@pytest.mark.parametrize(("name", "value"), [("repeats", 0), ("repeats", 101), ("metric", "hamming")])
def test_arguments_that_do_not_fit(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"`{name}` must be"):
        Canary.record(letters, **{name: value})


def test_a_file_holds_it_all(canary: Canary, tmp_path: Path) -> None:
    canary.save(tmp_path / "letters.canary")
    again = Canary.load(tmp_path / "letters.canary")
    assert torch.equal(again.vectors, canary.vectors)
    assert again.to_json() == canary.to_json()
    assert again.texts == PROBES
    assert [path.name for path in tmp_path.iterdir()] == ["letters.canary"]
    assert again.check(letters).status == "ok"


def test_without_texts_only_hashes_are_kept(tmp_path: Path) -> None:
    canary = Canary.record(letters, keep_texts=False)
    canary.save(tmp_path / "c")
    assert b"umbrella" not in (tmp_path / "c").read_bytes()
    again = Canary.load(tmp_path / "c")
    with pytest.raises(UsageError, match="`texts` must be given for a canary recorded without them"):
        again.check(letters)
    assert again.check(letters, texts=PROBES).status == "ok"
    with pytest.raises(UsageError, match="in their order, got another text 1; give those"):
        again.check(letters, texts=PROBES[::-1])
    with pytest.raises(UsageError, match="the 64 texts that were recorded, in their order, got 63 texts"):
        again.check(letters, texts=PROBES[1:])


def test_vectors_alone_make_a_canary() -> None:
    rows = [letters(TEXTS), letters(TEXTS) * (1 + 1e-4)]
    canary = Canary.of_vectors(rows, metric="dot")
    assert canary.floor.repeats == 2
    assert canary.floor.norm == pytest.approx(1e-4, rel=1e-2)
    assert canary.compare(letters(TEXTS)).status == "ok"
    assert canary.compare(letters(TEXTS) @ torch.eye(48).flip(0)).status == "fail"
    with pytest.raises(InputError, match="one vector for each of 64 texts, got "):
        canary.compare(letters(TEXTS[1:]))
    with pytest.raises(UsageError, match="at least one embedding"):
        Canary.of_vectors([])
    with pytest.raises(InputError, match="got 3 × 4; 64 texts"):
        Canary.of_vectors([torch.ones(3, 4)])


def _header(canary: Canary, **changes: Any) -> bytes:
    about = {"schema": CANARY_SCHEMA, **canary.to_json(), **changes}
    return safetensors.torch.save({"vectors": canary.vectors}, {KEY: json.dumps(about)})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "must be a file of at most"),
        (b"\x80\x04a pickle that is never loaded", "is no canary"),
        (b"\xff" * 64, "is no canary"),
        (safetensors.torch.save({"vectors": torch.ones(20, 3)}), "is no canary"),
    ],
)
def test_what_is_no_canary(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(InputError, match=told):
        Canary.load(tmp_path / "c")
    with pytest.raises(InputError, match="cannot be read"):
        Canary.load(tmp_path / "absent")
    with pytest.raises(InputError, match="must be a file"):
        Canary.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema": 2}, "must have schema 1, got 2"),
        ({"texts": ["another", *TEXTS[1:]]}, "its texts and their hashes differ"),
        ({"texts": TEXTS[1:]}, "one for each of 64 vectors, got 63"),
        ({"hashes": 7}, "lacks something"),
        ({"floor": {"repeats": -1}}, "`floor` must hold six numbers"),
        ({"floor": None}, "lacks something"),
        ({"metric": "hamming"}, "`metric` must be one of"),
        ({"recorded": "today"}, "lacks something"),
    ],
)
def test_a_header_that_says_something_else(canary: Canary, changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(_header(canary, **changes))
    with pytest.raises(InputError, match=told):
        Canary.load(tmp_path / "c")


def test_any_cut_is_refused(canary: Canary, tmp_path: Path) -> None:
    canary.save(tmp_path / "c")
    whole = (tmp_path / "c").read_bytes()
    for size in range(1, len(whole), len(whole) // 40):
        (tmp_path / "c").write_bytes(whole[:size])
        with pytest.raises(InputError):
            Canary.load(tmp_path / "c")


def test_vectors_of_a_file_are_looked_at(canary: Canary, tmp_path: Path) -> None:
    about = json.dumps({"schema": CANARY_SCHEMA, **canary.to_json()})
    bad = canary.vectors.clone()
    bad[2, 2] = torch.inf
    for tensors in ({"vectors": bad}, {"vectors": canary.vectors[:5]}, {"others": canary.vectors}):
        (tmp_path / "c").write_bytes(
            safetensors.torch.save({k: v.contiguous() for k, v in tensors.items()}, {KEY: about})
        )
        with pytest.raises(InputError):
            Canary.load(tmp_path / "c")


def test_an_outcome_is_json(canary: Canary) -> None:
    outcome = canary.check(changed("rotated"), fingerprint="0123")
    data = json.loads(json.dumps(outcome.to_json(), allow_nan=False))
    assert data["status"] == "fail"
    assert data["verdicts"][0]["check"] == "canary"
    assert data["exhibits"][0]["columns"] == ["row", "name", "distance", "norm_ratio"]


def test_an_exception_of_the_provider_is_its_own(canary: Canary) -> None:
    def broken(texts: list[str]) -> torch.Tensor:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError, match="no route"):
        canary.check(broken)


def test_one_embedding_leaves_the_noise_unknown() -> None:
    canary = Canary.record(letters, repeats=1)
    assert canary.floor == Floor(1)
    assert "the noise was not measured" in canary.check(letters).snapshot.provenance.notes[0]
