"""The encoder against BERT of Hugging Face: segments, post-norm, normalised embeddings, masked-token head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from embedwatch_model import ModelConfig, Transformer
from tests.model.parity.copying import VOCABULARY, copy, copy_all, mask, stirred, tokens


def bert() -> Any:
    config = hf.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=16,
        type_vocab_size=2,
        pad_token_id=0,
    )
    return stirred(hf.BertForMaskedLM(config))


def ours(theirs: Any) -> Transformer:
    model = Transformer(
        ModelConfig(
            kind="encoder",
            vocabulary=VOCABULARY,
            d_model=24,
            d_ff=40,
            layers=3,
            heads=4,
            length=16,
            positions="learned",
            norm="post",
            norm_epsilon=1e-12,
            scaled=False,
            embedding_norm=True,
            segments=2,
        )
    ).eval()
    embeddings, head = theirs.bert.embeddings, theirs.cls.predictions
    copy_all(
        {
            model.embedding.tokens: embeddings.word_embeddings,
            model.embedding.positions.table: embeddings.position_embeddings,
            model.embedding.segments: embeddings.token_type_embeddings,
            model.embedding.norm: embeddings.LayerNorm,
            model.head.transform: head.transform.dense,
            model.head.norm: head.transform.LayerNorm,
        }
    )
    copy(model.head.project.bias, head.bias)
    for layer, block in zip(model.layers, theirs.bert.encoder.layer, strict=True):
        copy_all(
            {
                layer.attention.to_query: block.attention.self.query,
                layer.attention.to_key: block.attention.self.key,
                layer.attention.to_value: block.attention.self.value,
                layer.attention.to_output: block.attention.output.dense,
                layer.attention_norm: block.attention.output.LayerNorm,
                layer.feed_forward.widen: block.intermediate.dense,
                layer.feed_forward.narrow: block.output.dense,
                layer.feed_forward_norm: block.output.LayerNorm,
            }
        )
    return model


@pytest.mark.parametrize("padded", [False, True])
def test_gives_the_same_logits(padded: bool) -> None:
    theirs = bert()
    ids, real = tokens(2, 12), mask([7, 12])
    segments = (torch.arange(12) > 5).long().expand(2, 12)
    with torch.no_grad():
        expected = theirs(ids, token_type_ids=segments, attention_mask=real.long() if padded else None).logits
        found = ours(theirs)(ids, segments=segments, mask=real if padded else None).logits
    assert expected.std() > 0.5
    seen = real if padded else torch.ones_like(real)
    torch.testing.assert_close(found[seen], expected[seen], atol=1e-4, rtol=0)


def test_segment_0_is_the_default() -> None:
    model = ours(bert())
    ids = tokens(2, 5)
    assert torch.equal(model(ids).logits, model(ids, segments=torch.zeros_like(ids)).logits)
    assert not torch.allclose(model(ids).logits, model(ids, segments=torch.ones_like(ids)).logits, atol=1e-2)
