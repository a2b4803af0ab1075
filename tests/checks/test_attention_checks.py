"""Checks of attention: each finds what is planted, in batches or in a course, and is silent where all is sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pydoc_data.topics import topics
from typing import Any

import pytest
import torch
import transformers

from embedwatch.batch import AttentionBatch
from embedwatch.core import Check, History, Metric, Provenance, Snapshot, Space, Statistic, Verdict
from embedwatch.core.registry import registered
from embedwatch.core.verdict import Status
from embedwatch.judging import Judge
from embedwatch.window import Window
from tests.attention_of_models import attention_batches

SPACE = Space("m", "layers.0.attention")
CHECKS = [check() for check in registered(Check).values() if check.roles == ("attention",)]
TRAINED = 20_000
"""A step at which nothing is new any more."""
HEADS, LENGTH, QUERIES = 6, 160, 48


def window(batches: Iterable[AttentionBatch], step: int | None = None) -> Snapshot:
    statistics = [each for each in registered(Statistic).values() if each.consumes == "attention"]
    made = Window([statistic() for statistic in statistics])
    for batch in batches:
        made.update(batch)
    return made.snapshot(SPACE, step=step, role="attention")


def judged(snapshot: Snapshot, history: History | None = None) -> dict[str, Verdict]:
    return {verdict.check: verdict for verdict in Judge(CHECKS).judge(snapshot, history=history)}


def found(snapshot: Snapshot, history: History | None = None) -> dict[str, Status]:
    """Return the checks that complain, and how gravely."""
    told = judged(snapshot, history).items()
    return {check: verdict.status for check, verdict in told if verdict.status in ("warn", "fail")}


def trained(seed: int = 0, *, sink: float = 2.0, scale: float = 2.0) -> AttentionBatch:
    """Return a causal layer as trained models have it: a head near by, one before, some by content, with sinks."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.randperm(LENGTH, generator=generator)[:QUERIES]
    distance = positions[:, None] - torch.arange(LENGTH)
    logits = scale * torch.randn(HEADS, QUERIES, LENGTH, generator=generator)
    logits[0] -= 0.1 * distance.abs()
    logits[1] += 4.0 * (distance == 1)
    logits[2:, :, 0] += sink + math.log(LENGTH)
    count = HEADS * QUERIES
    return AttentionBatch(
        logits.view(count, LENGTH),
        (distance >= 0).repeat(HEADS, 1),
        positions=positions.repeat(HEADS),
        heads=torch.arange(HEADS).repeat_interleave(QUERIES),
        queries=positions.repeat(HEADS),
        firsts=torch.zeros(count, dtype=torch.int64),
        lasts=torch.full((count,), LENGTH - 1),
        head_size=16,
        outputs=1 + torch.rand(count, generator=generator),
        bounds=torch.full((count,), 30.0),
    )


def new(seed: int = 0) -> AttentionBatch:
    """Return a layer whose weights are fresh: every head looks everywhere alike."""
    batch = trained(seed)
    generator = torch.Generator().manual_seed(seed)
    return replace(batch, logits=0.05 * torch.randn(batch.logits.shape, generator=generator))


def changed(batch: AttentionBatch, act: Callable[[AttentionBatch], None]) -> AttentionBatch:
    copy = replace(batch, logits=batch.logits.clone(), outputs=torch.ones(len(batch)))
    act(copy)
    return copy


def own(batch: AttentionBatch) -> None:
    batch.logits.scatter_(1, batch.positions[:, None], 50.0)


def local(batch: AttentionBatch) -> None:
    batch.logits -= 0.5 * (batch.positions[:, None] - torch.arange(LENGTH)).abs()


def dead(batch: AttentionBatch) -> None:
    batch.outputs = torch.where(batch.heads == 2, 1e-6, 1.0)


def twins(batch: AttentionBatch) -> None:
    batch.logits[batch.heads == 4] = batch.logits[batch.heads == 5]


def broken(batch: AttentionBatch) -> None:
    batch.logits[100, 0] = math.nan


def collapsed(batch: AttentionBatch) -> None:
    batch.logits *= 20


def huge(batch: AttentionBatch) -> None:
    batch.logits.scatter_(1, batch.positions[:, None], 2e4)


def faint(batch: AttentionBatch) -> None:
    batch.logits *= 0.01


@pytest.mark.parametrize("step", [None, 0, TRAINED])
@pytest.mark.parametrize("seed", range(3))
def test_a_trained_layer_is_sound(seed: int, step: int | None) -> None:
    assert found(window([trained(seed)], step)) == {}
    assert all(verdict.status == "ok" for verdict in judged(window([trained(seed)], step)).values())


@pytest.mark.parametrize("step", [0, 500])
def test_a_new_layer_is_sound_at_first(step: int) -> None:
    told = judged(window([new()], step))
    assert {verdict.status for verdict in told.values()} == {"ok"}
    assert "normal" in told["attention_uniform"].reason


