"""The decoder against GPT-2 of Hugging Face: learned positions, pre-norm, GELU, tied."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from embedwatch_model import ModelConfig, Transformer
from tests.model.parity.copying import VOCABULARY, copy, copy_all, mask, stirred, tokens


def gpt2() -> Any:
    config = hf.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=24,
        n_layer=3,
        n_head=4,
        n_positions=16,
        activation_function="gelu",
        bos_token_id=1,
        eos_token_id=1,
    )
    return stirred(hf.GPT2LMHeadModel(config))


def ours(theirs: Any) -> Transformer:
    model = Transformer(
        ModelConfig(vocabulary=VOCABULARY, d_model=24, layers=3, heads=4, length=16, positions="learned", scaled=False)
    ).eval()
    body = theirs.transformer
    copy_all({model.embedding.tokens: body.wte, model.embedding.positions.table: body.wpe, model.norm: body.ln_f})
    for layer, block in zip(model.layers, body.h, strict=True):
        copy_all({layer.attention_norm: block.ln_1, layer.feed_forward_norm: block.ln_2})
        attention = layer.attention
        for i, linear in enumerate([attention.to_query, attention.to_key, attention.to_value]):
            copy(linear.weight, block.attn.c_attn.weight[:, i * 24 : (i + 1) * 24].T)
            copy(linear.bias, block.attn.c_attn.bias[i * 24 : (i + 1) * 24])
        transposed = {attention.to_output: block.attn.c_proj}
        transposed |= {layer.feed_forward.widen: block.mlp.c_fc, layer.feed_forward.narrow: block.mlp.c_proj}
        for linear, convolution in transposed.items():
            copy(linear.weight, convolution.weight.T)
            copy(linear.bias, convolution.bias)
    return model


def test_gives_the_same_logits() -> None:
    theirs = gpt2()
    ids = tokens(2, 16)
    with torch.no_grad():
        expected = theirs(ids).logits
        found = ours(theirs)(ids).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_hidden_states_between_layers_are_the_same() -> None:
    theirs = gpt2()
    model = ours(theirs)
    seen = []
    for place in [model.embedding, *(layer.residual for layer in model.layers)]:
        place.register_forward_hook(lambda module, inputs, output: seen.append(output))
    ids = tokens(1, 9)
    with torch.no_grad():
        expected = theirs(ids, output_hidden_states=True).hidden_states
        output = model(ids)
    for mine, their in zip([*seen[:-1], output.hidden], expected, strict=True):
        torch.testing.assert_close(mine, their, atol=1e-4, rtol=0)


@pytest.mark.parametrize("left", [False, True])
def test_padding_is_the_same(left: bool) -> None:
    theirs = gpt2()
    real = mask([4, 9], left=left)
    ids = tokens(2, 9)
    at = (real.long().cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = theirs(ids, attention_mask=real.long(), position_ids=at).logits
        found = ours(theirs)(ids, mask=real).logits
    torch.testing.assert_close(found[real], expected[real], atol=1e-4, rtol=0)


def test_gradients_are_the_same() -> None:
    theirs = gpt2()
    model = ours(theirs)
    ids = tokens(2, 8)
    for each in (theirs, model):
        torch.nn.functional.cross_entropy(each(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    pairs = [(model.embedding.tokens.weight.grad, theirs.transformer.wte.weight.grad)]
    pairs += [
        (layer.feed_forward.widen.weight.grad, block.mlp.c_fc.weight.grad.T)
        for layer, block in zip(model.layers, theirs.transformer.h, strict=True)
    ]
    for mine, their in pairs:
        torch.testing.assert_close(mine, their, atol=1e-5, rtol=1e-3)
