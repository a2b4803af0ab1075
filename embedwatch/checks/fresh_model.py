"""A model that is judged should have been trained."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

SIGNS = (
    ("row_norm_spread_ratio", "norms of the table spread {:.2g} times as far as chance makes them"),
    ("table_edge_ratio", "its spectrum ends at {:.2g} times the edge of independent entries"),
    ("unit_gain_ratio", "{:.0%} of the normalisations have gains of 1"),
    ("zero_bias_ratio", "{:.0%} of the biases are 0"),
    ("fresh_layers_ratio", "{:.0%} of the layers have matrices of independent entries"),
)


class FreshModel(ModelCheck):
    """The weights do not all look as they were drawn.

    Five signs speak of a model that was never trained. In MiniLM, multilingual-e5-small and SmolLM2 none does; in
    models that were only drawn, 32 tiny ones of transformers, all that can be read do, but for one in Mamba.
    """

    name = "fresh_model"
    title = "never trained"
    metric = "fresh_signs_ratio"
    roles = ("scale",)
    limit = Limit(warn=0.75)
    exhibits = ("layer_spectra",)
    meaning = "The model is as it was drawn: nobody trained it, or its weights were not loaded."
    impact = "Its vectors say little of their texts, and what is measured of it says nothing of a trained one."
    diagnosis = (
        "Was a checkpoint loaded into a model whose names differ, so that nothing fitted? Look at the report of "
        "missing keys. Is it step 0 of a training?"
    )
    mitigation = "Load the weights strictly, or train the model."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether a model is examined that should have been trained: not while it is."""
        return snapshot.provenance.training_step is None and super().applies(snapshot)

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the signs with their numbers."""
        del measurement
        known = [(text, snapshot.number(name)) for name, text in SIGNS]
        said = "; ".join(text.format(value) for text, value in known if value is not None)
        return f"{said[0].upper()}{said[1:]}." if said else ""