@pytest.mark.parametrize(
    ("plant", "check", "status"),
    [
        (collapsed, "attention_collapse", "fail"),
        (own, "attention_diagonal", "fail"),
        (local, "attention_long_range", "warn"),
        (dead, "attention_dead_heads", "warn"),
        (twins, "attention_twin_heads", "warn"),
        (broken, "attention_nonfinite", "fail"),
        (huge, "attention_logit_growth", "fail"),
        (faint, "attention_uniform", "fail"),
    ],
)
def test_what_is_planted_is_found(plant: Callable[[AttentionBatch], None], check: str, status: Status) -> None:
    verdict = judged(window([changed(trained(), plant)], TRAINED))[check]
    assert verdict.status == status
    made = {
        exhibit.name
        for statistic in registered(Statistic).values()
        if statistic.consumes == "attention"
        for exhibit in statistic().exhibits()
    }
    assert set(verdict.evidence.exhibits) <= made
    assert verdict.reason


def repeated(batch: AttentionBatch) -> None:
    """Give each second token what the one before it has, as where a token is repeated and no place is told."""
    batch.logits[:, 1::2] = batch.logits[:, ::2].clone()


def test_equal_logits_of_near_keys_tell_that_places_are_not_known() -> None:
    batch = changed(trained(), repeated)
    assert found(window([batch])) == {"attention_order": "warn"}
    first, second = (window([batch], step) for step in (100, 200))
    assert found(first, History()) == {}, "learned positions may begin like this"
    assert found(second, History([first])) == {"attention_order": "warn"}


def test_logits_that_were_rounded_say_nothing_of_places() -> None:
    batch = changed(trained(), repeated)
    for kind in (torch.float16, torch.bfloat16):
        assert "attention_order" not in judged(window([replace(batch, logits=batch.logits.to(kind).float())]))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("power", [0.5, 1.0], ids=["by the root of K", "by K"])
def test_logits_that_were_rounded_and_then_scaled_say_nothing_of_places(kind: torch.dtype, power: float) -> None:
    batch = trained()
    scale = torch.tensor(batch.head_size**-power)
    sound = replace(batch, head_size=15, logits=(batch.logits / scale).to(kind).float() * scale)
    assert window([sound]).number("attention_tied_rows_ratio") != 0.0, "rounding alone makes some equal"
    told = judged(window([replace(sound, head_size=16)]))
    assert "attention_order" not in told or told["attention_order"].status == "unknown"


def test_a_causal_model_that_is_made_without_positions_is_sound_and_an_encoder_is_not() -> None:
    decoder = replace(changed(trained(), repeated), placed=False)
    told = judged(window([decoder]))["attention_order"]
    assert told.status == "ok"
    assert "No part of the model holds positions" in told.reason
    encoder = replace(decoder, visible=torch.ones_like(decoder.visible))
    assert found(window([encoder]))["attention_order"] == "warn"
    assert found(window([replace(decoder, placed=True)])) == {"attention_order": "warn"}


def test_rows_that_are_all_the_same_say_nothing_of_places() -> None:
    batch = changed(trained(), repeated)
    same = replace(batch, logits=torch.full_like(batch.logits, 1 / 3))
    assert "attention_order" not in judged(window([same]))
    assert judged(window([batch.take(slice(0, 100))]))["attention_order"].status == "unknown"


def test_too_few_rows_say_nothing() -> None:
    told = judged(window([changed(trained(), own).take(slice(0, 100))], TRAINED))
    assert told["attention_diagonal"].status == told["attention_collapse"].status == "unknown"


def test_what_is_not_known_is_not_asked() -> None:
    batch = replace(trained(), outputs=None)
    assert "attention_dead_heads" not in judged(window([batch]))
    distance = batch.positions[:, None] - torch.arange(LENGTH)
    near = replace(batch, visible=batch.visible & (distance < 20))
    assert "attention_long_range" not in judged(window([near]))


NUMBERS = {
    "attention_inner_entropy_ratio": "mean",
    "attention_first_ratio": "mean",
    "attention_logit_max": "max",
    "attention_uniform_heads_ratio": None,
}


def snap(step: int | None, **values: float) -> Snapshot:
    measured = []
    for name, value in values.items():
        head = NUMBERS[name]
        metric = Metric(name, "A number.", labels=("heads",) if head else ())
        labels: dict[str, Any] = {"heads": head} if head else {}
        measured.append(metric.measure(value, **labels))
    return Snapshot(SPACE, tuple(measured), Provenance(time=0.0, rows=1_000, step=step, role="attention"))


def play(name: str, values: Sequence[float], *, start: int = 0, every: int = 100) -> list[Verdict]:
    """Judge a course window by window, and return what was said of each."""
    history, told = History(capacity=200, keep="even"), list[Verdict]()
    for place, value in enumerate(values):
        snapshot = snap(start + place * every, **{name: value})
        told += judged(snapshot, history).values()
        history.append(snapshot)
    return told


def statuses(told: Sequence[Verdict]) -> list[Status]:
    return [verdict.status for verdict in told]


