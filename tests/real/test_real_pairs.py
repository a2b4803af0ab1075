"""The ladder on real models: each use of MiniLM and e5 beside another has its name, and strangers are strangers."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from embedwatch.align.checking import Compatibility, check_pair
from embedwatch.align.mixed import find_mixed
from embedwatch.loading import Subject, load_subject

pytestmark = [pytest.mark.real, pytest.mark.slow]

COUNT = 400
LONGEST = 14
"""Words of a text, so that the tests stay short."""
LIMIT = 12


def sentences(count: int) -> list[str]:
    """Return first lines of docstrings of the standard library, each once, of 4 to 24 words."""
    found: dict[str, None] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                line = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                if 4 <= len(line.split()) <= LONGEST:
                    found[line] = None
    lines = sorted(found)
    order = np.random.default_rng(0).permutation(len(lines))[:count]
    assert len(order) == count
    return [lines[place] for place in order]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sentences(COUNT)


@pytest.fixture(scope="module")
def subject(minilm: Path) -> Subject:
    return load_subject(minilm)


@pytest.fixture(scope="module")
def base(subject: Subject, texts: list[str]) -> Tensor:
    return subject.encode(texts)


@pytest.fixture(scope="module")
def e5_rows(e5: Path, texts: list[str]) -> dict[str, Tensor]:
    other = load_subject(e5)
    return {prefix: other.encode(texts, prefix=prefix) for prefix in ("query: ", "passage: ")}


def _bfloat16(folder: Path, texts: list[str]) -> Tensor:
    subject = load_subject(folder)
    subject.module().bfloat16()
    return subject.encode(texts).float()


def _int8(folder: Path, texts: list[str]) -> Tensor:
    subject = load_subject(folder)
    for module in subject.module().modules():
        if isinstance(module, torch.nn.Linear):
            step = module.weight.detach().abs().max() / 127
            module.weight.data = (module.weight.detach() / step).round() * step
            module.register_forward_pre_hook(_eight_bits)
    return subject.encode(texts)


def _eight_bits(module: torch.nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """Round what enters a layer to 256 levels, as dynamic quantisation does."""
    (rows,) = inputs
    step = (rows.max() - rows.min()) / 255
    return ((rows / step).round() * step,)


def _cut(subject: Subject, texts: list[str]) -> Tensor:
    return replace(subject.encoder(), limit=LIMIT).encode(texts).vectors


def _check(folder: Path, left: Tensor, right: Tensor) -> Compatibility:
    paths = folder / "left.npy", folder / "right.npy"
    for path, rows in zip(paths, (left, right), strict=True):
        np.save(path, rows.numpy())
    return check_pair(*paths, on_error="raise")


@pytest.mark.parametrize(
    ("change", "verdict", "cause", "low", "high"),
    [
        (lambda s, m, t: s.encode(t), "identical", "", 1.0, 1.0),
        (lambda s, m, t: 6.34 * s.encode(t), "identical", "normalisation", 1.0, 1.0),
        (lambda s, m, t: _bfloat16(m, t), "identical", "precision", 0.985, 0.998),
        (lambda s, m, t: s.encode(t).bfloat16().float(), "identical", "precision", 0.995, 1.0),
        (lambda s, m, t: _int8(m, t), "degraded", "precision", 0.75, 0.92),
        (lambda s, m, t: _cut(s, t), "degraded", "truncation", 0.75, 0.98),
        (lambda s, m, t: s.encode(t)[:, :256], "mismatch", "truncation", 0, 1),
        (lambda s, m, t: s.encode(t, pooling="cls"), "mismatch", "pooling", 0.35, 0.7),
        (lambda s, m, t: s.encode(t, pooling="max"), "mismatch", "pooling", 0.25, 0.7),
        (lambda s, m, t: s.encode(t, pooling="last"), "mismatch", "configuration", 0.5, 0.8),
        (lambda s, m, t: s.encode(t, prefix="query: "), "mismatch", "prefix", 0.6, 0.85),
    ],
)
def test_each_use_of_minilm_has_its_name(
    tmp_path: Path,
    subject: Subject,
    minilm: Path,
    texts: list[str],
    base: Tensor,
    change: Callable[[Subject, Path, list[str]], Tensor],
    verdict: str,
    cause: str,
    low: float,
    high: float,
) -> None:
    found = _check(tmp_path, base, change(subject, minilm, texts))
    assert (found.verdict, found.cause) == (verdict, cause), found.finding.told
    overlap = found.number("overlap_ratio")
    assert overlap is None or low <= overlap <= high


def test_a_prefix_of_e5_is_a_mismatch_though_cosines_are_high(tmp_path: Path, e5_rows: dict[str, Tensor]) -> None:
    found = _check(tmp_path, e5_rows["query: "], e5_rows["passage: "])
    assert (found.verdict, found.cause) == ("mismatch", "configuration"), found.finding.told  # as a pooling may
    own, other = (found.number("cosine", pairs=pairs) or 0 for pairs in ("own", "other"))
    assert own > 0.93
    assert other > 0.75
    assert (found.number("recall_ratio", k="1") or 0) > 0.98


def test_two_models_of_as_many_dimensions_are_alignable_and_not_compatible(
    tmp_path: Path, base: Tensor, e5_rows: dict[str, Tensor]
) -> None:
    found = _check(tmp_path, base, e5_rows["query: "])
    assert found.verdict == "alignable", found.finding.told
    assert (found.number("overlap_ratio") or 0) < 0.03
    assert (found.number("recall_ratio", k="10") or 0) < 0.04
    assert 0.45 < (found.number("cka") or 0) < 0.65
    assert (found.number("aligned_recall_ratio", k="10") or 0) > 0.9


def test_a_rotated_copy_is_recognised_and_never_compatible(tmp_path: Path, base: Tensor) -> None:
    turn = torch.linalg.qr(torch.randn(384, 384, generator=torch.Generator().manual_seed(0))).Q
    found = _check(tmp_path, base, base @ turn)
    assert (found.verdict, found.cause, found.status) == ("alignable", "rotation", "fail")
    assert found.number("cka") == pytest.approx(1, abs=1e-4)
    assert found.number("mutual_ratio") == pytest.approx(1, abs=1e-3)
    assert (found.number("overlap_ratio") or 0) < 0.03


def test_strangers_and_shuffled_rows(tmp_path: Path, base: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    noise, order = torch.randn(base.shape, generator=generator), torch.randperm(len(base), generator=generator)
    assert _check(tmp_path, base, noise).verdict == "unrelated"
    assert _check(tmp_path, base, base[order]).verdict == "mispaired"


def test_rows_of_other_uses_are_found_in_a_store(
    tmp_path: Path, minilm: Path, subject: Subject, texts: list[str], base: Tensor, e5_rows: dict[str, Tensor]
) -> None:
    texts, store = texts[:300], base[:300].clone()
    store[20:40] = subject.encode(texts[20:40], pooling="cls")
    store[60:80] = subject.encode(texts[60:80], prefix="query: ")
    store[100:110] = e5_rows["query: "][100:110]
    np.save(tmp_path / "store.npy", store.numpy())
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    found = find_mixed(tmp_path / "store.npy", model=minilm, text=tmp_path / "texts.txt")
    groups = {(group.name, group.told.partition(": ")[2]): group.ids for group in found.groups}
    assert groups["recipe", "cls pooling"] == tuple(range(20, 40))
    assert groups["recipe", 'prefix "query: "'] == tuple(range(60, 80))
    assert groups["other", ""] == tuple(range(100, 110))
    assert len(groups["agrees", ""]) == 250
    assert found.false_positives is not None
    assert found.false_positives < 0.013
