"""The encoder-decoder against T5 of Hugging Face: relative bias, pre-norm, RMSNorm, no biases.

T5 does not divide scores by √K (its initialisation does), so its query weights are multiplied by √K here; and where its
tables are tied it divides the last states by √D, which goes into the weights of the last norm.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers as hf

from embedwatch_model import ModelConfig, Stack, Transformer
from tests.model.parity.copying import VOCABULARY, copy, copy_all, copy_module, mask, stirred, tokens

D, HEADS = 24, 4


def t5(tied: bool) -> Any:
    config = hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=D,
        d_kv=D // HEADS,
        d_ff=40,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=HEADS,
        feed_forward_proj="relu",
        tie_word_embeddings=tied,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    return stirred(hf.T5ForConditionalGeneration(config))


def copy_attention(ours: Any, theirs: Any) -> None:
    copy(ours.to_query.weight, theirs.q.weight * math.sqrt(D // HEADS))
    copy(ours.to_query.bias, None)
    copy_all({ours.to_key: theirs.k, ours.to_value: theirs.v, ours.to_output: theirs.o})


def copy_stack(stack: Stack, theirs: Any) -> None:
    copy_module(stack.norm, theirs.final_layer_norm)
    bias = theirs.block[0].layer[0].SelfAttention.relative_attention_bias
    copy_module(stack.embedding.positions.table, bias)
    for layer, block in zip(stack.layers, theirs.block, strict=True):
        copy_attention(layer.attention, block.layer[0].SelfAttention)
        copy_module(layer.attention_norm, block.layer[0].layer_norm)
        last = block.layer[-1]
        copy_all({layer.feed_forward.widen: last.DenseReluDense.wi, layer.feed_forward.narrow: last.DenseReluDense.wo})
        copy_module(layer.feed_forward_norm, last.layer_norm)


def ours(theirs: Any, tied: bool) -> Transformer:
    model = Transformer(
        ModelConfig(
            kind="encoder_decoder",
            vocabulary=VOCABULARY,
            d_model=D,
            d_ff=40,
            layers=2,
            heads=HEADS,
            positions="relative",
            norm_kind="rms",
            norm_epsilon=1e-6,
            activation="relu",
            scaled=False,
            tied=tied,
        )
    ).eval()
    copy_all({model.embedding.tokens: theirs.shared, model.encoder.embedding.tokens: theirs.shared})
    copy_stack(model, theirs.decoder)
    copy_stack(model.encoder, theirs.encoder)
    copy_module(model.head, theirs.lm_head)
    if theirs.config.scale_decoder_outputs:
        copy(model.norm.weight, theirs.decoder.final_layer_norm.weight / math.sqrt(D))
    for layer, block in zip(model.layers, theirs.decoder.block, strict=True):
        copy_attention(layer.cross_attention, block.layer[1].EncDecAttention)
        copy_module(layer.cross_norm, block.layer[1].layer_norm)
    return model


@pytest.mark.parametrize("tied", [False, True])
def test_gives_the_same_logits(tied: bool) -> None:
    theirs = t5(tied)
    source, ids, real = tokens(2, 140), tokens(2, 150, seed=1), mask([90, 140])  # beyond the last bucket, at 128
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=real.long(), decoder_input_ids=ids).logits
        found = ours(theirs, tied)(ids, source=source, source_mask=real).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
