"""What Prometheus is told: names, labels, sums over windows, bounds, and what is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families as parse_text

from embedwatch.core import Evidence, Histogram, Limit, Measurement, Metric, Provenance, Snapshot, Space, UsageError
from embedwatch.core.verdict import Status, Verdict
from embedwatch.exposition import VERSION
from embedwatch.sinks._encoding import OPENMETRICS, TEXT
from embedwatch.sinks._publisher import Publisher
from embedwatch.sinks.prometheus import Prometheus
from embedwatch.testing import hostile_snapshots
from tests.sinks.scraping import fetch

parse_openmetrics: Callable[[str], Iterable[Any]] = parser.text_string_to_metric_families
generate_openmetrics: Callable[[CollectorRegistry], bytes] = exposition.generate_latest
SPACE = Space("minilm", "hidden.3")
HERE = {"model": "minilm", "place": "hidden.3", "segment": "all"}
COSINE = Metric("mean_cosine", "Mean cosine of two rows.")
QUANTILE = Metric("norm_quantile", "Quantile of the norms.", labels=("q",))
SEEN = Metric("rows_seen_total", "Rows seen.", "rows", "counter")
NORM = Metric("norm", "Distribution of the norms.", kind="histogram")
Labels = Mapping[str, str]


class Exposed:
    """The exposition of a sink, parsed in both formats: they have to say the same."""

    def __init__(self, sink: Prometheus) -> None:
        self.text = fetch(sink.url, {"Accept": TEXT}).body.decode()
        openmetrics = fetch(sink.url, {"Accept": OPENMETRICS}).body.decode()
        self.families = list(parse_text(self.text))
        found = self._samples(self.families)
        assert self._samples(parse_openmetrics(openmetrics)) == found
        self.samples = dict(found)
        assert len(self.samples) == len(found), "a series is exposed twice"

    @staticmethod
    def _samples(families: Any) -> list[tuple[tuple[str, frozenset[tuple[str, str]]], float]]:
        return [((s.name, frozenset(s.labels.items())), s.value) for family in families for s in family.samples]

    def get(self, name: str, labels: Labels | None = None) -> float | None:
        return self.samples.get((f"embedwatch_{name}", frozenset((labels or {}).items())))

    def named(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (found, labels), value in self.samples.items() if found == f"embedwatch_{name}"}


def snapshot(*measurements: Measurement, space: Space = SPACE, step: int | None = None, time: float = 5.0) -> Snapshot:
    return Snapshot(space, measurements, Provenance(time=time, rows=100, step=step))


def verdict(check: str, status: Status, limit: Limit | None = None) -> Verdict:
    value = None if status == "unknown" else 0.5
    return Verdict(check, check, SPACE, status, Evidence(value, limit), None, "r", "m", "d")


@contextmanager
def sink(**options: Any) -> Iterator[Prometheus]:
    with Prometheus(0, **options) as made:
        yield made


def success(exposed: Exposed, collector: object = SPACE) -> float | None:
    return exposed.get("collector_success", {"collector": str(collector)})


def test_a_window_is_exposed_with_the_labels_of_its_space() -> None:
    with sink(clock=lambda: 77.0) as made:
        made.write(snapshot(COSINE.measure(0.25), QUANTILE.measure(3, q="0.5"), step=12), [])
        exposed = Exposed(made)
    assert exposed.get("mean_cosine", HERE) == 0.25
    assert exposed.get("norm_quantile", {**HERE, "q": "0.5"}) == 3
    assert exposed.get("window_rows", HERE) == 100
    assert exposed.get("window_timestamp_seconds", HERE) == 5
    assert exposed.get("training_step", {"model": "minilm"}) == 12
    assert exposed.get("build_info", {"version": VERSION}) == 1
    assert exposed.get("last_publication_timestamp_seconds") == 77
    assert exposed.get("series_dropped") == 0
    assert exposed.get("series") == len(exposed.samples)
    assert [success(exposed, name) for name in (SPACE, "verdicts", "self")] == [1, 1, 1]


def test_the_space_of_a_head_has_one_label_more() -> None:
    with sink() as made:
        made.write(snapshot(COSINE.measure(0.25)), [])
        made.write(snapshot(COSINE.measure(0.5), space=Space("minilm", "hidden.3", head="7")), [])
        exposed = Exposed(made)
    assert exposed.get("mean_cosine", HERE) == 0.25
    assert exposed.get("mean_cosine", {**HERE, "head": "7"}) == 0.5


def test_headers_stand_once_however_many_spaces() -> None:
    with sink() as made:
        for layer in range(3):
            made.write(snapshot(COSINE.measure(0.25), space=Space("m", f"hidden.{layer}")), [])
        lines = Exposed(made).text.split("\n")
    headers = [line for line in lines if line.startswith("#")]
    assert len(set(headers)) == len(headers)
    assert "# TYPE embedwatch_mean_cosine gauge" in headers


def test_the_registry_says_what_is_served() -> None:
    with sink(clock=lambda: 77.0) as made:
        made.expect([snapshot(SEEN.measure(0))])
        for layer in (1, 2):
            histogram = NORM.measure(Histogram((0.5, 1.0), (1, 2, 3), 9.5, 6))
            measured = snapshot(COSINE.measure(0.25), SEEN.measure(3), histogram, space=Space("m", f"é\\{layer}\n"))
            made.write(measured, [verdict("collapse", "fail", Limit(warn=0.1, fail=0.2))])
        assert fetch(made.url, {"Accept": TEXT}).body == generate_latest(made.registry)
        assert fetch(made.url, {"Accept": OPENMETRICS}).body == generate_openmetrics(made.registry)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_has_no_value_has_no_series(value: float | None) -> None:
    with sink() as made:
        made.write(snapshot(COSINE.measure(0.25)), [])
        made.write(snapshot(Measurement(COSINE, value)), [])
        exposed = Exposed(made)
    assert exposed.get("mean_cosine", HERE) is None
    assert success(exposed) == 1


def test_a_counter_adds_up_and_is_born_at_zero() -> None:
    with sink() as made:
        made.expect([snapshot(SEEN.measure(0), COSINE.measure(None))])
        exposed = Exposed(made)
        assert exposed.get("rows_seen_total", HERE) == 0
        assert exposed.get("window_rows", HERE) == 0
        assert exposed.get("window_timestamp_seconds", HERE) is None
        totals = []
        for count in (3, 0, 4):
            made.write(snapshot(SEEN.measure(count)), [])
            totals.append(Exposed(made).get("rows_seen_total", HERE))
        made.write(snapshot(SEEN.measure(None)), [])
        made.expect([snapshot(SEEN.measure(0))])
        exposed = Exposed(made)
    assert totals == [3, 3, 7]
    assert exposed.get("rows_seen_total", HERE) == 7
    assert exposed.get("window_rows", HERE) == 100


def test_a_histogram_adds_up_until_its_bounds_change() -> None:
    with sink() as made:
        made.expect([snapshot(NORM.measure(Histogram((0.5, 1.0), (0, 0, 0), 0.0, 0)))])
        assert Exposed(made).get("norm_bucket", {**HERE, "le": "+Inf"}) == 0
        for _ in range(3):
            made.write(snapshot(NORM.measure(Histogram((0.5, 1.0), (1, 2, 3), 9.5, 6))), [])
        exposed = Exposed(made)
        made.write(snapshot(NORM.measure(Histogram((2.0,), (1, 1), 4.0, 2))), [])
        anew = Exposed(made)
    buckets = [exposed.get("norm_bucket", {**HERE, "le": edge}) for edge in ("0.5", "1.0", "+Inf")]
    assert buckets == [3, 9, 18]
    assert (exposed.get("norm_count", HERE), exposed.get("norm_sum", HERE)) == (18, 28.5)
    assert len(anew.named("norm_bucket")) == 2
    assert (anew.get("norm_count", HERE), anew.get("norm_sum", HERE)) == (2, 4)


def test_a_histogram_with_bounds_below_zero_has_buckets_only() -> None:
    with sink() as made:
        made.write(snapshot(NORM.measure(Histogram((-0.5, 0.5), (1, 2, 3), 2.5, 6))), [])
        exposed = Exposed(made)
    assert exposed.get("norm_bucket", {**HERE, "le": "+Inf"}) == 6
    assert exposed.get("norm_sum", HERE) is None  # it could fall, which no counter does


def test_verdicts_become_numbers() -> None:
    judged = [
        verdict("fine", "ok", Limit(warn=0.6)),
        verdict("worrying", "warn", Limit(warn=0.4, fail=0.8)),
        verdict("broken", "fail", Limit(fail=0.2)),
        verdict("blind", "unknown", Limit(warn=0.4)),
        verdict("harmless", "ok"),
    ]
    with sink() as made:
        made.write(snapshot(), judged)
        exposed = Exposed(made)
        made.write(snapshot(), judged[:1])
        fewer = Exposed(made)

    def failing(check: str) -> tuple[float | None, ...]:
        severities = ("warn", "fail")
        return tuple(exposed.get("check_failing", {**HERE, "check": check, "severity": s}) for s in severities)

    assert {v.check: failing(v.check) for v in judged} == {
        "fine": (0, 0),
        "worrying": (1, 0),
        "broken": (1, 1),
        "blind": (0, 0),
        "harmless": (0, 0),
    }
    unknown = {v.check: exposed.get("check_unknown", {**HERE, "check": v.check}) for v in judged}
    assert unknown == {"fine": 0, "worrying": 0, "broken": 0, "blind": 1, "harmless": 0}
    assert {
        (dict(labels)["check"], dict(labels)["severity"]): v for labels, v in exposed.named("threshold").items()
    } == {
        ("fine", "warn"): 0.6,
        ("worrying", "warn"): 0.4,
        ("worrying", "fail"): 0.8,
        ("broken", "fail"): 0.2,
        ("blind", "warn"): 0.4,
    }
    assert len(fewer.named("check_failing")) == 2


def test_that_a_check_failed_is_remembered() -> None:
    """A window may be over before the next scrape."""
    here = {**HERE, "check": "broken"}
    with sink() as made:
        shown = []
        courses: list[tuple[float, Status]] = [(1.0, "ok"), (2.0, "fail"), (3.0, "ok"), (4.0, "fail"), (5.0, "unknown")]
        for time, status in courses:
            made.write(snapshot(time=time), [verdict("broken", status), verdict("fine", "warn")])
            exposed = Exposed(made)
            shown.append(exposed.get("check_failed_timestamp_seconds", here))
    assert shown == [None, 2, 2, 4, 4]
    assert len(exposed.named("check_failed_timestamp_seconds")) == 1


@pytest.mark.parametrize(
    "text", ['"quoted"', "new\nline", "back\\slash", "\\n", "\r\u2028\x85tab\t", "新闻 é", "{a=b,c}", " "]
)
def test_any_text_can_be_a_label(text: str) -> None:
    space = Space(text, text, segment=text)
    with sink() as made:
        made.write(snapshot(QUANTILE.measure(1, q=text), space=space), [])
        exposed = Exposed(made)
    assert exposed.get("norm_quantile", {**space.labels(), "q": text}) == 1


def test_text_that_is_no_utf8_is_escaped() -> None:
    with sink() as made:
        made.write(snapshot(COSINE.measure(1), space=Space("a\ud800", "p")), [])
        exposed = Exposed(made)
    assert exposed.get("mean_cosine", {"model": "a\\ud800", "place": "p", "segment": "all"}) == 1


def test_too_many_values_of_a_label_become_other() -> None:
    with sink(max_values=3) as made:
        made.write(snapshot(*(QUANTILE.measure(10 + q, q=f"0.{q}") for q in range(1, 6))), [])
        for place in "abcd":
            made.write(snapshot(SEEN.measure(2), COSINE.measure(0.5), space=Space("minilm", place)), [])
        exposed = Exposed(made)
    assert {dict(labels)["q"]: value for labels, value in exposed.named("norm_quantile").items()} == {
        "0.1": 11,
        "0.2": 12,
        "0.3": 13,
        "other": 14,  # the first of those that share the label
    }
    places = {dict(labels)["place"]: value for labels, value in exposed.named("rows_seen_total").items()}
    assert places == {"a": 2, "b": 2, "other": 4}  # hidden.3 was the first of three; two share a counter
    assert len(exposed.named("mean_cosine")) == 3
    assert exposed.get("label_overflow_total", {"label": "q"}) == 2
    assert exposed.get("label_overflow_total", {"label": "place"}) == 2
    assert exposed.get("label_overflow_total", {"label": "model"}) == 0


def test_spaces_that_share_their_labels_share_counters_and_the_first_has_the_gauges() -> None:
    with sink(max_values=1) as made:
        for place, cosine in (("a", 0.1), ("b", 0.2), ("c", 0.3), ("b", 0.4), ("c", 0.5)):
            made.write(snapshot(COSINE.measure(cosine), SEEN.measure(1), space=Space("m", place)), [])
        exposed = Exposed(made)
    other = {"model": "m", "place": "other", "segment": "all"}
    assert exposed.get("mean_cosine", other) == 0.4
    assert exposed.get("rows_seen_total", other) == 4


def test_beyond_the_limit_families_of_the_newest_space_are_left_out() -> None:
    limit = 60
    with sink(max_series=limit) as made:
        wide = [QUANTILE.measure(q, q=str(q)) for q in range(20)]
        for place in ("first", "second", "third"):
            made.write(snapshot(COSINE.measure(0.5), *wide, space=Space("m", place)), [])
        exposed = Exposed(made)
    assert exposed.get("series") == len(exposed.samples) <= limit
    assert exposed.get("series_limit") == limit
    assert exposed.get("series_dropped") == 40 - 20 * (len(exposed.named("norm_quantile")) // 20 - 1)
    assert {dict(labels)["place"] for labels in exposed.named("norm_quantile")} == {"first"}
    assert len(exposed.named("mean_cosine")) == 3


def test_a_limit_of_one_still_tells_of_itself() -> None:
    with sink(max_series=1) as made:
        made.write(snapshot(COSINE.measure(0.5)), [])
        exposed = Exposed(made)
    assert exposed.get("series_limit") == 1
    assert exposed.get("series_dropped") == 3
    assert exposed.get("mean_cosine", HERE) is None


def test_a_space_that_is_not_heard_of_vanishes_when_told_to() -> None:
    now = [100.0]
    with sink(expires=10, clock=lambda: now[0]) as made:
        made.write(snapshot(COSINE.measure(0.5), space=Space("m", "old")), [])
        now[0] = 110.0
        made.write(snapshot(COSINE.measure(0.5), space=Space("m", "new")), [])
        both = Exposed(made).named("mean_cosine")
        now[0] = 110.1
        made.write(snapshot(COSINE.measure(0.5), space=Space("m", "new")), [])
        one = Exposed(made).named("mean_cosine")
    assert {dict(labels)["place"] for labels in both} == {"old", "new"}
    assert {dict(labels)["place"] for labels in one} == {"new"}


BAD: dict[str, Measurement] = {
    "a name beyond ASCII": Metric("größe", "Bad.").measure(1),
    "a label of the Space": Metric("taken", "Bad.", labels=("place",)).measure(1, place="x"),
    "a label that is none": Measurement(Metric("odd", "Bad.", labels=("a b",)), 1, {"a b": "x"}),
    "labels that were not declared": Measurement(Metric("odd", "Bad."), 1, {"surprise": "x"}),
    "one of our names": Metric("window_rows", "Bad.").measure(1),
    "one of our names with another type": Metric("series", "Bad.", kind="histogram").measure(
        Histogram((1.0,), (1, 0), 0.5, 1)
    ),
    "a part of a histogram": Metric("norm_sum", "Bad.").measure(1),
    "a counter's name without its ending": Metric("rows_seen", "Bad.").measure(1),
    "the name of a histogram": Metric("norm", "Bad.").measure(1),
    "other labels than before": Metric("mean_cosine", "Bad.", labels=("x",)).measure(1, x="y"),
    "a counter that falls": SEEN.measure(-1),
    "a gauge that is a histogram": Measurement(COSINE, Histogram((1.0,), (1, 0), 0.5, 1)),
    "a histogram that is a number": Measurement(NORM, 3),
    "a histogram whose sum is no number": NORM.measure(Histogram((1.0,), (1, 0), math.nan, 1)),
    "a histogram with an endless bound": NORM.measure(Histogram((1.0, math.inf), (1, 0, 0), 0.5, 1)),
    "a value that is text": Measurement(Metric("odd", "Bad."), "high"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_measurement_is_told_and_stops_nothing_else(what: str) -> None:
    good = (COSINE.measure(0.5), SEEN.measure(3), NORM.measure(Histogram((1.0,), (1, 0), 0.5, 1)))
    with sink() as made:
        made.write(snapshot(*good, space=Space("m", "healthy")), [])
        made.write(snapshot(*good, BAD[what]), [verdict("collapse", "ok")])
        exposed = Exposed(made)
        made.write(snapshot(*good), [])
        recovered = Exposed(made)
    assert success(exposed) == 0
    assert success(exposed, "m/healthy") == 1
    assert exposed.get("mean_cosine", HERE) == 0.5
    assert exposed.get("rows_seen_total", HERE) == 3
    assert exposed.get("norm_count", HERE) == 1
    assert exposed.get("check_unknown", {**HERE, "check": "collapse"}) == 0
    assert exposed.get("window_rows", HERE) == 100
    assert success(recovered) == 1


def test_a_name_belongs_to_the_space_that_came_first() -> None:
    late = Space("m", "late")
    with sink() as made:
        made.write(snapshot(COSINE.measure(0.5)), [])
        odd = Metric("mean_cosine", "Bad.", kind="histogram").measure(Histogram((1.0,), (1, 0), 0.5, 1))
        made.write(snapshot(odd, SEEN.measure(1), space=late), [])
        exposed = Exposed(made)
    assert (success(exposed), success(exposed, late)) == (1, 0)
    assert exposed.get("mean_cosine", HERE) == 0.5
    assert exposed.get("rows_seen_total", late.labels()) == 1


def test_provenance_that_makes_no_sense_is_told() -> None:
    with sink() as made:
        made.write(snapshot(COSINE.measure(0.5), time=math.nan), [])
        exposed = Exposed(made)
    assert success(exposed) == 0
    assert exposed.get("window_timestamp_seconds", HERE) is None
    assert exposed.get("mean_cosine", HERE) == 0.5


def test_a_bad_verdict_is_told() -> None:
    broken = verdict("broken", "curious")  # type: ignore[arg-type]
    with sink() as made:
        made.write(snapshot(COSINE.measure(0.5)), [broken, verdict("fine", "ok")])
        exposed = Exposed(made)
    assert (success(exposed, "verdicts"), success(exposed), success(exposed, "self")) == (0, 1, 1)
    assert exposed.get("check_unknown", {**HERE, "check": "fine"}) == 0


def test_hostile_snapshots_keep_their_good_parts() -> None:
    with sink() as made:
        for each in hostile_snapshots().values():
            made.write(each, [])
        exposed = Exposed(made)
    assert len(exposed.named("metric_7")) == 1
    assert exposed.get("series") == len(exposed.samples)


@pytest.mark.parametrize("options", [{"max_values": 0}, {"max_series": -1}, {"expires": 0}])
def test_bounds_must_be_positive(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="must be positive"):
        Publisher(lambda _: None, **options)  # type: ignore[arg-type]
