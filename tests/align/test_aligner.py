"""An Aligner maps, is written and read whole, and refuses what it was not fitted for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from embedwatch import Aligner, fit_aligner, load_aligner
from embedwatch.core.errors import InputError, UsageError
from embedwatch.geometry.retrieval import directions
from embedwatch.testing.spaces import two_spaces

LEFT, RIGHT = two_spaces(900, left=96, right=64)


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return fit_aligner(LEFT, RIGHT, try_methods=("procrustes", "residual_net"), names=("new-model", "old-model"))


@pytest.fixture(scope="module")
def net(aligner: Aligner) -> Aligner:
    """The same map with a net."""
    draw = torch.Generator().manual_seed(0)
    hidden = {
        "hidden_in": torch.randn(96, 8, generator=draw),
        "hidden_bias": torch.randn(8, generator=draw),
        "hidden_out": torch.randn(8, 64, generator=draw),
    }
    return Aligner(
        "residual_net", "query", aligner.source, aligner.target, aligner.matrix, aligner.offset, hidden, "x", {}
    )


class TestTransform:
    def test_gives_back_what_it_was_given(self, aligner: Aligner) -> None:
        array = aligner.transform(LEFT)
        tensor = aligner.transform(torch.from_numpy(LEFT))
        assert isinstance(array, np.ndarray)
        assert isinstance(tensor, torch.Tensor)
        assert array.dtype == np.float32
        assert array.shape == (900, 64)
        assert np.array_equal(array, tensor.numpy())

    def test_is_its_affine_parts(self, aligner: Aligner) -> None:
        parts = aligner.affine()
        assert parts is not None
        assert parts.matrix.shape == (64, 96)
        assert (parts.input_unit, parts.output_unit, parts.orthogonal) == (True, True, False)
        rows = torch.from_numpy(LEFT[:50])
        wanted = directions(directions(rows) @ parts.matrix.T + parts.offset)
        assert torch.allclose(aligner.transform(rows), wanted, atol=1e-6)

    def test_a_net_is_no_matrix(self, net: Aligner, aligner: Aligner) -> None:
        assert net.affine() is None
        rows = torch.from_numpy(LEFT[:50])
        into, bias, out = (net.hidden[name] for name in ("hidden_in", "hidden_bias", "hidden_out"))
        inner = torch.nn.functional.gelu((rows - net.source.mean) @ into + bias) @ out
        wanted = directions(rows @ aligner.matrix + aligner.offset + inner)
        assert torch.allclose(net.transform(rows), wanted, atol=1e-5)

    def test_length_does_not_matter(self, aligner: Aligner) -> None:
        assert np.allclose(aligner.transform(LEFT), aligner.transform(7 * LEFT), atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_other_types(self, aligner: Aligner, dtype: torch.dtype) -> None:
        rows = torch.from_numpy(LEFT[:100])
        assert torch.allclose(aligner.transform(rows.to(dtype)), aligner.transform(rows), atol=0.02)

    def test_rows_without_a_direction_become_nan(self, aligner: Aligner) -> None:
        rows = LEFT[:5].copy()
        rows[1], rows[2, 3], rows[3, 0] = 0, np.nan, np.inf
        assert np.isnan(aligner.transform(rows)).any(1).tolist() == [False, True, True, True, False]
        assert np.allclose(aligner.transform(rows)[4], aligner.transform(LEFT[4:5])[0], atol=1e-6)

    def test_no_rows(self, aligner: Aligner) -> None:
        assert aligner.transform(LEFT[:0]).shape == (0, 64)

    @pytest.mark.parametrize(
        ("rows", "error", "told"),
        [
            (RIGHT, InputError, "must have 96 dimensions"),
            (LEFT[0], UsageError, r"one row is rows\[None\]"),
            (LEFT.astype(int), UsageError, "matrix"),
            ("rows", UsageError, "got str"),
        ],
    )
    def test_what_does_not_fit(self, aligner: Aligner, rows: np.ndarray, error: type[Exception], told: str) -> None:
        with pytest.raises(error, match=told):
            aligner.transform(rows)


class TestAnotherModel:
    def test_is_refused_though_its_dimension_is_the_same(self, aligner: Aligner) -> None:
        turn = np.linalg.qr(np.random.default_rng(0).standard_normal((96, 96)))[0]
        for rows in (LEFT @ turn, LEFT[:, ::-1].copy(), np.random.default_rng(1).standard_normal((100, 96))):
            with pytest.raises(InputError, match="kinship"):
                aligner.transform(rows.astype(np.float32))
            assert aligner.transform(rows.astype(np.float32), check=False).shape == (len(rows), 64)

    def test_other_items_of_the_same_model_are_not(self, aligner: Aligner) -> None:
        rows = torch.from_numpy(two_spaces(300, seed=9)[0])
        found = aligner.source.kinship(rows)
        assert found.score is not None
        assert found.score > 0.8
        assert found.shift < 0.1
        assert not found.is_strange

    def test_few_rows_are_not_judged(self, aligner: Aligner) -> None:
        assert aligner.source.kinship(torch.randn(20, 96)).score is None

    def test_by_name(self, aligner: Aligner) -> None:
        aligner.source.check_model("")
        aligner.source.check_model("new-model")
        with pytest.raises(InputError, match="must come from the model new-model"):
            aligner.source.check_model("newer-model")

    def test_the_target_knows_its_rows_too(self, aligner: Aligner) -> None:
        aligner.target.check(torch.from_numpy(RIGHT))
        with pytest.raises(InputError, match="kinship"):
            aligner.target.check(torch.from_numpy(RIGHT[:, ::-1].copy()))

    def test_a_space_that_looks_alike_from_everywhere_says_nothing(self) -> None:
        rows = np.random.default_rng(0).standard_normal((900, 16)).astype(np.float32)
        found = fit_aligner(rows, rows, try_methods=("rotation",))
        assert found.source.kinship(torch.from_numpy(rows[:, ::-1].copy())).score is None


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def edit(path: Path) -> None:
    about = json.loads(path.read_text())
    about["side"] = "corpus"
    path.write_text(json.dumps(about))


def newer(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))


class TestFolder:
    @pytest.mark.parametrize("which", ["aligner", "net"])
    def test_is_read_as_it_was_written(self, which: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        written: Aligner = request.getfixturevalue(which)
        written.save(tmp_path / "bridge")
        found = load_aligner(tmp_path / "bridge")
        assert np.array_equal(found.transform(LEFT), written.transform(LEFT))
        assert found.to_json() == json.loads(json.dumps(written.to_json()))
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["aligner.json", "aligner.safetensors", "bridge"]

    def test_is_replaced_only_where_that_is_asked_for(self, aligner: Aligner, tmp_path: Path) -> None:
        aligner.save(tmp_path / "bridge")
        with pytest.raises(InputError, match="--replace"):
            aligner.save(tmp_path / "bridge")
        aligner.save(tmp_path / "bridge", replace=True)
        (tmp_path / "else").mkdir()
        with pytest.raises(InputError, match="something else"):
            aligner.save(tmp_path / "else", replace=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bridge", "else"]

    @pytest.mark.parametrize(
        ("name", "damage", "told"),
        [
            ("aligner.safetensors", flip, "other bytes"),
            ("aligner.safetensors", cut, "must have"),
            ("aligner.safetensors", Path.unlink, "must be there"),
            ("aligner.json", edit, "other values"),
            ("aligner.json", newer, "schema must be 1, got 99"),
            ("aligner.json", cut, "strict JSON"),
            ("aligner.json", Path.unlink, "must be a folder"),
        ],
    )
    def test_damage_is_told_in_one_line(
        self, aligner: Aligner, tmp_path: Path, name: str, damage: Callable[[Path], None], told: str
    ) -> None:
        aligner.save(tmp_path / "bridge")
        damage(tmp_path / "bridge" / name)
        with pytest.raises(InputError, match=told) as caught:
            load_aligner(tmp_path / "bridge")
        assert "\n" not in str(caught.value)

    def test_nothing_is_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="got nothing; make one with"):
            load_aligner(tmp_path / "none")


class TestParts:
    def test_shapes_must_fit(self, aligner: Aligner) -> None:
        with pytest.raises(InputError, match="from 96 to 64 dimensions"):
            Aligner("x", "query", aligner.source, aligner.target, aligner.matrix.T, aligner.offset)

    def test_numbers_must_be_finite(self, aligner: Aligner) -> None:
        with pytest.raises(InputError, match="finite"):
            Aligner("x", "query", aligner.source, aligner.target, aligner.matrix * torch.nan, aligner.offset)

    def test_a_net_must_fit(self, aligner: Aligner) -> None:
        with pytest.raises(InputError, match="net"):
            Aligner(
                "x", "query", aligner.source, aligner.target, aligner.matrix, aligner.offset,
                {"hidden_bias": torch.zeros(3)},
            )  # fmt: skip

    def test_the_side_is_known(self, aligner: Aligner) -> None:
        with pytest.raises(UsageError, match="`side`"):
            Aligner("x", "both", aligner.source, aligner.target, aligner.matrix, aligner.offset)  # type: ignore[arg-type]

    def test_its_repr_says_what_it_is(self, aligner: Aligner) -> None:
        assert repr(aligner) == "Aligner(procrustes, new-model 96-d -> old-model 64-d, side=query)"
        assert (aligner.left_dimension, aligner.right_dimension) == (96, 64)
