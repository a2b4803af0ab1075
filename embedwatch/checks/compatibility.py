"""Vectors of two models, or of one model used in two ways, should find one another as they stand."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

__all__ = ["RECIPES", "TOWERS", "Compatibility", "Finding", "finding_of"]

RECIPES = "recipes differ: "
"""How a note of the Snapshot begins that says in what the ways from text to vector differ."""
TOWERS = "both sides are towers of one model: pairs should find one another, not be equal"
LEAST_PAIRS = 100
LEAST_DIMENSIONS = 2
MOST_REPEATED = 0.2
MOST_BROKEN = 0.01
"""Share of pairs with NaN, Inf or zeros."""
IDENTICAL, DEGRADED, ALIKE = 0.98, 0.75, 0.3
"""Share of the 10 nearest that are found as they stand: below the last, two spaces have no coordinates in common."""
FINDS_ITSELF = 0.9
SAME_COORDINATES = 0.3
"""Centred cosine: other models stay below 0.03, the same model used otherwise had 0.8 and more."""
SURELY_SAME = 0.6
"""Centred cosine that no two models have, whatever is found: averages of words have 0.62 to their maximum."""
BY_CHANCE, NEARLY_CHANCE = 0.01, 0.02
"""Share of random pairings that agree as much, and mutual k-NN above chance, that are none."""
WEAK, ALIGNABLE = 0.05, 0.15
"""Mutual k-NN above chance."""
ALIGNED = 0.9
ROTATED = 0.98
MOST = 0.99
EQUAL = 1e-4
SAME_LENGTH, SAME_SPREAD = 1e-3, 0.02
"""Lengths that are alike at the median, and of which nearly all are."""
TINY = 1e-3
"""Distance at the 90 % quantile that fewer bits make."""
SOME = 0.02
"""Share of items that are bit for bit what they were, from which on only the others were touched."""
NOISE_OFFSET, NOISE_MEAN, NOISE_COSINE = 0.17, 0.05, 0.93
"""Fewer bits in the weights: no common shift, the mean as long as it was, and nearly the same coordinates."""
PREFIX_COSINE, PREFIX_OFFSET = 0.95, 0.3
"""A prefix moves texts together and leaves the rest: it may leave less than this, but no pooling seen left as much."""
POOLING_COSINE, POOLING_OFFSET = 0.86, 0.58
"""A pooling that changes the rest, and moves texts together: of five models, prefixes that changed as much shared 0.56
of the difference at most, and rough weights 0.52."""
SHIFTED = 0.15
"""Share of the difference from which on it is another configuration, whichever."""
UNNAMED = "configuration"
"""One model, configured otherwise in a way that vectors alone do not tell."""
MISPAIRED = 0.5
TOWERS_FAIL, TOWERS_WARN = 3.0, 10.0
"""Recall@10 over chance below which pairs of two towers find one another no better than by chance, or hardly."""
GRIDS = ("binary", "int8", "bfloat16", "float16")
Grade = Literal["ok", "warn", "fail"]
Name = Literal["identical", "degraded", "mismatch", "alignable", "weak", "unrelated", "mispaired", "invalid"]
LIMITS = {"ok": Limit(warn=1 - IDENTICAL), "warn": Limit(warn=1e-9), "fail": Limit(fail=1e-9)}


class Finding(NamedTuple):
    """What two spaces are to one another.

    Args:
        name: `identical`, `degraded` (a drop-in that costs something), `mismatch` (one model, configured otherwise),
            `alignable`, `weak`, `unrelated`, `mispaired`, or `invalid`.
        grade: how grave it is.
        told: what shows it.
        cause: what differs, where it is one model: `precision`, `pooling`, `prefix`, `truncation`, …; else empty.
        remedy: what to do.
    """

    name: Name
    grade: Grade | None
    told: str
    cause: str = ""
    remedy: str = ""


class _Facts:
    """The numbers of a Snapshot, by short names; NaN, of which nothing is true, where there is none."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def __call__(self, name: str, **labels: str) -> float:
        number = self.snapshot.number(f"pair_{name}", **labels)
        return float("nan") if number is None else number

    @property
    def recipes(self) -> str:
        """In what the ways from text to vector differ; empty where that is not known."""
        notes = self.snapshot.provenance.notes
        return next((note.removeprefix(RECIPES) for note in notes if note.startswith(RECIPES)), "")

    def new_grid(self) -> str:
        """The coarsest grid on which the values of one side lie, and not those of the other; empty for none."""
        for grid in GRIDS:
            shares = [self("grid_ratio", side=side, grid=grid) for side in ("left", "right")]
            if max(shares) >= MOST > min(shares):
                return grid
        return ""

    def raw(self) -> str:
        """How the two search one another as they stand, in words."""
        cosine, other = self("cosine", pairs="own"), self("cosine", pairs="other")
        return (
            f"{self('overlap_ratio'):.1%} of the 10 nearest are found as they stand, recall@1 "
            f"{self('recall_ratio', k='1'):.3g}; cosine {cosine:.3g}, of other items {other:.3g}"
        )

    def common(self) -> str:
        """What both have in common, in words."""
        return f"mutual k-NN {self('mutual_ratio'):.2f} (chance {self('mutual_null_ratio'):.3f}), CKA {self('cka'):.2f}"

    def aligned(self) -> str:
        """What a map keeps, in words."""
        recall, gallery = self("aligned_recall_ratio", k="10"), self("aligned_gallery_rows")
        return f"a rotation fitted on half of the items gives the others recall@10 {recall:.3g} among {gallery:,.0f}"


