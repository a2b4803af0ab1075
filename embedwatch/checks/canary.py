"""Fixed texts should be embedded as they were."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

MOVED = "canary_moved_ratio"
NEEDED = ("canary_texts", "canary_nonfinite_texts", "canary_zero_texts", "canary_dimension", MOVED)
LEAST = 5e-4
"""Share of texts that is less than one: a canary has 1,024 at most."""
FEW = 0.5
"""Where fewer texts than this moved, single texts did and not the space."""
SAME_LENGTH = 1e-3
"""Lengths within this of what they were are the same."""
EQUAL = 1e-4
"""Leading dimensions that are as near as this are the same, also where they were rounded."""
MOST = 0.99
"""Share of texts that stands for all."""
LONGER = 1e-2
"""Lengths beside something else are told from here on: rounding makes less."""
SLIGHT, SLIGHT_COSINE = 1e-3, 0.99
"""Median distance, and centred cosine, up to and from which fewer bits inside a model move its texts."""
GRID_COSINE = 0.4
"""Even the signs of a vector keep more of it."""
ROUNDED_OVERLAP = 0.85
ROTATED_SIMILARITY, ROTATED_SHARE = 0.98, 0.05
"""A rotation keeps all similarities, and loses far less of them than it moves texts: 1e-7 of it; all else loses 0.2."""
NEARLY_SAME = 0.9
"""Centred cosine from which on noise in directions that no text uses, which keeps similarities too, may be at work."""
SAME_COORDINATES = 0.3
"""Centred cosine: other models stay below 0.03, the same model used or trained otherwise had 0.6 and more."""
COMMON = 0.3
"""Share of the movement that is one shift of all texts: a prompt or another pooling makes most of what is above."""
Grade = Literal["ok", "warn", "fail"]
LIMITS = {"ok": Limit(warn=LEAST), "warn": Limit(warn=LEAST), "fail": Limit(fail=LEAST)}


class Cause(NamedTuple):
    """What happened: its name, how grave it is, the share of texts that it concerns, and what shows it."""

    name: str
    grade: Grade
    share: float
    told: str


class Facts:
    """The numbers of a Snapshot, by short names; NaN, of which nothing is true, where there is none."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __call__(self, name: str, **labels: str) -> float:
        """Return a number."""
        number = self._snapshot.number(f"canary_{name}", **labels)
        return float("nan") if number is None else number

    def has(self, name: str) -> bool:
        """Return whether a number is known."""
        return self._snapshot.number(f"canary_{name}") is not None

    def new_grid(self) -> str:
        """Return the coarsest grid on which all values lie now and did not; empty for none."""
        for grid in ("binary", "int8", "bfloat16", "float16"):
            if self("grid_ratio", side="now", grid=grid) >= MOST > self("grid_ratio", side="then", grid=grid):
                return grid
        return ""

    def lengths(self, same: float) -> str:
        """Return how lengths changed, in words; empty where they are the same within a share."""
        shortest, middle, longest = (self("norm_ratio", q=q) for q in ("0", "0.5", "1"))
        floor = self("length_floor_ratio")
        same = max(same, floor)  # the first where the second is not known
        if not (shortest < 1 - same or longest > 1 + same):
            return ""
        before, now = (self("unit_ratio", side=side) for side in ("then", "now"))
        if before >= MOST > now:
            return f"vectors had length 1 and are {middle:.3g} times as long, from {shortest:.3g} to {longest:.3g}"
        if now >= MOST > before:
            return "vectors have length 1 and had not"
        return f"vectors are {middle:.3g} times as long, from {shortest:.3g} to {longest:.3g}"

    def moved(self) -> str:
        """Return how far texts moved, in words."""
        middle, largest = self("distance", q="0.5"), self("distance", q="1")
        return f"1 - cosine then and now {middle:.2g} at the median, {largest:.2g} at most"

    def shared(self) -> str:
        """Return what both spaces have in common, in words."""
        told = [
            f"{self('overlap_ratio'):.0%} of the nearest texts kept (chance {self('overlap_chance_ratio'):.0%})"
            if self.has("overlap_ratio")
            else "",
            f"CKA {self('cka'):.2f}" if self.has("cka") else "",
            f"{self('similarity_ratio'):.0%} of the similarities kept" if self.has("similarity_ratio") else "",
        ]
        return ", ".join(filter(None, told))

    def sentence(self, what: str, *more: str) -> str:
        """Return a sentence about all texts, with what shows it."""
        lengths = self.lengths(LONGER)
        told = [self.moved(), self.shared(), *more, f"besides, {lengths}" if lengths else ""]
        return f"{what}; {'; '.join(filter(None, told))}."


