"""The laws that every Statistic obeys, as properties that Hypothesis tries to break.

Each law takes a Statistic class and Hypothesis' `draw`. `STATISTIC_LAWS` names them all, `obey(name, class)` tries one.
Well-known libraries ship merges that break these laws (parts combined with a minus sign, small parts dropped, means
weighted by number of updates, samples that depend on order); the one test that everybody writes, a batch against the
formula, catches none of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedwatch.core.errors import MergeError
from embedwatch.testing.law_tools import (
    AnyStatistic,
    LawViolation,
    copy_of,
    example,
    fail,
    fed_with,
    feed,
    refused,
    same,
    size_of,
    stranger,
    values_of,
)
from embedwatch.testing.streams import Draw, Stream, cut, shifted

__all__ = ["STATISTIC_LAWS", "LawViolation", "obey"]

Law = Callable[[type[AnyStatistic], Draw], None]

HUGE, TINY = 1e30, 1e-30


def obey(law: str, statistic: type[AnyStatistic], *, examples: int = 15) -> None:
    """Try to break one law of one Statistic class with Hypothesis.

    Raises:
        LawViolation: with the smallest case found.
    """

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        STATISTIC_LAWS[law](statistic, data.draw)

    attempt()


def _law_oracle(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Equals its own formula on the whole data, however the rows arrive."""
    empty, whole = example(statistic, draw)
    fed = fed_with(empty, cut(whole, draw))
    same(fed, values_of(fed), fed.oracle(whole.whole), fed.tolerance, "oracle")


