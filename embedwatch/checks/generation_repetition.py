"""Texts that are sampled must not repeat themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class GenerationRepetition(ModelCheck):
    """Sampled texts do not hold the same four tokens over and over.

    SmolLM2 has 0.025, its most repetitive of 8 texts 0.15, and 0.34 where it decodes greedily; prose of people has
    0.01 to 0.03. It warns at a fifth and fails at half.

    References: Welleck et al. 2019, "Neural text generation with unlikelihood training",
    https://arxiv.org/abs/1908.04319 (rep-n).
    """

    name = "generation_repetition"
    title = "repetition in sampled texts"
    metric = "generation_repetition_ratio"
    labels: ClassVar[Mapping[str, str]] = {"decoding": "sampled", "n": "4"}
    roles = ("generation",)
    limit = Limit(warn=0.2, fail=0.5)
    exhibits = ("generated_texts", "generation_by_depth")
    meaning = "Sampled texts say again what they said: many of their runs of four tokens stood there before."
    impact = "Texts are longer than what they say; they drift into loops, and readers notice."
    diagnosis = (
        "Is the model too sure of what it writes, early already? Look at texts in the exhibit: whole sentences that "
        "come again are degeneration, lists and tables may be as they should be. Compare with greedy decoding, and "
        "with an earlier checkpoint."
    )
    mitigation = (
        "Decode with a repetition or frequency penalty, top-p 0.9 to 0.95 and a temperature near 1; raise it where it "
        "is below 0.7. In training, deduplicate the data, or stop earlier."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share, beside that of greedy decoding."""
        greedy = snapshot.number("generation_repetition_ratio", decoding="greedy", n="4")
        beside = "" if greedy is None else f"; of those of greedy decoding {greedy:.0%}"
        return f"{measurement.number:.0%} of the runs of four tokens in sampled texts stood there before{beside}."