def test_learning_to_look_is_no_collapse() -> None:
    values = [max(0.46, 1 - 0.02 * place) for place in range(60)]
    assert set(statuses(play("attention_inner_entropy_ratio", values))) == {"ok"}


def test_a_fall_from_the_early_level_is_a_collapse_before_the_floor_is_reached() -> None:
    told = play("attention_inner_entropy_ratio", [0.7] * 20 + [0.5, 0.34, 0.25, 0.13, 0.05])
    assert statuses(told)[-5:] == ["ok", "warn", "warn", "fail", "fail"]
    assert "0.70" in told[-1].reason
    assert statuses(play("attention_inner_entropy_ratio", [0.3, 0.3, 0.19, 0.1]))[:4] == ["ok", "ok", "warn", "fail"]


def test_low_entropy_that_was_always_so_warns_below_the_floor_only() -> None:
    assert set(statuses(play("attention_inner_entropy_ratio", [0.25] * 30))) == {"ok"}


def test_even_heads_are_a_finding_once_training_has_gone_on() -> None:
    told = statuses(play("attention_uniform_heads_ratio", [1.0] * 30))
    assert told == ["ok"] * 20 + ["fail"] * 10
    assert statuses(play("attention_uniform_heads_ratio", [1.0, 0.5, 0.0, 0.0, 1.0])) == ["ok"] * 4 + ["fail"]


def test_even_heads_of_a_model_that_serves_are_a_finding_at_its_first_pass() -> None:
    snapshot = snap(3, attention_uniform_heads_ratio=1.0)
    serving = replace(snapshot, provenance=replace(snapshot.provenance, serving=True))
    assert judged(snapshot)["attention_uniform"].status == "ok"
    assert judged(serving)["attention_uniform"].status == "fail"
    assert Snapshot.from_json(serving.to_json()).provenance.training_step is None


def test_sinks_that_emerge_are_normal_and_those_that_grow_later_are_not() -> None:
    emerging = [min(0.7, 0.02 * place) for place in range(60)]
    assert set(statuses(play("attention_first_ratio", emerging))) == {"ok"}
    later = play("attention_first_ratio", [0.4] * 30 + [0.45, 0.7], start=20_000)
    assert statuses(later)[-2:] == ["ok", "warn"]
    assert statuses(play("attention_first_ratio", [0.9, 0.1, 0.9])) == ["ok"] * 3


@pytest.mark.parametrize(
    ("course", "last"),
    [
        ([2 * 1.05**place for place in range(60)], "ok"),  # still small
        ([2 * 1.12**place for place in range(45)], "warn"),  # 290, and 10,000 is near
        ([min(150.0, 2 * 1.12**place) for place in range(120)], "ok"),  # came to rest
        ([150 + 10 * math.sin(place) for place in range(60)], "ok"),
        ([1_500.0], "warn"),
        ([12_000.0], "fail"),
    ],
    ids=["small", "growing", "came to rest", "unsteady", "large", "beyond"],
)
def test_logits_that_grow(course: list[float], last: Status) -> None:
    told = play("attention_logit_max", course)
    assert told[-1].status == last, told[-1].reason


def test_a_resumed_run_is_held_against_what_was_before_it() -> None:
    history = History([snap(step, attention_inner_entropy_ratio=0.8) for step in range(0, 1_000, 100)])
    later = [snap(step, attention_inner_entropy_ratio=0.1) for step in range(600, 1_000, 100)]
    for snapshot in later:
        history.append(snapshot)
    assert found(later[-1], history) == {"attention_collapse": "fail"}


@lru_cache
def course(lr: float, *, steps: int = 120, every: int = 10) -> list[tuple[int, str, Verdict]]:
    """Train a small model on text, and return what is said of its layers, window by window."""
    text = torch.tensor(list("\n\n".join(topics.values()).encode()))
    torch.manual_seed(0)
    config: dict[str, Any] = dict.fromkeys(("resid_pdrop", "attn_pdrop", "embd_pdrop"), 0.0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=2, n_embd=64, n_head=4, vocab_size=256, n_positions=96, attn_implementation="eager", **config
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(1)
    histories = [History(), History()]
    told: list[tuple[int, str, Verdict]] = []
    for step in range(steps + 1):
        starts = torch.randint(0, len(text) - 96, (4,), generator=generator)
        ids = torch.stack([text[start : start + 96] for start in starts])
        if step % every == 0:
            for history, batch in zip(histories, attention_batches(model, list(ids), queries=24), strict=True):
                snapshot = window([batch], step)
                told += [(step, check, verdict) for check, verdict in judged(snapshot, history).items()]
                history.append(snapshot)
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    return told


def test_a_healthy_training_is_silent() -> None:
    graver = [(step, check, v.reason) for step, check, v in course(1e-3) if v.status in ("warn", "fail")]
    assert graver == []


def test_a_training_at_far_too_high_a_rate_collapses_and_is_found() -> None:
    steps = [
        step for step, check, verdict in course(3e-2) if check == "attention_collapse" and verdict.status == "fail"
    ]
    assert steps
