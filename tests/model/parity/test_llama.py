"""The decoder against Llama of Hugging Face: RoPE and its scalings, grouped keys, RMSNorm, SwiGLU, untied."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
import transformers as hf

from embedwatch_model import ModelConfig, Transformer
from tests.model.parity.copying import VOCABULARY, copy_all, mask, stirred, tokens

LENGTH = 64
SCALINGS = {
    "none": (None, {"rope_type": "default"}),
    "linear": ({"kind": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    "yarn": (
        {"kind": "yarn", "factor": 4.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": LENGTH},
    ),
}


def llama(rope: dict[str, Any], base: float = 10_000.0) -> Any:
    config = hf.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        rms_norm_eps=1e-6,
        rope_parameters={**rope, "rope_theta": base},
        tie_word_embeddings=False,
    )
    return stirred(hf.LlamaForCausalLM(config))


def ours(theirs: Any, scaling: dict[str, Any] | None = None, base: float = 10_000.0) -> Transformer:
    model = Transformer(
        ModelConfig(
            vocabulary=VOCABULARY,
            d_model=32,
            d_ff=40,
            layers=2,
            heads=4,
            kv_heads=2,
            length=LENGTH,
            positions="rope",
            rope_base=base,
            rope_scaling=scaling,
            norm_kind="rms",
            norm_epsilon=1e-6,
            activation="swiglu",
            scaled=False,
            tied=False,
        )
    ).eval()
    copy_all({model.embedding.tokens: theirs.model.embed_tokens, model.norm: theirs.model.norm})
    copy_all({model.head: theirs.lm_head})
    for layer, block in zip(model.layers, theirs.model.layers, strict=True):
        attention, feed_forward = layer.attention, layer.feed_forward
        copy_all(
            {
                layer.attention_norm: block.input_layernorm,
                layer.feed_forward_norm: block.post_attention_layernorm,
                attention.to_query: block.self_attn.q_proj,
                attention.to_key: block.self_attn.k_proj,
                attention.to_value: block.self_attn.v_proj,
                attention.to_output: block.self_attn.o_proj,
                feed_forward.gate: block.mlp.gate_proj,
                feed_forward.widen: block.mlp.up_proj,
                feed_forward.narrow: block.mlp.down_proj,
            }
        )
    return model


@pytest.mark.parametrize("name", SCALINGS)
def test_gives_the_same_logits(name: str) -> None:
    scaling, rope = SCALINGS[name]
    theirs = llama(rope)
    ids = tokens(2, 50)
    with torch.no_grad():
        expected = theirs(ids).logits
        found = ours(theirs, scaling)(ids).logits
    assert expected.std() > 0.5
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_a_scaling_makes_a_difference() -> None:
    theirs = llama({"rope_type": "default"})
    ids = tokens(1, 50)
    outputs = [ours(theirs, scaling)(ids).logits for scaling, _ in SCALINGS.values()]
    assert all(not torch.allclose(a, b, atol=1e-2) for a, b in pairwise(outputs))


@pytest.mark.parametrize("left", [False, True])
def test_padding_is_the_same(left: bool) -> None:
    theirs = llama({"rope_type": "default"}, base=500.0)
    real = mask([4, 9], left=left)
    ids = tokens(2, 9)
    with torch.no_grad():
        expected = theirs(ids, attention_mask=real.long()).logits
        found = ours(theirs, base=500.0)(ids, mask=real).logits
    torch.testing.assert_close(found[real], expected[real], atol=1e-4, rtol=0)
