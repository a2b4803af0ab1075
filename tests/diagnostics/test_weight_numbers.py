"""NaN and Inf in weights, wherever they stand, in a folder and in a live model; masks and zeros are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import embedwatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.verdict import Verdict
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading import load_subject
from embedwatch.loading.examinable import Examinable
from embedwatch.loading.live import LiveSubject
from embedwatch.loading.weights import PIECE
from embedwatch_model import ModelConfig, Transformer
from tests.loading import tiny
from tests.quiet import quiet_transformers

QUERY = "model.layers.1.self_attn.q_proj.weight"
HEAD = "lm_head.weight"
Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small language model as `save_pretrained` writes it, its head not tied."""
    path = tmp_path_factory.mktemp("model")
    with quiet_transformers():
        tiny.build("llama-lm-untied").save_pretrained(path)
    return path


def changed(folder: Path, to: Path, change: Callable[[Weights], Any]) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    return to


def examined(subject: Examinable) -> tuple[dict[str, float | None], Verdict | None, Exhibit]:
    (judged,) = diagnose(Inquiry(subject), only=["weight_numbers"], exhibits=True, boundary=Boundary(on_error="raise"))
    numbers = {measurement.name: measurement.number for measurement in judged.snapshot}
    verdict = next((each for each in judged.verdicts if each.check == "nonfinite_weights"), None)
    return numbers, verdict, judged.exhibits[0]


def nan_queries(weights: Weights) -> None:
    weights[QUERY].fill_(torch.nan)


def one_infinite_logit(weights: Weights) -> None:
    weights[HEAD][7, 3] = -torch.inf


@pytest.mark.parametrize(
    ("change", "named", "nan", "inf"), [(nan_queries, QUERY, 256, 0), (one_infinite_logit, HEAD, 0, 1)]
)
@pytest.mark.parametrize("live", [False, True])
def test_weights_that_are_no_numbers_fail_and_are_named(
    folder: Path, tmp_path: Path, change: Callable[[Weights], Any], named: str, nan: int, inf: int, live: bool
) -> None:
    path = changed(folder, tmp_path / "broken", change)
    subject: Examinable = load_subject(path)
    if live:
        writer = subject.writer()
        assert writer is not None
        subject = LiveSubject(writer)
    numbers, verdict, odd = examined(subject)
    assert verdict is not None
    assert (verdict.status, numbers["nonfinite_weights"]) == ("fail", nan + inf)
    assert "in 1 of " in verdict.reason
    assert [row[0] for row in odd.rows] == [named]
    assert odd.rows[0][2:4] == (nan, inf)


def test_an_audit_of_a_model_finds_them_without_running_it(folder: Path, tmp_path: Path) -> None:
    assert embedwatch.audit(folder, only=["weight_numbers"]).status == "ok"
    broken = embedwatch.audit(changed(folder, tmp_path / "broken", nan_queries), only=["nonfinite_weights"])
    assert broken.status == "fail"
    assert [exhibit.rows[0][0] for judged in broken.spaces for exhibit in judged.exhibits] == [QUERY]


def test_a_folder_is_read_from_its_files_and_no_model_is_built(folder: Path) -> None:
    subject = load_subject(folder)
    numbers, verdict, odd = examined(subject)
    assert verdict is not None
    assert verdict.status == "ok"
    assert numbers["weight_tensors"] == len(load_file(folder / "model.safetensors"))
    assert not odd.rows
    assert not subject._backbones
    assert not subject._writer


