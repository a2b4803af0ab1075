"""The laws that every Statistic obeys, as properties that Hypothesis tries to break.

Each law takes a Statistic class and Hypothesis' `draw`. `STATISTIC_LAWS` names them all, `obey(name, class)` tries one.
Well-known libraries ship merges that break these laws (parts combined with a minus sign, small parts dropped, means
weighted by number of updates, samples that depend on order); the one test that everybody writes, a batch against the
formula, catches none of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Histogram
from embedwatch.core.statistic import Statistic

__all__ = ["STATISTIC_LAWS", "LawViolation", "obey"]

Draw = Callable[[Any], Any]
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


def _example(statistic: type[AnyStatistic], draw: Draw) -> tuple[AnyStatistic, Any]:
    """Draw one empty instance with its batches joined to one."""
    seed = draw(st.integers(0, 2**16))
    choices = list(statistic.examples(seed))
    if not choices:
        raise LawViolation(f"{statistic.__name__}.examples({seed}) must yield at least one instance, got none")
    empty, batches = choices[draw(st.integers(0, len(choices) - 1))]
    return empty, _concat(batches)


def _concat(batches: Sequence[Any]) -> Any:
    return type(batches[0]).concat(batches)


def _cut(batch: Any, draw: Draw, *, parts: int | None = None) -> list[Any]:
    """Cut a batch at drawn places; parts may be empty, of one row, very unequal."""
    count = len(batch)
    number = draw(st.integers(1, 5)) if parts is None else parts
    places = sorted(draw(st.integers(0, count)) for _ in range(number - 1))
    edges = [0, *places, count]
    return list(batch.split([right - left for left, right in pairwise(edges)]))


def _fed(empty: AnyStatistic, batches: Iterable[Any]) -> AnyStatistic:
    fed = empty.fresh()
    for batch in batches:
        fed.update(batch)
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
    fed = _fed(empty, _cut(whole, draw))
    _same(fed, _values(fed), fed.oracle(whole), fed.tolerance, "oracle")


def _law_split(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Any split of the rows, in any order of the parts, gives the same."""
    empty, whole = _example(statistic, draw)
    once = _fed(empty, [whole])
    parts = draw(st.permutations(_cut(whole, draw)))
    fed = _fed(empty, parts)
    _same(fed, _values(fed), _values(once), fed.merge_tolerance, "split")


