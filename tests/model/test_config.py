"""Configurations: round trips, sizes, and refusals that say what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from embedwatch_model import ModelConfig, ModelError, Transformer
from tests.model import tiny


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"kind": "encoder", "segments": 2, "norm": "post", "positions": "learned"},
        {"positions": "rope", "rope_scaling": {"kind": "yarn", "factor": 4.0}, "kv_heads": 2, "window": 8},
        {"positions": "relative", "memory": 16, "padding": 0},
    ],
)
def test_survives_json(values: dict[str, Any]) -> None:
    config = ModelConfig(vocabulary=50, **values)
    written = json.loads(json.dumps({"model_type": "embedwatch", **config.to_json()}))
    assert ModelConfig.from_json(written) == config
    assert hash(ModelConfig.from_json(written)) == hash(config)


def test_nobody_else_can_change_it() -> None:
    scaling = {"kind": "linear", "factor": 2.0}
    config = ModelConfig(vocabulary=50, positions="rope", rope_scaling=scaling)
    scaling["factor"] = -1.0
    assert config.rope_scaling == {"kind": "linear", "factor": 2.0}


@pytest.mark.parametrize(("size", "layers"), [("tiny", 2), ("small", 6), ("base", 12), (1, 1), (5, 5)])
def test_widths_follow_the_depth(size: str | int, layers: int) -> None:
    config = ModelConfig.sized(size, vocabulary=50)
    assert (config.layers, config.d_model, config.heads, config.head_size) == (layers, 64 * layers, layers, 64)


def test_overrides_win() -> None:
    config = ModelConfig.sized("tiny", vocabulary=50, heads=4, d_ff=100, kind="encoder")
    assert (config.heads, config.width, config.kind, config.d_model) == (4, 100, "encoder", 128)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "both"}, '`kind` must be one of "decoder", "encoder", "encoder_decoder", got \'both\''),
        ({"positions": "rotary"}, "`positions` must be one of"),
        ({"norm": "none"}, "`norm` must be one of"),
        ({"activation": "tanh"}, "`activation` must be one of"),
        ({"layers": 0}, "`layers` must be at least 1, got 0"),
        ({"d_model": "64"}, "`d_model` must be at least 1, got '64'"),
        ({"d_model": True}, "`d_model` must be at least 1, got True"),
        ({"window": 0}, "`window` must be at least 1"),
        ({"memory": -1}, "`memory` must be at least 0"),
        ({"dropout": 1.0}, r"`dropout` must be a number in \[0, 1\), got 1.0; 0.1 is usual"),
        ({"dropout": "much"}, "`dropout` must be a number"),
        ({"dropout": float("nan")}, "`dropout` must be a number"),
        ({"attention_dropout": -0.1}, "`attention_dropout` must be a number"),
        ({"norm_epsilon": 0.0}, "`norm_epsilon` must be a number"),
        ({"rope_base": 1.0}, "`rope_base` must be a number"),
        ({"tied": "yes"}, "`tied` must be True or False, got 'yes'"),
        ({"heads": 3}, "`d_model` must be a multiple of `heads` 3, got 16"),
        ({"kv_heads": 3}, "`kv_heads` must be a divisor of `heads` 4, got 3"),
        ({"d_model": 15, "heads": 5, "kv_heads": None}, "`d_model` must be even, got 15"),
        ({"d_model": 12, "positions": "rope"}, "`d_model` / `heads` must be even, got 3"),
        ({"padding": 37}, "`padding` must be below `vocabulary` 37, got 37"),
        ({"segments": 2}, '`segments` must be 0 for kind "decoder", got 2'),
        ({"memory": 4, "kind": "encoder"}, '`memory` must be 0 for kind "encoder"'),
        ({"memory": 4, "positions": "learned"}, "absolute positions cannot tell the memory from the present"),
        ({"rope_scaling": {"kind": "yarn", "factor": 2.0}}, "`rope_scaling` must be None with positions"),
        ({"positions": "rope", "rope_scaling": {"kind": "yarn"}}, '`rope_scaling` must have "kind" and "factor"'),
        ({"positions": "rope", "rope_scaling": {"kind": "x", "factor": 2.0}}, "`rope_scaling kind` must be one of"),
        ({"positions": "rope", "rope_scaling": {"kind": "ntk", "factor": 0.5}}, "`rope_scaling factor` must be"),
    ],
)
def test_refuses_what_makes_no_model(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        tiny.config(**values)


def test_refuses_unknown_and_missing_fields() -> None:
    with pytest.raises(ModelError, match="known fields only, got colour, n_layer"):
        ModelConfig.from_json({"vocabulary": 5, "n_layer": 2, "colour": "red"})
    with pytest.raises(ModelError, match="must have a vocabulary"):
        ModelConfig.from_json({"layers": 2})
    with pytest.raises(ModelError, match='`size` must be one of "tiny", "small", "base"'):
        ModelConfig.sized("huge", vocabulary=5)
    with pytest.raises(ModelError, match="`size` must be at least 1"):
        ModelConfig.sized(0, vocabulary=5)


def test_the_smallest_model_works() -> None:
    config = ModelConfig(vocabulary=1, d_model=1, layers=1, heads=1, length=1, positions="learned")
    assert Transformer(config)(tiny.ids(1, 1) * 0).logits.shape == (1, 1, 1)
