"""Sampled rows of attention are the rows that models themselves say, for many families, implementations and masks."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.observe import attending, tiny

EXACT = 1e-5
ENCODERS = ("bert", "roberta", "distilbert", "mpnet", "deberta-v2", "albert", "modernbert")
DECODERS = (
    *("gpt2-lm", "gpt-neox", "gpt-neo", "bloom", "falcon", "llama-lm", "mistral-window", "qwen2", "qwen3"),
    *("gemma2", "gemma3_text", "gpt-oss", "opt", "phi", "mixtral"),
)
PAIRS = ("t5-lm", "bart-lm", "marian", "whisper")
KINDS = (*ENCODERS, *DECODERS, *PAIRS, "vit", "xlnet")
OWN_WAY = ("mpnet", "deberta-v2", "bloom", "falcon", "gpt-neo", "xlnet")
"""They choose their implementation themselves."""
EAGER_ONLY = (*OWN_WAY, "gemma2", "gpt-oss")
FLEX = ("bert", "llama-lm", "mistral-window", "gemma2")


def inputs(kind: str, *, left: bool) -> tiny.Batch:
    return tiny.inputs(kind if kind in tiny.KINDS else "gpt2-lm", left=left)


def eager(kind: str, model: Any) -> Any:
    """Let a model say its weights, which most do in one implementation only."""
    if kind not in OWN_WAY:
        model.set_attn_implementation("eager")
    if kind == "falcon":  # it refuses, and makes no causal mask for the weights that it shows
        model.config._attn_implementation = "eager"
    return model


def check(kind: str, implementation: str | None, *, left: bool) -> None:
    model, batch = attending.build(kind, implementation=implementation), inputs(kind, left=left)
    with attending.looking(model) as looks, torch.no_grad():
        model(**batch)
        seen = looks.first()
        assert looks.attachment.blind() == {} or set(looks.attachment.blind()) == {"shared"}
    expected = attending.told(eager(kind, model), batch)
    by_sort = attending.sorts(list(seen))
    compared = 0
    for sort, names in by_sort.items():
        weights = expected.get(f"{sort}_attentions") if sort in ("cross", "decoder") else None
        weights = weights or expected.get("encoder_attentions") or expected.get("attentions")
        assert weights is not None
        assert len(weights) == len(names)
        for name, weight in zip(names, weights, strict=True):
            if kind == "xlnet":  # it says them in another order of dimensions
                weight = weight if weight.shape[1] == model.config.n_head else weight.permute(3, 2, 0, 1)
            assert len(seen[name]) >= 2 * 3
            assert attending.errors(seen[name], weight) < EXACT, (name, sort)
            compared += 1
    assert compared == len(seen)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_model_in_its_own_implementation(kind: str, left: bool) -> None:
    check(kind, None, left=left)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in EAGER_ONLY])
def test_rows_are_those_of_the_model_in_eager_attention(kind: str) -> None:
    check(kind, "eager", left=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")  # torch's own
@pytest.mark.parametrize("kind", FLEX)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_rows_are_those_of_the_model_in_flex_attention(kind: str, left: bool) -> None:
    check(kind, "flex_attention", left=left)


def test_only_real_tokens_are_looked_at_and_the_ends_of_sequences_are_known() -> None:
    for kind in ("bert", "gpt2-lm", "mistral-window", "mpnet", "own-encoder", "own-decoder", "t5-lm"):
        for left in (False, True):
            model, batch = attending.build(kind), inputs(kind, left=left)
            real = batch["mask" if kind.startswith("own") else "attention_mask"].bool()
            with attending.looking(model, rows=64) as looks, torch.no_grad():
                model(**batch)
                rows = next(iter(looks.first().values()))
            sequence, query = attending.places_of(rows, tiny.LENGTH)
            assert bool(real[sequence, query].all()), kind
            assert len(rows) == 2 * int(real.sum())  # all of them, by two heads
            firsts = real.int().argmax(1)
            lasts = tiny.LENGTH - 1 - real.flip(1).int().argmax(1)
            assert torch.equal(rows.firsts, firsts[sequence]), kind
            assert torch.equal(rows.lasts, lasts[sequence]), kind
            assert torch.equal(rows.positions, query)


def test_cross_attention_has_no_positions_and_its_ends_are_those_of_the_keys() -> None:
    for kind in ("t5-lm", "bart-lm", "own-encoder_decoder"):
        model, batch = attending.build(kind), tiny.inputs(kind)
        with attending.looking(model) as looks, torch.no_grad():
            model(**batch)
            seen = looks.first()
        crossing = {site.name for site in looks.attention.sites if site.cross}
        assert len(crossing) == 2
        for name in crossing:
            rows = seen[name]
            assert set(rows.positions.tolist()) == {-1}
            lengths = tiny.TARGETS if kind == "own-encoder_decoder" else tiny.LENGTHS
            sequence, _ = attending.places_of(rows, tiny.LENGTH)
            assert rows.lasts.tolist() == [lengths[number] - 1 for number in sequence.tolist()], kind
            assert set(rows.firsts.tolist()) == {0}


def norms_of_heads(model: nn.Module, place: str, batch: tiny.Batch) -> Tensor:
    """Return the norm of what each head puts out, from what enters the last map. Shape: (B, T, H)."""
    found: list[Tensor] = []
    handle = model.get_submodule(place).register_forward_pre_hook(lambda module, args: found.append(args[0]))
    with torch.no_grad():
        model(**batch)
    handle.remove()
    norms: Tensor = found[0].unflatten(2, (2, -1)).norm(dim=3)
    return norms


@pytest.mark.parametrize(
    ("kind", "site", "last"),
    [
        ("llama-lm", "model.layers.0.self_attn", "model.layers.0.self_attn.o_proj"),
        ("own-decoder", "layers.0.attention", "layers.0.attention.to_output"),
    ],
)
def test_outputs_are_the_norms_of_what_heads_put_out(kind: str, site: str, last: str) -> None:
    model, batch = attending.build(kind), tiny.inputs(kind)
    expected = norms_of_heads(model, last, batch)
    with attending.looking(model) as looks, torch.no_grad():
        model(**batch)
        rows = looks.first()[site]
    sequence, query = attending.places_of(rows, tiny.LENGTH)
    assert rows.outputs is not None
    torch.testing.assert_close(rows.outputs, expected[sequence, query, rows.heads])


@pytest.mark.parametrize("kind", ["bert", "llama-lm", "gemma2", "t5-lm", "mpnet", "bloom", "own-decoder"])
def test_no_logit_exceeds_its_bound(kind: str) -> None:
    model = attending.build(kind)
    with attending.looking(model, rows=64) as looks, torch.no_grad():
        model(**tiny.inputs(kind))
        for rows in looks.first().values():
            assert rows.bounds is not None
            highest = rows.logits.masked_fill(~rows.visible, -torch.inf).amax(1)
            assert bool((highest <= rows.bounds + EXACT * rows.bounds.abs()).all())
            assert rows.head_size == 8


def test_learned_sinks_take_a_share() -> None:
    model = attending.build("gpt-oss")
    with attending.looking(model) as looks, torch.no_grad():
        model(**tiny.inputs("gpt2-lm"))
        rows = looks.first()["layers.0.self_attn"]
    sinks: Any = model.get_parameter("layers.0.self_attn.sinks")
    assert rows.sinks is not None
    torch.testing.assert_close(rows.sinks, sinks.detach()[rows.heads])
    assert bool((rows.weights.sum(1) < 1).all())


def held(model: nn.Module, cache: Any) -> dict[str, Any]:
    """Return a cache by the name under which a model takes it."""
    names = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


@pytest.mark.parametrize("kind", ["gpt2-lm", "llama-lm", "mistral-window", "bloom", "falcon", "gpt-oss"])
def test_steps_of_decoding_are_a_segment_of_their_own_and_know_their_place(kind: str) -> None:
    model = attending.build(kind)
    ids, real = tiny.tokens(left=True)
    given: dict[str, Any] = {"input_ids": ids, "attention_mask": real.long(), "use_cache": True}
    more = {"input_ids": ids[:, -1:], "attention_mask": torch.cat([real, real[:, -1:]], 1).long()}
    with attending.looking(model) as looks, torch.no_grad():
        output = model(**given)
        before = looks.first()
        model(**more, **held(model, output.cache if "cache" in output else output.past_key_values))
        after = looks.first()
    for name, rows in after.items():
        assert before[name].segment == "all"
        assert rows.segment == "decode"
        keys = rows.logits.shape[1]
        forgotten = tiny.LENGTH + 1 - keys  # a cache of a window holds no more
        assert set(rows.positions.tolist()) == {keys - 1}
        sequence, _ = attending.places_of(rows, 1)
        paddings = [tiny.LENGTH - tiny.LENGTHS[number] for number in sequence.tolist()]
        assert rows.firsts.tolist() == [max(0, padding - forgotten) for padding in paddings]
        assert len(rows) == 2 * tiny.BATCH
    whole = torch.cat([ids, ids[:, -1:]], 1)
    weights = attending.told(eager(kind, model), {"input_ids": whole, "attention_mask": more["attention_mask"]})[
        "attentions"
    ]
    for rows, weight in zip(after.values(), weights, strict=True):
        shown = weight[..., -rows.logits.shape[1] :]
        assert attending.errors(rows, shown[:, :, -1:]) < EXACT


def test_a_cache_of_fixed_size_is_read_as_far_as_it_is_filled() -> None:
    from transformers import StaticCache

    model = attending.build("llama-lm")
    ids = tiny.numbers(2, 5)
    cache = StaticCache(config=model.config, max_cache_len=9)
    with attending.looking(model) as looks, torch.no_grad():
        model(input_ids=ids, **held(model, cache))
        first = looks.first()["model.layers.0.self_attn"]
        model(input_ids=ids[:, -1:], **held(model, cache))
        second = looks.first()["model.layers.0.self_attn"]
    _, query = attending.places_of(first, 5)
    assert torch.equal(first.positions, query)
    assert set(second.positions.tolist()) == {5}
    assert second.visible.sum(1).unique().tolist() == [6]
    weights = attending.told(eager("llama-lm", model), {"input_ids": torch.cat([ids, ids[:, -1:]], 1)})["attentions"][0]
    assert attending.errors(second, torch.nn.functional.pad(weights[:, :, -1:], (0, 3))) < EXACT


@pytest.mark.parametrize("mask", [None, "bool", "added", "per head"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_rows_are_those_of_torchs_own_attention(batch_first: bool, mask: str | None) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 2, batch_first=batch_first).eval()
    attending.spread(module)
    rows = torch.randn(3, 7, 16)
    hidden = ~tiny.mask(tiny.LENGTHS)
    causal = torch.ones(7, 7, dtype=torch.bool).triu(1)
    masks = {"bool": causal, "added": causal.float() * -1e9, "per head": causal.expand(6, 7, 7)}
    given = rows if batch_first else rows.transpose(0, 1)
    padding: Any = hidden if mask != "added" else hidden.float() * -1e9
    model = Holder(module)
    with attending.looking(model) as looks, torch.no_grad():
        options = {"key_padding_mask": padding, "attn_mask": masks.get(mask or ""), "average_attn_weights": False}
        _, weights = model(given, **options)
        seen = looks.first()["attention"]
    assert attending.errors(seen, weights) < EXACT
    sequence, query = attending.places_of(seen, 7)
    assert not bool(hidden[sequence, query].any())


class Holder(nn.Module):
    """Holds one module that attends, and a table, which a model has."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.attention = attention

    def forward(self, rows: Tensor, **options: Any) -> Any:
        return self.attention(rows, rows, rows, **options)


