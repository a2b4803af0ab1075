"""The laws that every Statistic obeys, as properties that Hypothesis tries to break.

Each law takes a Statistic class and Hypothesis' `draw`. `STATISTIC_LAWS` names them all, `obey(name, class)` tries one.
Well-known libraries ship merges that break these laws (parts combined with a minus sign, small parts dropped, means
weighted by number of updates, samples that depend on order); the one test that everybody writes, a batch against the
formula, catches none of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Histogram
from embedwatch.core.statistic import Statistic
from embedwatch.testing.streams import Draw, Stream, cut, shifted

__all__ = ["STATISTIC_LAWS", "LawViolation", "obey"]

AnyStatistic = Statistic[Any]
Values = dict[str, float | Histogram | None]
Law = Callable[[type[AnyStatistic], Draw], None]

HUGE, TINY = 1e30, 1e-30


class LawViolation(AssertionError):
    """A Statistic broke a law."""


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


def _fail(statistic: AnyStatistic, what: str) -> None:
    raise LawViolation(f"{type(statistic).__name__} ({statistic.settings()}): {what}")


def _example(statistic: type[AnyStatistic], draw: Draw) -> tuple[AnyStatistic, Stream]:
    """Draw one empty instance with its stream."""
    seed = draw(st.integers(0, 2**16))
    choices = list(statistic.examples(seed))
    if not choices:
        raise LawViolation(f"{statistic.__name__}.examples({seed}) must yield at least one instance, got none")
    empty, batches = choices[draw(st.integers(0, len(choices) - 1))]
    return empty, Stream(batches)


def _feed(statistic: AnyStatistic, stream: Stream) -> None:
    for batch in stream.batches:
        statistic.update(batch)


def _fed(empty: AnyStatistic, streams: Iterable[Stream]) -> AnyStatistic:
    fed = empty.fresh()
    for stream in streams:
        _feed(fed, stream)
    return fed


def _values(statistic: AnyStatistic) -> Values:
    found: Values = {}
    for measurement in statistic.compute():
        if measurement.key in found:
            _fail(statistic, f"{measurement.key} is delivered twice")
        value = measurement.value
        if isinstance(value, float) and not math.isfinite(value):
            _fail(statistic, f"{measurement.key} is {value}; not enough data is None")
        found[measurement.key] = value
    return found


def _same(
    statistic: AnyStatistic, found: Values, wanted: Mapping[str, Any], tolerance: Callable[[str], float], law: str
) -> None:
    for key, want in wanted.items():
        if key not in found:
            _fail(statistic, f"{law}: {key} is missing")
        have = found[key]
        if isinstance(want, Histogram) and isinstance(have, Histogram):
            agree = have.counts == want.counts and math.isclose(have.sum, want.sum, rel_tol=1e-6, abs_tol=1e-6)
        elif want is None or have is None or isinstance(want, Histogram) or isinstance(have, Histogram):
            agree = want is have is None
        else:
            agree = abs(have - want) <= tolerance(key) * max(1.0, abs(want))
        if not agree:
            _fail(statistic, f"{law}: {key} is {have!r}, must be {want!r}")


def _law_oracle(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Equals its own formula on the whole data, however the rows arrive."""
    empty, whole = _example(statistic, draw)
    fed = _fed(empty, cut(whole, draw))
    _same(fed, _values(fed), fed.oracle(whole.whole), fed.tolerance, "oracle")


