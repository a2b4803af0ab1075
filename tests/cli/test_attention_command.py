"""`embedwatch attention`, and its part of `embedwatch audit --deep`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from embedwatch.cli.main import main
from tests.loading import tiny
from tests.quiet import quiet_transformers


@pytest.fixture(scope="module", autouse=True)
def _silent() -> Iterator[None]:
    with quiet_transformers():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save("llama-lm", tmp_path_factory.mktemp("attention") / "tiny-llama")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(tiny.texts(60, 19)), encoding="utf-8")
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_layers_are_judged_and_heads_told_of(folder: Path, texts: Path) -> None:
    result = run("attention", folder, "--text", texts, "--heads", "1.0")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("tiny-llama/attention  ")
    assert "2 of 2 layers are sound." in result.stdout
    assert "Attention from query to key of head 0 of layer 1, layers.1.self_attn" in result.stdout
    lines = result.stdout.splitlines()
    drawn = [line for line in lines if line.startswith("  ") and line.split()[0] in ("[CLS]", "w0", "w7")]
    assert "[CLS] █" in drawn[0]
    assert lines[-1].endswith(" ok  (exit 0)")


def test_json_holds_every_head(folder: Path, texts: Path) -> None:
    result = run("attention", folder, "--text", texts, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == data["exit"] == 0
    assert data["errors"] == []
    assert [(head["layer"], head["head"]) for head in data["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in data["heads"]:
        assert {"attention_entropy_ratio", "attention_own_ratio", "attention_logit_max"} <= set(head["measurements"])
    overview, *layers = data["spaces"]
    assert [space["snapshot"]["space"]["place"] for space in layers] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert overview["exhibits"][0]["name"] == "attention_heads_table"
    shapes = {exhibit["shape"] for exhibit in overview["exhibits"][1:]}
    assert shapes <= {"matrix"}


def test_wrong_use_is_one_line(folder: Path, texts: Path, tmp_path: Path) -> None:
    for arguments, words in (
        ((folder,), "Missing option '--text'"),
        ((folder, "--text", texts, "--heads", "x"), "`heads` must be layers and heads such as 3.5,0.1, got 'x'"),
        ((folder, "--text", texts, "--heads", "9.0"), "there are 2 layers"),
        ((folder, "--text", texts, "--length", "2"), "`length` must be at least 8 tokens, got 2"),
        ((folder, "--text", texts, "--only", "norms"), "leave nothing of attention to measure"),
        ((folder, "--text", tmp_path / "none.txt"), "none.txt"),
        ((tmp_path / "nowhere", "--text", texts), "must be a directory with config.json"),
    ):
        result = run("attention", *arguments)
        assert result.exit_code == 2, arguments
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


def test_a_deep_audit_with_texts_judges_attention_and_with_prompts_what_is_written(
    folder: Path, texts: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w1 w2 w3\nw4 w5\n", encoding="utf-8")
    named = ("--only", "attention_places", "--only", "generation", "--skip", "generation_greedy")
    result = run("audit", folder, "--text", texts, "--deep", "--prompts", prompts, "--json", *named)
    data = json.loads(result.stdout)
    assert data["errors"] == []
    places = [space["snapshot"]["space"]["place"] for space in data["spaces"]]
    assert places == ["generation", "attention", "layers.0.self_attn", "layers.1.self_attn"]
    verdicts = {verdict["check"]: verdict["status"] for space in data["spaces"] for verdict in space["verdicts"]}
    assert verdicts["generation_loops"] == "ok"
    assert verdicts["attention_diagonal"] == "ok"
    shown = run("audit", folder, "--text", texts, "--deep", *named).stdout
    assert "tiny-llama/attention" in shown
    assert "layers.0.self_attn  " not in shown  # people are told of layers that are not sound