def cause_of(snapshot: Snapshot) -> Cause | None:
    """Return what became of the space, `None` where no text could be compared.

    The first of these that fits: texts lost, another dimension (cut off, or another model), nothing beyond the noise
    (the same, rounded, other lengths), texts in another order, single texts, a rotation, rounding, the same model used
    otherwise or altered, another model.
    """
    facts = Facts(snapshot)
    if not facts("texts") > 0:
        return None
    lost = _lost(facts)
    rules = (_dimension, _still, _order, _single, _rotated, _rounded, _altered, _other)
    cause = next((found for rule in rules if (found := rule(facts)) is not None), None)
    if lost is None or cause is None or cause.name == "unchanged":
        return lost or cause
    return lost._replace(told=f"{lost.told} All others: {cause.told}")


def _lost(facts: Facts) -> Cause | None:
    texts, nonfinite, zero = facts("texts"), facts("nonfinite_texts"), facts("zero_texts")
    if not nonfinite + zero > 0:
        return None
    kinds = [f"{nonfinite:.0f} of {texts:.0f} texts have NaN or Inf" if nonfinite else ""]
    kinds.append(f"{zero:.0f} of {texts:.0f} texts have a zero vector" if zero else "")
    return Cause("lost", "fail", (nonfinite + zero) / texts, f"Broken vectors: {', '.join(filter(None, kinds))}.")


def _dimension(facts: Facts) -> Cause | None:
    then, now = (facts("dimension", side=side) for side in ("then", "now"))
    if not (then > 0 and now > 0) or then == now:
        return None
    if facts("leading_distance") <= max(EQUAL, facts("floor")):
        again = ", scaled to length 1" if facts("unit_ratio", side="now") >= MOST else ""
        less = f"the first {now:.0f} of {then:.0f} dimensions are left{again}"
        more = f"dimensions {then + 1:.0f} to {now:.0f} were put behind the {then:.0f}{again}"
        return Cause("truncated", "fail", 1, f"Other dimensions of the same space: {less if now < then else more}.")
    shared = facts.shared()
    told = f"Another model: {now:.0f} dimensions, {then:.0f} before" + (f"; {shared}." if shared else ".")
    return Cause("other model", "fail", 1, told)


def _still(facts: Facts) -> Cause | None:
    if facts("moved_ratio") != 0:
        return None
    grid, lengths = facts.new_grid(), facts.lengths(SAME_LENGTH)
    if lengths:
        grade: Grade = "fail" if facts("lengths") == 1 else "warn"
        told = "which counts for your metric" if grade == "fail" else "which the cosine does not see"
        return Cause("lengths", grade, 1, f"Another normalisation, {told}: directions are equal, {lengths}.")
    if grid:
        return Cause("rounded", "warn", 1, f"Rounded to {grid}, within the noise: {facts.moved()}.")
    if facts("difference") == 0:
        return Cause("unchanged", "ok", 0, "Unchanged, bit for bit.")
    return Cause("unchanged", "ok", 0, f"Unchanged within the noise ({facts('floor'):.2g}): {facts.moved()}.")


def _order(facts: Facts) -> Cause | None:
    share = facts("displaced_ratio")
    if not share >= FEW:
        return None
    return Cause("order", "fail", share, f"Texts have the vectors of other texts, {share:.0%}: the order is mixed up.")


def _single(facts: Facts) -> Cause | None:
    share, displaced = facts("moved_ratio"), facts("displaced_ratio")
    if not share < FEW:
        return None
    others = f"; {displaced:.0%} have the vector of another text" if displaced > 0 else ""
    told = f"Some texts only: {share:.0%} moved, all others are as they were{others}; {facts.moved()}."
    if facts("distance", q="1") <= SLIGHT:
        return Cause("some texts", "warn", share, f"{told} As by fewer bits, on some of several servers perhaps.")
    return Cause(
        "some texts", "fail", share, f"{told} A cache, a shorter limit of tokens, or a fault in batches does that."
    )