def _law_split(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Any split of the rows, in any order of the parts, gives the same."""
    empty, whole = example(statistic, draw)
    once = fed_with(empty, [whole])
    parts = draw(st.permutations(cut(whole, draw)))
    fed = fed_with(empty, parts)
    same(fed, values_of(fed), values_of(once), fed.merge_tolerance, "split")


def _law_merge(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Merge is concatenation, for parts as unequal as one row against all others."""
    empty, whole = example(statistic, draw)
    once = fed_with(empty, [whole])
    left, right = cut(whole, draw, parts=2)
    merged = fed_with(empty, [left])
    merged.merge(fed_with(empty, cut(right, draw)))
    same(merged, values_of(merged), values_of(once), merged.merge_tolerance, "merge is concatenation")
    small, rest = whole.split([1, len(whole) - 1])
    for first, second in ((small, rest), (rest, small)):
        merged = fed_with(empty, [first])
        merged.merge(fed_with(empty, [second]))
        same(
            merged,
            values_of(merged),
            values_of(once),
            merged.merge_tolerance,
            f"merge of {len(first)} and {len(second)} rows",
        )


def _law_order(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Merge is associative and commutative."""
    empty, whole = example(statistic, draw)
    parts = [fed_with(empty, [part]) for part in cut(whole, draw, parts=3)]
    results = []
    for first, second, third, inner in ((0, 1, 2, True), (0, 1, 2, False), (2, 0, 1, True), (1, 2, 0, False)):
        a, b, c = (copy_of(parts[place]) for place in (first, second, third))
        if inner:
            b.merge(c)
            a.merge(b)
        else:
            a.merge(b)
            a.merge(c)
        results.append((a, values_of(a)))
    for result, values in results[1:]:
        same(result, values, results[0][1], result.merge_tolerance, "merge in another order")


def _law_identity(statistic: type[AnyStatistic], draw: Draw) -> None:
    """The empty state is the identity of merge, on both sides and with itself; a batch without rows changes nothing."""
    empty, whole = example(statistic, draw)
    fed = fed_with(empty, [whole])
    wanted = values_of(fed)
    fed.merge(empty.fresh())
    same(fed, values_of(fed), wanted, lambda _: 0.0, "merge with empty")
    other = empty.fresh()
    other.merge(fed)
    same(other, values_of(other), wanted, fed.merge_tolerance, "empty merged with all")
    nothing = empty.fresh()
    nothing.merge(empty.fresh())
    same(nothing, values_of(nothing), values_of(empty.fresh()), lambda _: 0.0, "empty merged with empty")
    feed(fed, whole.split([0, len(whole)])[0])
    same(fed, values_of(fed), wanted, lambda _: 0.0, "batch without rows")


def _law_state(statistic: type[AnyStatistic], draw: Draw) -> None:
    """A state goes out and in, continues as if nothing had happened, and is a copy."""
    empty, whole = example(statistic, draw)
    first, second = cut(whole, draw, parts=2)
    fed = fed_with(empty, [first])
    state = fed.state_dict()
    copy = empty.fresh()
    copy.load_state_dict(state)
    same(copy, values_of(copy), values_of(fed), lambda _: 1e-12, "state round trip")
    before = values_of(copy)
    feed(fed, second)
    for value in state.values():
        if isinstance(value, torch.Tensor) and value.numel():
            value.zero_()
    same(copy, values_of(copy), before, lambda _: 0.0, "state is a copy")
    feed(copy, second)
    same(copy, values_of(copy), values_of(fed), copy.merge_tolerance, "state continues")
    blank = empty.fresh()
    blank.load_state_dict(empty.fresh().state_dict())
    same(blank, values_of(blank), values_of(empty.fresh()), lambda _: 0.0, "empty state round trip")


def _law_precision(statistic: type[AnyStatistic], draw: Draw) -> None:
    """float16 and bfloat16 rows count as their float32 values; float64 rows as what they are."""
    empty, whole = example(statistic, draw)
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    given_rows = whole.change(lambda rows: rows.to(dtype))
    fed = fed_with(empty, [given_rows])
    wide = fed_with(empty, [given_rows.change(torch.Tensor.float)])
    same(fed, values_of(fed), values_of(wide), lambda key: max(1e-4, fed.tolerance(key)), f"rows in {dtype}")


def _law_defects(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Rows with NaN or Inf are skipped, or counted by those whose subject they are; the rest is as without them."""
    empty, whole = example(statistic, draw)
    mixed = whole.spoil(draw(st.sampled_from([math.nan, math.inf, -math.inf])), draw)
    fed = fed_with(empty, cut(mixed, draw))
    if statistic.counts_defects:
        same(fed, values_of(fed), fed.oracle(mixed.whole), fed.tolerance, "rows with NaN or Inf")
    else:
        clean = fed_with(empty, [whole])
        same(fed, values_of(fed), values_of(clean), fed.merge_tolerance, "rows with NaN or Inf")
    values_of(fed_with(empty, mixed.split([len(whole), len(mixed) - len(whole)])[1:]))


def _law_hostile(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Zero, equal, huge and tiny rows give what the formula gives, and never a number that is not finite."""
    empty, whole = example(statistic, draw)
    kind = draw(st.sampled_from(["zero", "equal", "huge", "tiny", "all equal", "all zero"]))
    factor = {"zero": 0.0, "all zero": 0.0, "huge": HUGE, "tiny": TINY}.get(kind, 1.0)
    count = len(whole) if kind.startswith("all") else 3
    mixed = whole.repeat(factor, count)
    if kind.startswith("all"):
        mixed = mixed.split([len(whole), count])[1]
    fed = fed_with(empty, cut(mixed, draw))
    same(fed, values_of(fed), fed.oracle(mixed.whole), lambda key: max(1e-3, fed.tolerance(key)), f"{kind} rows")
    once = fed_with(empty, [mixed])
    same(fed, values_of(fed), values_of(once), lambda key: max(1e-4, fed.merge_tolerance(key)), f"{kind} rows, split")


def _law_refusal(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Another dimension, class or configuration is refused with a message that names both."""
    empty, whole = example(statistic, draw)
    fed = fed_with(empty, [whole])
    wanted = values_of(fed)
    refused(fed, "merge with another class", lambda: fed.merge(stranger()), type(fed).__name__)
    for name in set(whole.numbers) & {"rows", "left", "right"}:
        rows = getattr(whole.whole, name)
        wide = replace(whole.whole, **{name: torch.cat([rows, rows], dim=1)})
        words = str(rows.shape[1]), str(2 * rows.shape[1])
        refused(fed, "update with another dimension", partial(fed.update, wide), *words)
        if statistic.needs_reference:  # its frozen arrays have a dimension: an empty one refuses such rows too
            refused(fed, "first update with another dimension", partial(empty.fresh().update, wide), *words)
            continue
        other = fed_with(empty, [Stream([wide])])
        refused(fed, "merge with another dimension", partial(fed.merge, other), *words)
    same(fed, values_of(fed), wanted, lambda _: 0.0, "a refusal changes nothing")


def _law_memory(statistic: type[AnyStatistic], draw: Draw) -> None:
    """The state never exceeds the stated bound, however many rows come."""
    empty, whole = example(statistic, draw)
    fed = empty.fresh()
    bound = fed.memory(whole.dimension)
    for turn in range(6):
        feed(fed, shifted(whole, turn))
        size = sum(size_of(value) for value in fed.state_dict().values())
        if size > bound + 64:
            fail(fed, f"memory: the state takes {size} bytes after {turn + 1} batches, stated are {bound}")


def _law_purity(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Update, merge and compute leave the batch, the other, the random generators and themselves as they were."""
    empty, whole = example(statistic, draw)
    held = [getattr(batch, name) for name in whole.numbers for batch in whole.batches]
    before = [rows.clone() for rows in held]
    generators = (torch.get_rng_state().clone(), repr(np.random.get_state()), random.getstate())
    half = draw(st.integers(0, len(whole.batches)))
    fed, other = (fed_with(empty, [Stream(part)]) for part in (whole.batches[:half], whole.batches[half:]))
    others = values_of(other)
    fed.merge(other)
    fed.exhibits()
    values = values_of(fed)
    same(fed, values_of(fed), values, lambda _: 0.0, "compute twice")
    same(other, values_of(other), others, lambda _: 0.0, "merge left the other alone")
    if not torch.equal(generators[0], torch.get_rng_state()) or generators[1:] != (
        repr(np.random.get_state()),
        random.getstate(),
    ):
        fail(fed, "purity: a global random generator was used")
    if any(not torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(held, before, strict=True)):
        fail(fed, "purity: update changed the rows")
    try:
        for rows in held:
            rows.fill_(0.5)
        same(fed, values_of(fed), values, lambda _: 0.0, "no view of the rows is kept")
    finally:
        for rows, was in zip(held, before, strict=True):
            rows.copy_(was)


def _law_modes(statistic: type[AnyStatistic], draw: Draw) -> None:
    """What was fed in inference mode or under autocast is exact, and stays usable outside."""
    empty, whole = example(statistic, draw)
    first, second = cut(whole, draw, parts=2)
    fed, other = empty.fresh(), empty.fresh()
    mode = draw(st.sampled_from(["inference", "autocast"]))
    with torch.inference_mode() if mode == "inference" else torch.autocast("cpu", dtype=torch.bfloat16):
        first = first.change(torch.Tensor.clone)  # tensors of this mode, as a model's output is
        feed(fed, first)
        feed(other, second)
    wanted = fed_with(empty, [whole])
    fed.merge(other)
    same(fed, values_of(fed), values_of(wanted), fed.merge_tolerance, f"fed in {mode} mode")
    feed(fed, second)
    values_of(fed)


def _law_damage(statistic: type[AnyStatistic], draw: Draw) -> None:
    """A state that cannot be one is refused as a whole; what is accepted can be computed and merged."""
    empty, whole = example(statistic, draw)
    state = fed_with(empty, [whole]).state_dict()
    key = draw(st.sampled_from(sorted(state)))
    value = state[key]
    kind = draw(st.sampled_from(["missing", "none", "text", "number", "cut", "turned", "double", "nan", "negative"]))
    damaged = dict(state)
    if kind == "missing":
        del damaged[key]
    elif isinstance(value, torch.Tensor) and kind not in ("none", "text", "number"):
        damaged[key] = _damaged(value, kind)
    else:
        damaged[key] = {"text": "text", "number": -7}.get(kind)
    target = empty.fresh()
    try:
        target.load_state_dict(damaged)
    except MergeError:
        same(target, values_of(target), values_of(empty.fresh()), lambda _: 0.0, "a refused state leaves no trace")
        return
    values_of(target)
    other = fed_with(empty, [whole])
    other.merge(target)
    values_of(other)


def _damaged(value: torch.Tensor, kind: str) -> torch.Tensor:
    """Return a tensor with one thing wrong."""
    if kind == "cut":
        return value.reshape(-1)[: max(0, value.numel() - 1)]
    if kind == "turned":
        return value[None]
    if kind == "double":
        return torch.cat([value.reshape(-1), value.reshape(-1)])
    bad = value.clone().reshape(-1)
    if bad.numel():
        bad[0] = math.nan if kind == "nan" and value.is_floating_point() else -5
    return bad.reshape(value.shape)


def _law_declaration(statistic: type[AnyStatistic], draw: Draw) -> None:
    """It delivers what it declares and nothing else; an empty one delivers no invented numbers."""
    empty, whole = example(statistic, draw)
    fed = fed_with(empty, [whole])
    declared = {metric.name for metric in statistic.metrics}
    delivered = {measurement.name for measurement in fed.compute()}
    if delivered != declared:
        fail(fed, f"declaration: delivers {sorted(delivered)}, declares {sorted(declared)}")
    keyed: set[str] = set()
    for other, batches in statistic.examples(0):
        stream = Stream(batches)
        keyed |= {key.split("{")[0] for key in fed_with(other, [stream]).oracle(stream.whole)}
    if keyed != declared:
        fail(fed, f"declaration: the oracles of all examples know {sorted(keyed)}, declared are {sorted(declared)}")
    if empty.fresh().settings() != empty.settings():
        fail(fed, "declaration: a fresh copy has other settings")
    for key, value in values_of(empty.fresh()).items():
        if value not in (None, 0):
            fail(fed, f"declaration: {key} is {value!r} before any row was seen")
    for exhibit in [*fed.exhibits(), *empty.fresh().exhibits()]:
        exhibit.to_json()


STATISTIC_LAWS: dict[str, Law] = {
    "oracle": _law_oracle,
    "split": _law_split,
    "merge": _law_merge,
    "order": _law_order,
    "identity": _law_identity,
    "state": _law_state,
    "precision": _law_precision,
    "defects": _law_defects,
    "hostile": _law_hostile,
    "refusal": _law_refusal,
    "memory": _law_memory,
    "purity": _law_purity,
    "modes": _law_modes,
    "damage": _law_damage,
    "declaration": _law_declaration,
}
"""Name to law."""
