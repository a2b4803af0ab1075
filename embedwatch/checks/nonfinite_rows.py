"""No row may hold NaN or Inf."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class NonfiniteRows(ThresholdCheck):
    """No row holds NaN or Inf."""

    name = "nonfinite_rows"
    title = "non-finite rows"
    metric = "nonfinite_rows"
    limit = Limit(fail=1)
    exhibits = ("nonfinite_rows",)
    severity = "critical"
    meaning = (
        "Some vectors hold NaN or Inf: a division by zero, an overflow in float16, an empty input, a broken kernel."
    )
    impact = "One such row makes every similarity with it NaN; an index may rank it first, last, or crash."
    diagnosis = (
        "Look at the rows named in the exhibit: same input length, language, batch or worker? Encode them again in "
        "float32."
    )
    mitigation = (
        "Stored vectors: remove these rows and encode them again in float32; refuse empty inputs. A model at work: "
        "find the first place that fails, use bfloat16 where float16 overflows, go back to the last sound checkpoint."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return how many rows hold what."""
        nan, inf = (snapshot.number(f"{sort}_rows_ratio") or 0.0 for sort in ("nan", "inf"))
        rows = snapshot.provenance.rows
        return f"Of {rows:,} rows, NaN is in {round(nan * rows):,} and Inf in {round(inf * rows):,}."
