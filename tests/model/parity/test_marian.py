"""The encoder-decoder against Marian of Hugging Face: the paper's own architecture (post-norm, sinusoids, √D, tied).

Marian lays the waves out as all sines, then all cosines; ours alternate, as in the paper. An order of dimensions is a
convention, so every weight that reads or writes the stream has its dimensions reordered here.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from embedwatch_model import Layer, ModelConfig, Stack, Transformer
from tests.model.parity.copying import VOCABULARY, copy, mask, stirred, tokens

D = 24
ORDER = torch.arange(D).view(2, D // 2).T.flatten()
"""Which of Marian's dimensions stands at each of ours: 0, 12, 1, 13, …"""


def marian() -> Any:
    config = hf.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=D,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        max_position_embeddings=32,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
    )
    return stirred(hf.MarianMTModel(config))


def copy_reader(ours: Any, theirs: Any) -> None:
    copy(ours.weight, theirs.weight[:, ORDER])
    copy(ours.bias, theirs.bias)


def copy_writer(ours: Any, theirs: Any) -> None:
    copy(ours.weight, theirs.weight[ORDER])
    copy(ours.bias, theirs.bias[ORDER])


def copy_norm(ours: Any, theirs: Any) -> None:
    copy(ours.weight, theirs.weight[ORDER])
    copy(ours.bias, theirs.bias[ORDER])


def copy_attention(ours: Any, theirs: Any) -> None:
    copy_reader(ours.to_query, theirs.q_proj)
    copy_reader(ours.to_key, theirs.k_proj)
    copy_reader(ours.to_value, theirs.v_proj)
    copy_writer(ours.to_output, theirs.out_proj)


def copy_layer(layer: Layer, block: Any) -> None:
    copy_attention(layer.attention, block.self_attn)
    copy_norm(layer.attention_norm, block.self_attn_layer_norm)
    copy_reader(layer.feed_forward.widen, block.fc1)
    copy_writer(layer.feed_forward.narrow, block.fc2)
    copy_norm(layer.feed_forward_norm, block.final_layer_norm)


def ours(theirs: Any) -> Transformer:
    model = Transformer(
        ModelConfig(
            kind="encoder_decoder",
            vocabulary=VOCABULARY,
            d_model=D,
            d_ff=40,
            layers=2,
            heads=4,
            length=32,
            norm="post",
            activation="relu",
        )
    ).eval()
    copy(model.embedding.tokens.weight, theirs.model.shared.weight[:, ORDER])
    stacks: list[tuple[Stack, Any]] = [(model, theirs.model.decoder), (model.encoder, theirs.model.encoder)]
    for stack, blocks in stacks:
        for layer, block in zip(stack.layers, blocks.layers, strict=True):
            copy_layer(layer, block)
    for layer, block in zip(model.layers, theirs.model.decoder.layers, strict=True):
        copy_attention(layer.cross_attention, block.encoder_attn)
        copy_norm(layer.cross_norm, block.encoder_attn_layer_norm)
    return model


def logits(theirs: Any, source: Tensor, source_mask: Tensor | None, ids: Tensor) -> Tensor:
    attention = None if source_mask is None else source_mask.long()
    found: Tensor = theirs(input_ids=source, attention_mask=attention, decoder_input_ids=ids).logits
    return found


@pytest.mark.parametrize("padded", [False, True])
def test_gives_the_same_logits(padded: bool) -> None:
    theirs = marian()
    source, ids = tokens(2, 11), tokens(2, 8, seed=1)
    real = mask([6, 11]) if padded else None
    with torch.no_grad():
        expected = logits(theirs, source, real, ids)
        found = ours(theirs)(ids, source=source, source_mask=real).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_encodes_the_same() -> None:
    theirs = marian()
    source, real = tokens(2, 11), mask([6, 11])
    with torch.no_grad():
        expected = theirs.model.encoder(source, attention_mask=real.long()).last_hidden_state[..., ORDER]
        found = ours(theirs).encode(source, real)
    torch.testing.assert_close(found[real], expected[real], atol=1e-4, rtol=0)


def test_the_waves_are_the_same_but_for_their_order() -> None:
    theirs = marian().model.encoder.embed_positions.weight
    table = ours(marian()).embedding.positions.table
    torch.testing.assert_close(table, theirs[:, ORDER], atol=1e-6, rtol=0)