@pytest.mark.parametrize("kind", ["torch-encoder", "torch-encoder-positions-first"])
def test_layers_of_torch_are_seen_in_training_and_left_alone_in_their_fused_kernel(kind: str) -> None:
    model, batch = tiny.build(kind), tiny.inputs(kind)
    with attending.looking(model) as looks:
        with torch.inference_mode():
            model(**batch)
        fused = kind == "torch-encoder"
        assert bool(looks.collect()) is not fused
        model.train()(**batch).sum().backward()
        seen = looks.first()
    assert list(seen) == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    for rows in seen.values():
        sequence, query = attending.places_of(rows, tiny.LENGTH)
        assert not bool(batch["src_key_padding_mask"][sequence, query].any())
        torch.testing.assert_close(rows.weights.sum(1), torch.ones(len(rows)))


@pytest.mark.parametrize("kind", ["own-decoder", "own-encoder"])
def test_rows_are_those_of_our_own_model(kind: str) -> None:
    model, batch = attending.build(kind), tiny.inputs(kind, left=True)
    place = "layers.1.attention"
    found: dict[str, Tensor] = {}
    module = model.get_submodule(place)
    handles = [
        module.get_submodule(name).register_forward_hook(
            lambda module, args, output, name=name: found.update({name: output})
        )
        for name in ("query", "key")
    ]
    with attending.looking(model) as looks, torch.no_grad():
        model(**batch)
        rows = looks.first()[place]
    for handle in handles:
        handle.remove()
    scores = found["query"] @ found["key"].transpose(2, 3) / 8**0.5
    allowed = batch["mask"][:, None, None, :]
    if kind == "own-decoder":
        allowed = allowed & torch.ones(tiny.LENGTH, tiny.LENGTH, dtype=torch.bool).tril()
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(3)
    assert attending.errors(rows, weights) < EXACT
