"""No layer of a trained model should be as it was drawn."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

FRESH = 0.75
"""From this share of signs on all of the model is as it was drawn, which `fresh_model` says."""


class FreshLayers(ModelCheck):
    """In a model that was trained, few layers have a largest matrix with the spectrum of independent entries.

    The largest eigenvalue lies 1.5 (SmolLM2) to 6 (MiniLM) times as high as the edge of such a spectrum in the layers
    of models that were trained, and below 1.3 times where they were only drawn.
    """

    name = "fresh_layers"
    title = "layers never trained"
    metric = "fresh_layers_ratio"
    roles = ("scale",)
    limit = Limit(warn=0.2, fail=0.75)
    exhibits = ("layer_spectra",)
    meaning = "Layers are as they were drawn, while the rest of the model was trained: their weights were not loaded."
    impact = "Half a model is worse than none: it runs, and its vectors are noise upon something that was learned."
    diagnosis = (
        "Which layers, by the exhibit? Compare names in the checkpoint with those of the model; look for missing keys."
    )
    mitigation = "Load the weights strictly; where layers were added on purpose, train them."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model as a whole was trained, and is not in training now."""
        signs = snapshot.number("fresh_signs_ratio")
        trained = snapshot.provenance.training_step is None and (signs is None or signs < FRESH)
        return trained and super().applies(snapshot)

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share."""
        del snapshot
        return f"{measurement.number or 0:.0%} of the layers have a largest matrix as it was drawn."
