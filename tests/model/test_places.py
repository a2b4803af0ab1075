"""docs/model.md says what can be watched and where things are; here it is held to that."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.model import tiny
from tests.model.tiny import KINDS, SOURCES

PAGE = (Path(__file__).parents[2] / "docs" / "model.md").read_text(encoding="utf-8")
B, T = 2, 5
SIZES = {"B": B, "T": T, "S": SOURCES, "D": 16, "H": 4, "G": 2, "K": 4, "V": tiny.VOCABULARY}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


PLACES = rows("Places to watch")


def documented(kind: str, **options: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of each place that such a model should have."""
    found = {}
    for name, shape, _, where in PLACES:
        there = where == "always" or where == kind or options.get(where, False)
        if not there:
            continue
        sizes = tuple(SIZES[letter] for letter in re.findall(r"[A-Z]", shape))
        for i in range(2):
            found[name.strip("`").replace("{i}", str(i))] = sizes
            if kind == "encoder_decoder" and where in ("always", "embedding_norm") and "head" not in name:
                found["encoder." + name.strip("`").replace("{i}", str(i))] = (
                    B,
                    *(SOURCES if size == T else size for size in sizes[1:]),
                )
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("embedding_norm", [False, True])
def test_every_documented_place_fires_with_its_shape(kind: str, norm: str, embedding_norm: bool) -> None:
    model = tiny.model(kind=kind, norm=norm, embedding_norm=embedding_norm)
    seen: dict[str, tuple[int, ...]] = {}
    expected = documented(kind, embedding_norm=embedding_norm)
    for name in expected:
        hook = lambda module, inputs, output, name=name: seen.update({name: tuple(output.shape)})  # noqa: E731
        model.get_submodule(name).register_forward_hook(hook)
    model(tiny.ids(B, T), **tiny.inputs(kind, B))
    assert seen == expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_identity_and_norm_is_documented(kind: str) -> None:
    model = tiny.model(kind=kind, embedding_norm=True)
    known = documented(kind, embedding_norm=True)
    watched = (nn.Identity, nn.LayerNorm)
    assert [name for name, module in model.named_modules() if isinstance(module, watched) and name not in known] == []


def test_the_embedding_is_scaled_and_position_added() -> None:
    model = tiny.model(dropout=0.5).train()
    seen = []
    model.embedding.register_forward_hook(lambda module, inputs, output: seen.append(output))
    ids = tiny.ids(B, T)
    model(ids)
    expected = model.embedding.tokens.weight[ids] * 4 + model.embedding.positions.table[:T]
    assert torch.allclose(seen[0], expected, atol=1e-6)


def test_queries_and_keys_are_seen_after_rotation() -> None:
    model = tiny.model(positions="rope")
    attention = model.layers[0].attention
    seen: dict[str, torch.Tensor] = {}
    for name in ("attention_norm", "attention.key"):
        hook = lambda module, inputs, output, name=name: seen.update({name: output})  # noqa: E731
        model.layers[0].get_submodule(name).register_forward_hook(hook)
    model(tiny.ids(B, T))
    plain = attention.to_key(seen["attention_norm"]).unflatten(-1, (2, 4)).transpose(1, 2)
    turned = model.embedding.positions.rotate(plain, torch.arange(T)[None])
    assert torch.equal(seen["attention.key"], turned)
    assert not torch.allclose(turned, plain, atol=1e-3)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_stream_between_layers(norm: str) -> None:
    model = tiny.model(norm=norm)
    seen: dict[str, torch.Tensor] = {}
    for name in ("layers.0", "layers.0.residual", "layers.0.feed_forward_norm"):
        hook = lambda module, inputs, output, name=name: seen.update({name: output})  # noqa: E731
        model.get_submodule(name).register_forward_hook(hook)
    model(tiny.ids(B, T))
    last = "layers.0.residual" if norm == "pre" else "layers.0.feed_forward_norm"
    assert seen["layers.0"] is seen[last]


@pytest.mark.parametrize(("topic", "file", "name"), rows("Where is what"))
def test_every_topic_is_where_the_page_says(topic: str, file: str, name: str) -> None:
    module = importlib.import_module(f"embedwatch_model.{file.strip('`').removesuffix('.py')}")
    thing = getattr(module, name.strip("`"))
    assert thing.__module__ == module.__name__
    assert thing.__doc__


def test_the_example_runs() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    exec(compile(code[1], "docs/model.md", "exec"), {"print": lambda *args: None})
