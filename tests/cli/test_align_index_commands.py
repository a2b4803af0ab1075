"""`embedwatch align index` and `align plan` as a user and a machine meet them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from embedwatch.cli import main
from embedwatch.testing.spaces import two_spaces
from tests.align.spaces import fitted
from tests.ann.index_makers import built, written


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["align", *map(str, arguments)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bridge from a new model to an old one, the same documents in both, and an index of the old one."""
    place = tmp_path_factory.mktemp("move")
    new, old = two_spaces(900, mean=0.4)
    fitted(new, old, "query").save(place / "bridge")
    fitted(old, new).save(place / "forward")
    np.save(place / "new.npy", new)
    np.save(place / "old.npy", old)
    np.save(place / "few.npy", old[:9])
    np.save(place / "nan.npy", old * np.nan)
    written(place, built("IVF8,Flat", old), "docs.faiss")
    written(place, built("PQ8x4np", old), "coded.faiss")
    return place


def test_a_copy_is_baked_and_said_to_be_a_bridge(folder: Path, tmp_path: Path) -> None:
    done = run("index", folder / "bridge", folder / "docs.faiss", "-o", tmp_path / "new.faiss")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert (
        "map baked into a copy, IVF8,Flat → L2norm,Linear,L2norm,IVF8,Flat, 900 vectors, 64 → 96 dimensions" in lines[0]
    )
    assert "answers: 100.00% of the 10 nearest as before" in lines[2]
    assert any("what is added to it" in line for line in lines)
    assert run("index", folder / "bridge", folder / "docs.faiss", "-o", tmp_path / "new.faiss").exit_code == 2


def test_lossy_vectors_need_a_flag(folder: Path, tmp_path: Path) -> None:
    arguments: list[Any] = ["index", folder / "forward", folder / "coded.faiss", "-o", tmp_path / "moved.faiss"]
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert "coded.faiss keeps 32 of 2,048 bits a vector" in refused.stderr
    assert "--allow-lossy" in refused.stderr
    done = run(*arguments, "--allow-lossy", "--originals", folder / "old.npy", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["mode"], told["rows"]) == ("migrate", 900)
    assert 0.3 < told["loss_mean"] < 1


def test_wrong_input_is_one_line_that_names_the_option(folder: Path, tmp_path: Path) -> None:
    moved = ["index", folder / "forward", folder / "coded.faiss", "-o", tmp_path / "x", "--allow-lossy"]
    plan = ["plan", folder / "bridge", folder / "old.npy", folder / "new.npy"]
    words_file = tmp_path / "found.txt"
    words_file.write_text("1\nx\n")
    for arguments, words in (
        (["index", folder / "bridge", folder / "new.npy", "-o", tmp_path / "x"], "new.npy must begin like an index"),
        (["index", folder / "bridge", folder / "docs.faiss", "-o", folder / "old.npy"], "`--output` must not be there"),
        (["index", folder / "nothing", folder / "docs.faiss", "-o", tmp_path / "x"], "nothing"),
        (["plan", folder / "bridge", folder / "old.npy", folder / "old.npy"], "`aligner` must lead between"),
        ([*plan, "--queries", folder / "new.npy", "--relevant", folder], "cannot be read: Is a directory"),
        (
            [*plan, "--queries", folder / "new.npy", "--relevant", words_file],
            "found.txt:2 must hold a row number, got 'x'",
        ),
        ([*moved, "--originals", folder / "new.npy"], "`--originals` must have 64 dimensions like the index, got 96"),
        ([*moved, "--originals", folder / "few.npy"], "`--originals` must have 900 rows like the index, got 9"),
        ([*moved, "--originals", folder / "nan.npy"], "`--originals` must hold finite rows, got none"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, arguments
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_plan_shows_each_stage(folder: Path, tmp_path: Path) -> None:
    done = run("plan", folder / "bridge", folder / "docs.faiss", folder / "new.npy", "--share", 0.5)
    assert done.exit_code in (0, 1), done.output
    for stage in ("today", "bridge", "two indexes", "mixed", "cutover"):
        assert f"{stage}: " in done.stdout
    assert done.stdout.rstrip().endswith(f"(exit {done.exit_code})")
    (tmp_path / "found.txt").write_text("".join(f"{row}\n" for row in range(900)))
    told = run(
        "plan", folder / "bridge", folder / "old.npy", folder / "new.npy", "--queries", folder / "new.npy",
        "--relevant", tmp_path / "found.txt", "--json",
    )  # fmt: skip
    data = json.loads(told.stdout)
    assert data["exit"] == told.exit_code == int(data["mixing_refused"])
    assert data["stages"][-1]["recall"] == 1.0
    (tmp_path / "found.txt").write_text("one\n")
    bad = run("plan", folder / "bridge", folder / "old.npy", folder / "new.npy", "--relevant", tmp_path / "found.txt")
    assert bad.exit_code == 2
