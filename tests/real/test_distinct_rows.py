"""A model that is asked the same in batches of many shapes gives few distinct rows, though their last bits wobble."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from embedwatch.batch import VectorBatch
from embedwatch.stats.distinct_rows import DistinctRows

pytestmark = pytest.mark.real
TEXT = "the quick brown fox jumps over the lazy dog again"
OTHERS = ("cats", "hello there", "a much longer sentence that goes on and on, so that padding differs between batches")
WAYS = 4
"""So many times more rows than there are may differ, since a model computes the same in a few ways."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_text_in_batches_of_many_shapes_is_few_rows(minilm: Path, dtype: torch.dtype) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm, dtype=dtype).eval()
    tokens = len(tokenizer(TEXT)["input_ids"])
    statistic = DistinctRows()
    with torch.no_grad():
        for copies in range(1, 7):
            for extra in range(len(OTHERS) + 1):
                texts = [*[TEXT] * copies, *OTHERS[:extra]]
                last = model(**tokenizer(texts, return_tensors="pt", padding=True)).last_hidden_state
                statistic.update(VectorBatch(last[:copies, :tokens].flatten(0, 1)))
    found = statistic.compute()[0].number
    assert found is not None
    assert tokens <= found <= WAYS * tokens