def finding_of(snapshot: Snapshot) -> Finding:
    """Return what two spaces are to one another: the first rule that fits.

    Invalid input; one space as it stands (identical, a degraded drop-in, another configuration of one model); nothing
    but chance in common (mispaired, or unrelated); alignable; weak.
    """
    facts = _Facts(snapshot)
    if TOWERS in snapshot.provenance.notes:
        return _invalid(facts) or _towers(facts)
    rules = (_invalid, _cut, _swapped, _same_space, _chance, _alignable)
    found = next((each for rule in rules if (each := rule(facts)) is not None), None)
    return found or _weak(facts)


def _towers(facts: _Facts) -> Finding:
    """Two towers: whether pairs find one another in the space that they share."""
    recall, rows = facts("recall_ratio", k="10"), facts("sample_rows")
    if not recall >= 0:
        left, right = (facts("dimension", side=side) for side in ("left", "right"))
        told = f"Two towers of {left:.0f} and {right:.0f} dimensions share no space."
        return Finding("unrelated", "fail", told, remedy="Give vectors behind the projection of each tower.")
    over = recall * rows / 10
    gap, alignment = facts("modality_gap"), facts("alignment")
    cosine, other = facts("cosine", pairs="own"), facts("cosine", pairs="other")
    told = (
        f"recall@10 {recall:.3g} among {rows:,.0f}, {over:.3g} times chance; modality gap {gap:.3g}, alignment "
        f"{alignment:.3g}, cosine {cosine:.3g}, of other items {other:.3g}"
    )
    if over < TOWERS_FAIL:
        remedy = "See that row i is the same item on both sides, and that both towers are of one model."
        return Finding("unrelated", "fail", f"Two towers that do not find one another: {told}.", remedy=remedy)
    if over < TOWERS_WARN:
        return Finding("weak", "warn", f"Two towers that hardly find one another: {told}.", remedy="Train further.")
    return Finding("identical", "ok", f"Two towers of one space: {told}.", "towers")


def _invalid(facts: _Facts) -> Finding | None:
    rows, broken = facts("rows"), facts("nonfinite_rows") + facts("zero_rows")
    every = rows + broken
    repeated = max(facts("repeated_ratio", side=side) for side in ("left", "right"))
    told, remedies = [], []
    narrow = min(facts("dimension", side=side) for side in ("left", "right"))
    if narrow < LEAST_DIMENSIONS:
        told.append(f"vectors of {narrow:.0f} dimension have no direction but plus and minus")
        remedies.append("Give the vectors themselves, not a number of each.")
    if broken > MOST_BROKEN * every:
        told.append(f"{broken:,.0f} of {every:,.0f} pairs have NaN, Inf or a zero row")
        remedies.append("Embed the broken rows again.")
    if repeated > MOST_REPEATED:
        told.append(f"{repeated:.0%} of the rows of a side are there twice or more")
        remedies.append("Embed other items, each once.")
    if not rows >= LEAST_PAIRS:
        told.append(f"{rows:,.0f} pairs are too few, needs {LEAST_PAIRS}")
        remedies.append(f"Give {LEAST_PAIRS} pairs or more, each item once.")
    if not told:
        return None
    return Finding("invalid", None, f"Invalid input: {'; '.join(told)}.", remedy=" ".join(remedies))


def _cut(facts: _Facts) -> Finding | None:
    """One side holds the first dimensions of the other."""
    if not facts("leading_distance") <= EQUAL:
        return None
    left, right = (facts("dimension", side=side) for side in ("left", "right"))
    told = f"One model, its dimensions cut: {max(left, right):.0f} and the first {min(left, right):.0f} of them."
    return Finding("mismatch", "fail", told, "truncation", "Cut both sides alike; the longer one can be cut as it is.")


