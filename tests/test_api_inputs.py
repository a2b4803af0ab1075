"""What people hand to the library by mistake is refused in one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import embedwatch
from embedwatch.align.fitting import fit_aligner
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import UsageError
from embedwatch.core.registry import get
from embedwatch.core.sink import Sink

ROWS = np.random.default_rng(0).normal(size=(40, 8)).astype("float32")
TENSOR = torch.from_numpy(ROWS)


def jsonl(path: str) -> Sink:
    return get(Sink, "jsonl").open(path)


def anything(value: object) -> Any:
    """What a caller without a type checker hands over."""
    return value


CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: embedwatch.audit(anything(ROWS)), "got ndarray; save an array with numpy.save"),
    (lambda: embedwatch.audit(anything(TENSOR)), "got Tensor; save an array with numpy.save"),
    (lambda: embedwatch.audit(anything(None)), "got NoneType; "),
    (lambda: embedwatch.audit(anything(b"rows.npy")), "got bytes; "),
    (lambda: embedwatch.audit("rows.npy", sinks=anything(["log"])), "`sinks` must be a list of Sinks, got 'log'; open"),
    (lambda: embedwatch.audit("rows.npy", sinks=anything(None)), "`sinks` must be a list of Sinks, got None; open"),
    (lambda: Boundary(on_error=anything("x")), "`on_error` must be count or raise, got 'x'; count is usual"),
    (lambda: embedwatch.watch(nn.Embedding(5, 4), name="a\x1b[31m"), "`name` must be a text of at most 200 characters"),
    (lambda: embedwatch.watch(nn.Embedding(5, 4), name=anything(5)), "`name` must be a text"),
    (lambda: jsonl("a\0b"), "which no file is called; name another"),
    (lambda: fit_aligner(ROWS.astype(object), ROWS), "`left` must be a matrix (N, D) of floats, got object (40, 8)"),
    (lambda: fit_aligner(ROWS, ROWS.astype("complex64")), "`right` must be a matrix (N, D) of floats, got complex64"),
    (lambda: fit_aligner(TENSOR.to_sparse(), TENSOR), "that is sparse; convert it first"),
    (lambda: fit_aligner(TENSOR.to("meta"), TENSOR), "without its numbers; convert it first"),
    (lambda: fit_aligner(ROWS, ROWS, seed=10**30), "`seed` must be a whole number from 0 to 2,147,483,647"),
    (lambda: fit_aligner(ROWS, ROWS, queries=anything((ROWS,))), "`queries` must be two, of the left and of the right"),
]


@pytest.mark.parametrize(("call", "told"), CALLS, ids=[told for _, told in CALLS])
def test_a_mistake_is_one_line(call: Callable[[], object], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        call()
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_texts_that_are_none_are_refused_before_a_model_is_examined() -> None:
    with embedwatch.watch(nn.Embedding(5, 4), sinks=[]) as monitor:
        for texts in (5, "one text"):
            with pytest.raises(UsageError, match=r"`texts` must be a list of texts, got .*; put each in a list"):
                monitor.diagnose(texts=anything(texts))


def test_a_configuration_of_far_more_weights_than_the_files_hold_takes_no_memory(tmp_path: Path) -> None:
    from embedwatch.loading import load_subject
    from tests.loading import tiny

    folder = tiny.save("bert", tmp_path / "bert")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 60', '"vocab_size": 1000000000'))
    with pytest.raises(
        embedwatch.InputError, match=r"must hold the 16,0\d\d,\d+,\d+ weights that its config.json describes"
    ):
        load_subject(folder).module()