def _law_merge(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Merge is concatenation, for parts as unequal as one row against all others."""
    empty, whole = _example(statistic, draw)
    once = _fed(empty, [whole])
    left, right = _cut(whole, draw, parts=2)
    merged = _fed(empty, [left])
    merged.merge(_fed(empty, _cut(right, draw)))
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
    parts = [_fed(empty, [part]) for part in _cut(whole, draw, parts=3)]
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
    fed.update(whole.split([0, len(whole)])[0])
    _same(fed, _values(fed), wanted, lambda _: 0.0, "batch without rows")


def _law_state(statistic: type[AnyStatistic], draw: Draw) -> None:
    """A state goes out and in, continues as if nothing had happened, and is a copy."""
    empty, whole = _example(statistic, draw)
    first, second = _cut(whole, draw, parts=2)
    fed = _fed(empty, [first])
    state = fed.state_dict()
    copy = empty.fresh()
    copy.load_state_dict(state)
    _same(copy, _values(copy), _values(fed), lambda _: 1e-12, "state round trip")
    before = _values(copy)
    fed.update(second)
    for value in state.values():
        if isinstance(value, torch.Tensor) and value.numel():
            value.zero_()
    _same(copy, _values(copy), before, lambda _: 0.0, "state is a copy")
    copy.update(second)
    _same(copy, _values(copy), _values(fed), copy.merge_tolerance, "state continues")
    blank = empty.fresh()
    blank.load_state_dict(empty.fresh().state_dict())
    _same(blank, _values(blank), _values(empty.fresh()), lambda _: 0.0, "empty state round trip")


def _law_precision(statistic: type[AnyStatistic], draw: Draw) -> None:
    """float16 and bfloat16 rows count as their float32 values; float64 rows as what they are."""
    empty, whole = _example(statistic, draw)
    if not hasattr(whole, "rows"):
        return
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    given_rows = whole.rows.to(dtype)
    fed = _fed(empty, [replace(whole, rows=given_rows)])
    wide = _fed(empty, [replace(whole, rows=given_rows.float())])
    _same(fed, _values(fed), _values(wide), lambda key: max(1e-4, fed.tolerance(key)), f"rows in {dtype}")


def _law_defects(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Rows with NaN or Inf are skipped, or counted by those whose subject they are; the rest is as without them."""
    empty, whole = _example(statistic, draw)
    if not hasattr(whole, "rows"):
        return
    count = draw(st.integers(1, 4))
    bad = whole.take(slice(0, count)).rows.clone()
    bad[:, draw(st.integers(0, bad.shape[1] - 1))] = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    mixed = _joined(whole, bad)
    fed = _fed(empty, _cut(mixed, draw))
    if statistic.counts_defects:
        _same(fed, _values(fed), fed.oracle(mixed), fed.tolerance, "rows with NaN or Inf")
    else:
        clean = _fed(empty, [whole])
        _same(fed, _values(fed), _values(clean), fed.merge_tolerance, "rows with NaN or Inf")
    only = _fed(empty, [replace(mixed.take(slice(len(whole), len(mixed))))])
    _values(only)


def _law_hostile(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Zero, equal, huge and tiny rows give what the formula gives, and never a number that is not finite."""
    empty, whole = _example(statistic, draw)
    if not hasattr(whole, "rows"):
        return
    dimension = whole.rows.shape[1]
    kind = draw(st.sampled_from(["zero", "equal", "huge", "tiny", "all equal", "all zero"]))
    row = whole.rows[:1].float()
    extra = {
        "zero": torch.zeros(2, dimension),
        "equal": row.expand(3, -1),
        "huge": row * HUGE,
        "tiny": row * TINY,
        "all equal": row.expand(len(whole), -1),
        "all zero": torch.zeros(len(whole), dimension),
    }[kind]
    mixed = _joined(whole, extra)
    if kind.startswith("all"):
        mixed = mixed.take(slice(len(whole), len(mixed)))
    fed = _fed(empty, _cut(mixed, draw))
    _same(fed, _values(fed), fed.oracle(mixed), lambda key: max(1e-3, fed.tolerance(key)), f"{kind} rows")
    once = _fed(empty, [mixed])
    _same(fed, _values(fed), _values(once), lambda key: max(1e-4, fed.merge_tolerance(key)), f"{kind} rows, split")


def _law_refusal(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Another dimension, class or configuration is refused with a message that names both."""
    empty, whole = _example(statistic, draw)
    if not hasattr(whole, "rows"):
        return
    fed = _fed(empty, [whole])
    narrow = replace(whole, rows=torch.cat([whole.rows, whole.rows], dim=1))
    wanted = _values(fed)
    for what, act in (
        ("update with another dimension", lambda: fed.update(narrow)),
        ("merge with another dimension", lambda: fed.merge(_fed(empty, [narrow]))),
    ):
        _refused(fed, what, act, str(whole.rows.shape[1]), str(narrow.rows.shape[1]))
    _refused(fed, "merge with another class", lambda: fed.merge(_stranger()), type(fed).__name__)
    _same(fed, _values(fed), wanted, lambda _: 0.0, "a refusal changes nothing")


def _law_memory(statistic: type[AnyStatistic], draw: Draw) -> None:
    """The state never exceeds the stated bound, however many rows come."""
    empty, whole = _example(statistic, draw)
    fed = empty.fresh()
    rows = getattr(whole, "rows", None)
    bound = fed.memory(1 if rows is None else rows.shape[1])
    for turn in range(6):
        fed.update(_shifted(whole, turn))
        size = sum(_size(value) for value in fed.state_dict().values())
        if size > bound + 64:
            _fail(fed, f"memory: the state takes {size} bytes after {turn + 1} batches, stated are {bound}")


def _law_purity(statistic: type[AnyStatistic], draw: Draw) -> None:
    """Update, merge and compute leave the batch, the other, the random generators and themselves as they were."""
    empty, whole = _example(statistic, draw)
    rows = getattr(whole, "rows", None)
    before = None if rows is None else rows.clone()
    generators = (torch.get_rng_state().clone(), repr(np.random.get_state()), random.getstate())
    left, right = _cut(whole, draw, parts=2)
    fed, other = _fed(empty, [left]), _fed(empty, [right])
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
    if rows is not None and before is not None:
        if not torch.equal(rows.view(torch.uint8), before.view(torch.uint8)):
            _fail(fed, "purity: update changed the rows")
        try:
            rows.fill_(0.5)
            _same(fed, _values(fed), values, lambda _: 0.0, "no view of the rows is kept")
        finally:
            rows.copy_(before)


def _law_declaration(statistic: type[AnyStatistic], draw: Draw) -> None:
    """It delivers what it declares and nothing else; an empty one delivers no invented numbers."""
    empty, whole = _example(statistic, draw)
    fed = _fed(empty, [whole])
    declared = {metric.name for metric in statistic.metrics}
    delivered = {measurement.name for measurement in fed.compute()}
    if delivered != declared:
        _fail(fed, f"declaration: delivers {sorted(delivered)}, declares {sorted(declared)}")
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


def _joined(whole: Any, rows: torch.Tensor) -> Any:
    """Append rows to a batch, with row numbers of their own and the first row's label."""
    count = len(rows)
    ids = None if whole.ids is None else torch.cat([whole.ids, whole.ids.max() + 1 + torch.arange(count)])
    labels = None if whole.labels is None else torch.cat([whole.labels, whole.labels[:1].expand(count)])
    return replace(whole, rows=torch.cat([whole.rows, rows.to(whole.rows)]), ids=ids, labels=labels)


def _shifted(batch: Any, turn: int) -> Any:
    """Return other rows of the same shape, as if the source went on."""
    if not hasattr(batch, "rows"):
        return batch
    ids = None if batch.ids is None else batch.ids + turn * len(batch)
    return replace(batch, rows=batch.rows * (1 + 0.1 * turn), ids=ids)


def _size(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(_size(item) for item in value)
    return len(value) if isinstance(value, str) else 8