def _swapped(facts: _Facts) -> Finding | None:
    """Some rows hold what others should."""
    swapped = facts("displaced_ratio")
    if not swapped >= SOME:
        return None
    rest = f"{facts('same_ratio'):.0%} are equal" if facts("same_ratio") >= SOME else "none is where it should be"
    told = f"Mispaired: {swapped:.0%} of the items have the vector of another item, {rest}."
    return Finding("mispaired", "fail", told, "order", "Bring both into one order, or give both an id column.")


def _same_space(facts: _Facts) -> Finding | None:
    """Both sides have the same coordinates."""
    overlap = facts("overlap_ratio")
    cosine = facts("centred_cosine")
    found = facts("recall_ratio", k="1") >= FINDS_ITSELF and overlap >= ALIKE
    if not (cosine >= SURELY_SAME or (cosine >= SAME_COORDINATES and found)):
        return None
    cause, what = _cause(facts)
    lengths = _lengths(facts)
    if cause in ("pooling", "prefix", "recipe", UNNAMED) and overlap < IDENTICAL:
        told = f"One model, configured otherwise: {what}; {facts.raw()}."
        return Finding(
            "mismatch", "fail", told, cause, "Use one configuration for both, and embed the fewer rows again."
        )
    if overlap >= IDENTICAL:
        told = f"The same space: {facts.raw()}; {what}{lengths}."
        return Finding("identical", "ok", told[0].upper() + told[1:], cause)
    if overlap >= DEGRADED:
        told = f"A drop-in that costs something: {what}; {facts.raw()}{lengths}."
        return Finding("degraded", "warn", told, cause, "Accept the loss, or use one configuration for both.")
    told = f"One model, configured otherwise: {what}; {facts.raw()}{lengths}."
    return Finding("mismatch", "fail", told, cause, "Use one configuration for both, and embed the fewer rows again.")


def _lengths(facts: _Facts) -> str:
    units = [facts("unit_ratio", side=side) for side in ("left", "right")]
    ratio, spread = facts("norm_ratio"), facts("norm_spread_ratio")
    if abs(ratio - 1) <= SAME_LENGTH and spread <= SAME_SPREAD:
        return ""
    if max(units) >= MOST > min(units):
        return "; one side is scaled to length 1 and the other is not, which counts for dot product and L2"
    return f"; the right vectors are {ratio:.3g} times as long, which counts for dot product and L2"


def _cause(facts: _Facts) -> tuple[str, str]:
    """Return what differs between two uses of one model, as one word and in a few."""
    same, grid = facts("same_ratio"), facts.new_grid()
    if facts.recipes:
        return _word(facts.recipes), facts.recipes
    if grid:
        return "precision", f"precision: values of one side are {grid}"
    if same >= MOST:
        return ("normalisation" if _lengths(facts) else ""), "directions are equal"
    if facts("distance", q="0.9") <= TINY:
        return "precision", "precision: a difference as of fewer bits (bfloat16, float16) in the model"
    if same >= SOME:
        told = f"truncation of texts, or a cache: {same:.0%} of the items are as they were and the others are not"
        return "truncation", told
    means = [facts("mean_length", side=side) for side in ("left", "right")]
    offset, alike = facts("offset_ratio"), facts("centred_cosine")
    if offset < NOISE_OFFSET and abs(means[0] - means[1]) < NOISE_MEAN and alike >= NOISE_COSINE:
        return "precision", "precision of the weights (int8): every item moved a little, each its own way"
    shift = f"{offset:.0%} of the difference is one shift"
    if offset >= PREFIX_OFFSET and alike >= PREFIX_COSINE:
        return "prefix", f"another prefix or prompt, or else pooling: {shift}"
    if offset >= POOLING_OFFSET and alike < POOLING_COSINE:
        return "pooling", f"another pooling, or else prefix: {shift}"
    if offset >= SHIFTED:
        return UNNAMED, f"pooling, prefix or few bits, vectors alone do not tell which: {shift}"
    return "altered", "its weights were altered, or noise was added"


def _word(recipes: str) -> str:
    """Return the one word for a difference of recipes."""
    words = ("pooling", "prefix", "truncation", "normalisation", "precision")
    return next((word for word in words if word in recipes), "recipe")


