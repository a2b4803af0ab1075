"""How far the rows of an embedding table move: since watching began, and in one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from embedwatch.batch import TokenBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Additive, BatchStatistic, Extremes, example_tokens

NAMED_ROWS = 20
TOUCHED, UNTOUCHED = "touched", "untouched"

DRIFT = Metric(
    "token_drift_ratio",
    "Mean distance of the table's rows from where watching began, over their norm then.",
    labels=("rows",),
    healthy="touched above untouched",
)
UPDATE = Metric(
    "token_update_ratio",
    "Mean distance that the table's rows move in one step, over their norm before.",
    healthy="near 0.001 to 0.01",
)
FASTEST = Metric("token_update_max_ratio", "Largest distance that a row moves in one step, over its norm before.")


class TokenMovement(BatchStatistic[TokenBatch]):
    """Movement of the table's rows: drift of those whose token came and of those whose did not, and one step's update.

    Rows whose token came should drift, the others hardly: their gradient is zero, or the small pressure of a softmax
    over a tied table. An update of a thousandth of the weights a step is a usual one; one of its own length says that
    the learning rate is far too high.

    Shape: batches of tokens; each row of the table once.
    Range: quotients, 0 and above.
    State: sums and counts, 20 rows; merge exact.
    NaN, Inf, empty: a movement that is not known, NaN or Inf, is left out; `None` where none is known.
    References: Karpathy 2022, "Neural Networks: Zero to Hero", makemore part 3 (ratio of update to data).

    Example:
        >>> drift, update = torch.tensor([0.2, 0.4, 0.0]), torch.tensor([0.01, 0.03, torch.nan])
        >>> statistic = TokenMovement()
        >>> statistic.update(TokenBatch(torch.arange(3), torch.ones(3), torch.tensor([5, 1, 0]), drift, update))
        >>> {m.key: round(m.value, 3) for m in statistic.compute()}["token_drift_ratio{rows=touched}"]
        0.3
    """

    name = "token_movement"
    title = "movement of a table's rows"
    consumes = "tokens"
    metrics = (DRIFT, UPDATE, FASTEST)
    counts_defects = True  # what is not known of a row says nothing about the rest of it

    def __init__(self) -> None:
        super().__init__()
        names = (TOUCHED, UNTOUCHED, "update")
        self._sums = self.keep("sums", Additive(sums=dict.fromkeys(names, ())))
        self._counts = self.keep("counts", Additive(counts=dict.fromkeys(names, ())))
        self._fastest = self.keep("fastest", Extremes(NAMED_ROWS))

    def add(self, batch: TokenBatch) -> None:
        """Add a batch."""
        came = batch.counts > 0
        self._note(TOUCHED, batch.drift[came])
        self._note(UNTOUCHED, batch.drift[~came])
        self._note("update", batch.update)
        known = batch.update.isfinite()
        self._fastest.add(batch.update[known], batch.ids[known])

    def _note(self, name: str, values: Tensor) -> None:
        known = values[values.isfinite()]
        self._sums.add(name, known.double().sum())
        self._counts.add(name, len(known))

    def _mean(self, name: str) -> float | None:
        count = int(self._counts[name])
        return float(self._sums[name]) / count if count else None

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        fastest = self._fastest.values
        return [
            *(DRIFT.measure(self._mean(rows), rows=rows) for rows in (TOUCHED, UNTOUCHED)),
            UPDATE.measure(self._mean("update")),
            FASTEST.measure(float(fastest[0]) if len(fastest) else None),
        ]

    def exhibits(self) -> list[Exhibit]:
        """Return the rows that move farthest in one step."""
        return [
            Exhibit.build(
                "fastest_tokens",
                "table",
                "Tokens whose rows move farthest in one step, over their norm.",
                ("row", "update"),
                self._fastest.entries(),
            )
        ]

    def oracle(self, batch: TokenBatch) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all rows at once."""
        came = batch.counts > 0
        known = batch.update[batch.update.isfinite()]
        return {
            f"{DRIFT.name}{{rows={TOUCHED}}}": _mean(batch.drift[came]),
            f"{DRIFT.name}{{rows={UNTOUCHED}}}": _mean(batch.drift[~came]),
            UPDATE.name: _mean(known),
            FASTEST.name: float(known.max()) if len(known) else None,
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[TokenMovement, Sequence[TokenBatch]]]:
        """Yield a table at work, and one of which no movement is known."""
        yield cls(), example_tokens(seed)
        whole = TokenBatch.concat(example_tokens(seed + 1))
        unknown = torch.full_like(whole.drift, torch.nan)
        yield cls(), TokenBatch(whole.ids, whole.norms, whole.counts, unknown, unknown).split((30, len(whole) - 30))


def _mean(values: Tensor) -> float | None:
    known = values[values.isfinite()].double()
    return float(known.mean()) if len(known) else None