def _rotated(facts: Facts) -> Cause | None:
    similar = facts("similarity_ratio")
    if not (similar >= ROTATED_SIMILARITY and 1 - similar <= ROTATED_SHARE * facts("distance", q="0.5")):
        return None
    if not facts("centred_cosine") < NEARLY_SAME:
        return None
    share = facts("rotation_ratio")
    fitted = f"a rotation explains {share:.0%} of texts it was not fitted on" if facts.has("rotation_ratio") else ""
    return Cause("rotated", "fail", 1, facts.sentence("The same space, rotated: other coordinates", fitted))


def _rounded(facts: Facts) -> Cause | None:
    grid, alike = facts.new_grid(), facts("centred_cosine")
    slight = facts("distance", q="0.5") <= SLIGHT and alike >= SLIGHT_COSINE
    if not (slight or (grid and alike >= GRID_COSINE)):
        return None
    how = f"values are {grid}" if grid else "as by fewer bits in the model, or a slight change of its weights"
    grade: Grade = "fail" if facts("overlap_ratio") < ROUNDED_OVERLAP else "warn"
    return Cause("rounded", grade, facts("moved_ratio"), facts.sentence(f"Rounded: {how}"))


def _altered(facts: Facts) -> Cause | None:
    if not facts("centred_cosine") >= SAME_COORDINATES:
        return None
    common = facts("offset_ratio")
    shift = f"{common:.0%} of the movement is one shift of all texts"
    if common >= COMMON:
        return Cause(
            "recipe", "fail", 1, facts.sentence("The same model, another prompt, prefix, pooling or centring", shift)
        )
    told = "The same model altered: its prompt or prefix, its pooling, or its weights (fewer bits, trained further)"
    return Cause("altered", "fail", 1, facts.sentence(told, shift))


def _other(facts: Facts) -> Cause | None:
    if not facts.has("moved_ratio"):
        return None
    return Cause("other model", "fail", 1, facts.sentence("Another model: nothing in its coordinates is as it was"))


class Canary(Check):
    """Fixed texts are embedded as they were when the canary was recorded, up to the noise that was measured then.

    The verdict names what happened, the value is the share of texts that it concerns. It warns where vectors were
    rounded, and where their lengths changed for those who compare by cosine; all else beyond the noise fails.
    """

    name = "canary"
    title = "fixed texts, then and now"
    reads = NEEDED
    weighs = (
        "canary_floor", "canary_length_floor_ratio", "canary_lengths", "canary_distance", "canary_difference",
        "canary_displaced_ratio",
        "canary_norm_ratio", "canary_unit_ratio", "canary_overlap_ratio", "canary_overlap_chance_ratio", "canary_cka",
        "canary_similarity_ratio", "canary_offset_ratio", "canary_centred_cosine", "canary_rotation_ratio",
        "canary_leading_distance", "canary_grid_ratio",
    )  # fmt: skip
    limit = Limit(fail=LEAST)
    exhibits = ("canary_moved",)
    severity = "critical"
    meaning = "The same text no longer gets the vector that it got: something between text and vector changed."
    impact = (
        "New vectors do not compare with those that are stored; a search finds the wrong things, without any error, "
        "until all is embedded again."
    )
    diagnosis = (
        "The verdict names the likeliest change. Compare the version of model, library and provider, prompt, pooling, "
        "normalisation, limit of tokens and precision with those of the day when the canary was recorded."
    )
    mitigation = (
        "Undo the change, or embed everything that is stored again with the new state and record a new canary; until "
        "then, do not mix old and new vectors in one index."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of texts that changed; the limit says how grave what happened to them is."""
        del reference, history
        texts = snapshot.number("canary_texts") or 0
        cause = cause_of(snapshot)
        if cause is None:
            return Evidence(None, self.limit, int(texts), "No text could be compared.")
        moved = snapshot.number(MOVED)
        return Evidence(
            cause.share,
            LIMITS[cause.grade],
            int(texts),
            cause.told,
            measurement=MOVED if cause.share == moved else "",
            effect=snapshot.number("canary_distance", q="0.5"),
            effect_name="canary_distance",
            effect_limit=snapshot.number("canary_floor"),
            test="each text beside itself, then and now, and beside the noise that was measured then",
            exhibits=self.exhibits,
        )
