"""Texts that are sampled must not end in loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class GenerationLoops(ModelCheck):
    """Sampled texts do not end in a stretch that repeats itself three times or more.

    SmolLM2 has none in 8 texts of 128 tokens, where greedy decoding has 2. It warns above a tenth, which one text in
    eight is, and fails at half.
    """

    name = "generation_loops"
    title = "loops in sampled texts"
    metric = "generation_loops_ratio"
    labels: ClassVar[Mapping[str, str]] = {"decoding": "sampled"}
    roles = ("generation",)
    limit = Limit(warn=0.1, fail=0.5)
    exhibits = ("generated_texts", "generation_by_depth")
    meaning = "Even where tokens are drawn at random, texts run into a loop and never leave it."
    impact = "Answers of some length end in the same words again and again; they cost time until the limit of tokens."
    diagnosis = (
        "Is the model too sure: does the probability of what it writes go towards 1 with depth, and attention to the "
        "latest tokens? Were its logits scaled, as by a final normalisation or a temperature that is applied twice? "
        "Was it trained on texts that repeat themselves, or for too many epochs on few? Does the prompt have the form "
        "that it was trained with?"
    )
    mitigation = (
        "Decode with a repetition penalty of 1.1 to 1.3 or no_repeat_ngram_size 4, top-p 0.9 to 0.95 and a temperature "
        "near 1; if that does not help, go back to an earlier checkpoint, take repetitions out of the training data, "
        "or train with an unlikelihood loss."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share, the usual loop, and what feeds it."""
        period = snapshot.number("generation_loop_period", decoding="sampled")
        length = snapshot.number("generation_loop_length", decoding="sampled")
        late = snapshot.number("generation_probability", decoding="sampled", depth="late")
        early = snapshot.number("generation_probability", decoding="sampled", depth="early")
        words = f"{measurement.number:.0%} of the sampled texts end in a loop"
        if period is not None and length is not None:
            words += f", of {period:.0f} tokens again and again over {length:.0f} (median)"
        if late is not None and early is not None:
            words += f"; the probability of what is written goes from {early:.2f} early to {late:.2f} late"
        return f"{words}."