def _law_split(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Any split of the rows, in any order of the parts, gives the same."""
    empty, whole = _example(statistic, draw)
    once = _fed(empty, [whole])
    parts = draw(st.permutations(cut(whole, draw)))
    fed = _fed(empty, parts)
    _same(fed, _values(fed), _values(once), fed.merge_tolerance, "split")


def _law_merge(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Merge is concatenation, for parts as unequal as one row against all others."""
    empty, whole = _example(statistic, draw)
    once = _fed(empty, [whole])
    left, right = cut(whole, draw, parts=2)
    merged = _fed(empty, [left])
    merged.merge(_fed(empty, cut(right, draw)))
    _same(merged, _values(merged), _values(once), merged.merge_tolerance, "merge is concatenation")
    small, rest = whole.split([1, len(whole) - 1])
    for first, second in ((small, rest), (rest, small)):
        merged = _fed(empty, [first])
        merged.merge(_fed(empty, [second]))
        _same(
            merged,
            _values(merged),
            _values(once),
            merged.merge_tolerance,
            f"merge of {len(first)} and {len(second)} rows",
        )


def _law_order(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Merge is associative and commutative."""
    empty, whole = _example(statistic, draw)
    parts = [_fed(empty, [part]) for part in cut(whole, draw, parts=3)]
    results = []
    for first, second, third, inner in ((0, 1, 2, True), (0, 1, 2, False), (2, 0, 1, True), (1, 2, 0, False)):
        a, b, c = (_copy(parts[place]) for place in (first, second, third))
        if inner:
            b.merge(c)
            a.merge(b)
        else:
            a.merge(b)
            a.merge(c)
        results.append((a, _values(a)))
    for result, values in results[1:]:
        _same(result, values, results[0][1], result.merge_tolerance, "merge in another order")


def _law_identity(statistic: type[AnyStatistic], draw: Draw) -> None:
    """The empty state is the identity of merge, on both sides and with itself; a batch without rows changes nothing."""
    empty, whole = _example(statistic, draw)
    fed = _fed(empty, [whole])
    wanted = _values(fed)
    fed.merge(empty.fresh())
    _same(fed, _values(fed), wanted, lambda _: 0.0, "merge with empty")
    other = empty.fresh()
    other.merge(fed)
    _same(other, _values(other), wanted, fed.merge_tolerance, "empty merged with all")
    nothing = empty.fresh()
    nothing.merge(empty.fresh())
    _same(nothing, _values(nothing), _values(empty.fresh()), lambda _: 0.0, "empty merged with empty")
    _feed(fed, whole.split([0, len(whole)])[0])
    _same(fed, _values(fed), wanted, lambda _: 0.0, "batch without rows")


def _law_state(statistic: type[AnyStatistic], draw: Draw) -> None:
    """A state goes out and in, continues as if nothing had happened, and is a copy."""
    empty, whole = _example(statistic, draw)
    first, second = cut(whole, draw, parts=2)
    fed = _fed(empty, [first])
    state = fed.state_dict()
    copy = empty.fresh()
    copy.load_state_dict(state)
    _same(copy, _values(copy), _values(fed), lambda _: 1e-12, "state round trip")
    before = _values(copy)
    _feed(fed, second)
    for value in state.values():
        if isinstance(value, torch.Tensor) and value.numel():
            value.zero_()
    _same(copy, _values(copy), before, lambda _: 0.0, "state is a copy")
    _feed(copy, second)
    _same(copy, _values(copy), _values(fed), copy.merge_tolerance, "state continues")
    blank = empty.fresh()
    blank.load_state_dict(empty.fresh().state_dict())
    _same(blank, _values(blank), _values(empty.fresh()), lambda _: 0.0, "empty state round trip")


def _law_precision(statistic: type[AnyStatistic], draw: Draw) -> None:
    """float16 and bfloat16 rows count as their float32 values; float64 rows as what they are."""
    empty, whole = _example(statistic, draw)
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    given_rows = whole.change(lambda rows: rows.to(dtype))
    fed = _fed(empty, [given_rows])
    wide = _fed(empty, [given_rows.change(torch.Tensor.float)])
    _same(fed, _values(fed), _values(wide), lambda key: max(1e-4, fed.tolerance(key)), f"rows in {dtype}")


def _law_defects(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Rows with NaN or Inf are skipped, or counted by those whose subject they are; the rest is as without them."""
    empty, whole = _example(statistic, draw)
    mixed = whole.spoil(draw(st.sampled_from([math.nan, math.inf, -math.inf])), draw)
    fed = _fed(empty, cut(mixed, draw))
    if statistic.counts_defects:
        _same(fed, _values(fed), fed.oracle(mixed.whole), fed.tolerance, "rows with NaN or Inf")
    else:
        clean = _fed(empty, [whole])
        _same(fed, _values(fed), _values(clean), fed.merge_tolerance, "rows with NaN or Inf")
    _values(_fed(empty, mixed.split([len(whole), len(mixed) - len(whole)])[1:]))


def _law_hostile(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Zero, equal, huge and tiny rows give what the formula gives, and never a number that is not finite."""
    empty, whole = _example(statistic, draw)
    kind = draw(st.sampled_from(["zero", "equal", "huge", "tiny", "all equal", "all zero"]))
    factor = {"zero": 0.0, "all zero": 0.0, "huge": HUGE, "tiny": TINY}.get(kind, 1.0)
    count = len(whole) if kind.startswith("all") else 3
    mixed = whole.repeat(factor, count)
    if kind.startswith("all"):
        mixed = mixed.split([len(whole), count])[1]
    fed = _fed(empty, cut(mixed, draw))
    _same(fed, _values(fed), fed.oracle(mixed.whole), lambda key: max(1e-3, fed.tolerance(key)), f"{kind} rows")
    once = _fed(empty, [mixed])
    _same(fed, _values(fed), _values(once), lambda key: max(1e-4, fed.merge_tolerance(key)), f"{kind} rows, split")


def _law_refusal(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Another dimension, class or configuration is refused with a message that names both."""
    empty, whole = _example(statistic, draw)
    fed = _fed(empty, [whole])
    wanted = _values(fed)
    _refused(fed, "merge with another class", lambda: fed.merge(_stranger()), type(fed).__name__)
    for name in set(whole.numbers) & {"rows", "left", "right"}:
        rows = getattr(whole.whole, name)
        wide = replace(whole.whole, **{name: torch.cat([rows, rows], dim=1)})
        words = str(rows.shape[1]), str(2 * rows.shape[1])
        _refused(fed, "update with another dimension", partial(fed.update, wide), *words)
        if statistic.needs_reference:  # its frozen arrays have a dimension: an empty one refuses such rows too
            _refused(fed, "first update with another dimension", partial(empty.fresh().update, wide), *words)
            continue
        other = _fed(empty, [Stream([wide])])
        _refused(fed, "merge with another dimension", partial(fed.merge, other), *words)
    _same(fed, _values(fed), wanted, lambda _: 0.0, "a refusal changes nothing")


def _law_memory(statistic: type[AnyStatistic], draw: Draw) -> None:
    """The state never exceeds the stated bound, however many rows come."""
    empty, whole = _example(statistic, draw)
    fed = empty.fresh()
    bound = fed.memory(whole.dimension)
    for turn in range(6):
        _feed(fed, shifted(whole, turn))
        size = sum(_size(value) for value in fed.state_dict().values())
        if size > bound + 64:
            _fail(fed, f"memory: the state takes {size} bytes after {turn + 1} batches, stated are {bound}")


def _law_purity(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Update, merge and compute leave the batch, the other, the random generators and themselves as they were."""
    empty, whole = _example(statistic, draw)
    held = [getattr(batch, name) for name in whole.numbers for batch in whole.batches]
    before = [rows.clone() for rows in held]
    generators = (torch.get_rng_state().clone(), repr(np.random.get_state()), random.getstate())
    half = draw(st.integers(0, len(whole.batches)))
    fed, other = (_fed(empty, [Stream(part)]) for part in (whole.batches[:half], whole.batches[half:]))
    others = _values(other)
    fed.merge(other)
    fed.exhibits()
    values = _values(fed)
    _same(fed, _values(fed), values, lambda _: 0.0, "compute twice")
    _same(other, _values(other), others, lambda _: 0.0, "merge left the other alone")
    if not torch.equal(generators[0], torch.get_rng_state()) or generators[1:] != (
        repr(np.random.get_state()),
        random.getstate(),
    ):
        _fail(fed, "purity: a global random generator was used")
    if any(not torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(held, before, strict=True)):
        _fail(fed, "purity: update changed the rows")
    try:
        for rows in held:
            rows.fill_(0.5)
        _same(fed, _values(fed), values, lambda _: 0.0, "no view of the rows is kept")
    finally:
        for rows, was in zip(held, before, strict=True):
            rows.copy_(was)


def _law_modes(statistic: type[AnyStatistic], draw: Draw) -> None:
    """What was fed in inference mode or under autocast is exact, and stays usable outside."""
    empty, whole = _example(statistic, draw)
    first, second = cut(whole, draw, parts=2)
    fed, other = empty.fresh(), empty.fresh()
    mode = draw(st.sampled_from(["inference", "autocast"]))
    with torch.inference_mode() if mode == "inference" else torch.autocast("cpu", dtype=torch.bfloat16):
        first = first.change(torch.Tensor.clone)  # tensors of this mode, as a model's output is
        _feed(fed, first)
        _feed(other, second)
    wanted = _fed(empty, [whole])
    fed.merge(other)
    _same(fed, _values(fed), _values(wanted), fed.merge_tolerance, f"fed in {mode} mode")
    _feed(fed, second)
    _values(fed)


def _law_damage(statistic: type[AnyStatistic], draw: Draw) -> None:
    """A state that cannot be one is refused as a whole; what is accepted can be computed and merged."""
    empty, whole = _example(statistic, draw)
    state = _fed(empty, [whole]).state_dict()
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
        _same(target, _values(target), _values(empty.fresh()), lambda _: 0.0, "a refused state leaves no trace")
        return
    _values(target)
    other = _fed(empty, [whole])
    other.merge(target)
    _values(other)


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
    empty, whole = _example(statistic, draw)
    fed = _fed(empty, [whole])
    declared = {metric.name for metric in statistic.metrics}
    delivered = {measurement.name for measurement in fed.compute()}
    if delivered != declared:
        _fail(fed, f"declaration: delivers {sorted(delivered)}, declares {sorted(declared)}")
    keyed: set[str] = set()
    for other, batches in statistic.examples(0):
        stream = Stream(batches)
        keyed |= {key.split("{")[0] for key in _fed(other, [stream]).oracle(stream.whole)}
    if keyed != declared:
        _fail(fed, f"declaration: the oracles of all examples know {sorted(keyed)}, declared are {sorted(declared)}")
    if empty.fresh().settings() != empty.settings():
        _fail(fed, "declaration: a fresh copy has other settings")
    for key, value in _values(empty.fresh()).items():
        if value not in (None, 0):
            _fail(fed, f"declaration: {key} is {value!r} before any row was seen")
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


class _Stranger:
    """Nothing that any Statistic could merge with."""


def _stranger() -> Any:
    return _Stranger()


def _refused(statistic: AnyStatistic, what: str, act: Callable[[], None], *words: str) -> None:
    try:
        act()
    except MergeError as error:
        if any(word not in str(error) for word in words):
            _fail(statistic, f"refusal: {what} must name {words}, says {str(error)!r}")
        return
    _fail(statistic, f"refusal: {what} must raise MergeError")


def _copy(statistic: AnyStatistic) -> AnyStatistic:
    copy = statistic.fresh()
    copy.load_state_dict(statistic.state_dict())
    return copy


def _size(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(_size(item) for item in value)
    return len(value) if isinstance(value, str) else 8