def _chance(facts: _Facts) -> Finding | None:
    """Neighbours agree no more than by chance."""
    mutual = facts("mutual_p_value")
    if mutual <= BY_CHANCE and facts("mutual_calibrated_ratio") >= NEARLY_CHANCE:
        return None
    shifted, back, matched = (
        facts(name) for name in ("shifted_mutual_ratio", "reversed_mutual_ratio", "matched_ratio")
    )
    least = WEAK + facts("mutual_limit_ratio")
    remedy = "Bring both into one order, or give both an id column, and check again."
    if facts("shift_rows") != 0 and shifted >= least:
        rows = facts("shift_rows")
        told = f"the right side is shifted by {abs(rows):.0f} rows: moved, {shifted:.0%} of the 10 nearest agree"
        return Finding("mispaired", "fail", f"Mispaired: {told}.", "order", remedy)
    if back >= least:
        told = f"one side is back to front: turned, {back:.0%} of the 10 nearest agree"
        return Finding("mispaired", "fail", f"Mispaired: {told}.", "order", remedy)
    if matched >= MISPAIRED:
        told = f"{matched:.0%} of the items are recognised in another row"
        return Finding("mispaired", "fail", f"Mispaired: the rows are shuffled; {told}.", "order", remedy)
    told = f"Unrelated, or mispaired in an unknown order: {facts.common()}, as by chance."
    return Finding("unrelated", "fail", told, remedy=f"See whether row i is the same item on both sides. {remedy}")


def _alignable(facts: _Facts) -> Finding | None:
    """Other coordinates, and a map that keeps nearly all."""
    if facts("similarity_ratio") >= ROTATED and facts("rotation_ratio") >= ROTATED:
        told = f"The same space in other coordinates, rotated: {facts.common()}; {facts.aligned()}. {_standing(facts)}"
        return Finding("alignable", "fail", told, "rotation", "Map one side: `embedwatch align fit`; it loses nothing.")
    if not (facts("mutual_calibrated_ratio") >= ALIGNABLE and facts("aligned_recall_ratio", k="10") >= ALIGNED):
        return None
    told = f"Not interchangeable, but alignable: {facts.common()}; {facts.aligned()}. {_standing(facts)}"
    remedy = "Bridge with `embedwatch align fit` while you embed again; a map is no upgrade."
    return Finding("alignable", "fail", told, remedy=remedy)


def _weak(facts: _Facts) -> Finding:
    told = f"Weakly related: {facts.common()}; {facts.aligned()}. {_standing(facts)}"
    return Finding("weak", "fail", told, remedy="Embed again with one model; or give more pairs, and fit a map.")


def _standing(facts: _Facts) -> str:
    if facts("recall_ratio", k="10") >= 0:
        return f"As they stand: {facts.raw()}."
    left, right = (facts("dimension", side=side) for side in ("left", "right"))
    return f"As they stand they have {left:.0f} and {right:.0f} dimensions."


class Compatibility(Check):
    """Vectors of two models, or of one model used in two ways, find one another as they stand.

    The verdict names what the two spaces are to one another. The value is the share of each item's 10 nearest that the
    other side's vectors do not find: below 0.02 the two are one space, below 0.25 a drop-in that costs something.
    Mutual neighbours and CKA say only whether a map exists: they are 1 for a rotated copy, in which nothing is found.
    """

    name = "compatibility"
    title = "whether two spaces may meet"
    reads = ("pair_rows", "pair_mutual_ratio", "pair_aligned_recall_ratio")
    roles = ("pairs",)
    limit = Limit(warn=1 - IDENTICAL, fail=1 - DEGRADED)
    exhibits = ("pair_served_worst", "pair_aligned_served_worst")
    meaning = "Vectors of the one space do not find in the other what its own vectors find there."
    impact = (
        "Mixed in one index, or asked of it, they return wrong items without any error: dimensions may be equal, and "
        "even cosines may be high."
    )
    diagnosis = (
        "Read the verdict: it names the likeliest difference of one model (pooling, prefix, precision, truncation), or "
        "says whether a map between two models would do. See that row i is the same item on both sides."
    )
    mitigation = (
        "Use one model in one configuration for all rows. Until all are embedded again, map queries with `embedwatch "
        "align fit`, or search two indexes."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of neighbours that is not found; the limit says how grave what was found is."""
        del reference, history
        finding = finding_of(snapshot)
        rows = int(snapshot.number("pair_rows") or 0)
        overlap = snapshot.number("pair_overlap_ratio")
        if finding.grade is None:
            return Evidence(None, self.limit, rows, finding.told)
        lost = 1.0 if overlap is None else 1 - overlap
        harmless = finding.grade == "ok" and lost >= 1 - IDENTICAL  # towers need not be one space
        return Evidence(
            lost,
            None if harmless else LIMITS[finding.grade],
            rows,
            finding.told,
            effect=snapshot.number("pair_mutual_ratio"),
            effect_name="pair_mutual_ratio",
            effect_limit=snapshot.number("pair_mutual_limit_ratio"),
            p_value=snapshot.number("pair_mutual_p_value"),
            test="neighbours of each item in both spaces, as they stand and whatever the coordinates",
            exhibits=self.exhibits,
        )