def test_pieces_of_a_file_are_the_tensor(tmp_path: Path) -> None:
    from embedwatch.loading.weights import Weights

    long = torch.arange(PIECE // 8 + 5, dtype=torch.float64)
    save_file({"long": long, "one": torch.tensor(2.0)}, tmp_path / "model.safetensors")
    weights = Weights(tmp_path)
    pieces = list(weights.pieces("long"))
    assert [len(piece) for piece in pieces] == [PIECE // 8, 5]
    assert torch.equal(torch.cat(pieces), long)
    assert [piece.tolist() for piece in weights.pieces("one")] == [[2.0]]
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(InputError, match="got one that was cut while it was read"):
        list(weights.pieces("long"))


def test_what_follows_in_modules_is_read_too(tmp_path: Path) -> None:
    with quiet_transformers():
        tiny.build("bert").save_pretrained(tmp_path)
    dense = tmp_path / "2_Dense"
    dense.mkdir()
    save_file({"linear.weight": torch.full((4, 16), torch.inf)}, dense / "model.safetensors")
    kind = "sentence_transformers.models"
    (tmp_path / "modules.json").write_text(
        f'[{{"type": "{kind}.Transformer", "path": ""}}, {{"type": "{kind}.Dense", "path": "2_Dense"}}]'
    )
    numbers, verdict, odd = examined(load_subject(tmp_path))
    assert verdict is not None
    assert (verdict.status, numbers["nonfinite_weights"]) == ("fail", 64)
    assert [row[0] for row in odd.rows] == ["2_Dense/linear.weight"]


class Odd(nn.Module):
    """Healthy weights beside what only looks broken: a mask, a saved step, quantised numbers, what is not loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        mask = torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
        self.register_buffer("mask", mask)
        self.register_buffer("cache", torch.full((4, 4), torch.nan), persistent=False)
        self.register_buffer("step", torch.tensor(3))
        self.register_buffer("packed", torch.zeros(4, 4, dtype=torch.int8))
        self.later = nn.Linear(4, 4, device="meta")
        self.empty = nn.Parameter(torch.empty(0, 4))


def test_masks_quantised_and_missing_weights_are_left_out() -> None:
    numbers, verdict, odd = examined(LiveSubject(Odd()))
    assert verdict is not None
    assert verdict.status == "ok"
    assert numbers["weight_tensors"] == 2
    assert not odd.rows
    model = Odd()
    model.register_buffer("mean", torch.tensor([[1.0, -torch.inf]]))
    found, broken, _ = examined(LiveSubject(model))
    assert broken is not None
    assert (broken.status, found["nonfinite_weights"]) == ("fail", 1), "a mask holds 0 and -Inf alone"


def test_without_any_weights_nothing_is_judged() -> None:
    _, verdict, _ = examined(LiveSubject(nn.Linear(4, 4, device="meta")))
    assert verdict is None


def test_shared_weights_come_once_and_zeros_and_huge_ones_are_information() -> None:
    model = Transformer(ModelConfig(vocabulary=50, d_model=16, layers=2, heads=2))
    names = [entries.name for entries in LiveSubject(model).every_weight()]
    assert len(names) == len(set(names)) == len(list(model.parameters()))
    first, second = nn.Linear(4, 4).half(), nn.Linear(4, 4).half()
    with torch.no_grad():
        first.weight.zero_()
        first.bias.zero_()
        second.weight[0, 0] = 60_000
    numbers, verdict, odd = examined(LiveSubject(nn.Sequential(first, second)))
    assert verdict is not None
    assert verdict.status == "ok"
    assert (numbers["zero_weight_tensors"], numbers["huge_weight_tensors"]) == (1, 1)
    assert [row[0] for row in odd.rows] == ["0.weight", "1.weight"]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_what_is_sparse_is_looked_at_as_well() -> None:
    model, graph = nn.Linear(3, 3), torch.eye(3)
    graph[1, 1] = torch.nan
    model.register_buffer("graph", graph.to_sparse())
    model.register_buffer("rows", graph.to_sparse_csr())
    entries = {each.name: each for each in LiveSubject(model).every_weight()}
    assert entries.keys() == {"weight", "bias", "graph", "rows"}
    for name in ("graph", "rows"):
        assert sum(int(piece.isnan().sum()) for piece in entries[name].pieces()) == 1
