"""Rows about a run: its training, what the optimizer does, what the model predicts, and watching itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from embedwatch.exposition import SPACE_LABELS
from embedwatch.operations.lines import HEALTHY, SHOWN, chosen, drawn, latest, limit, rate, worst
from embedwatch.operations.panels import Panel, row, target, time_series
from embedwatch.operations.promql import PROCESS

__all__ = ["gradients", "outputs", "training", "watching"]


def training() -> Iterator[Panel]:
    """Yield the row on training: loss, learning rate, step."""
    yield row("Training")
    yield time_series(
        "Loss",
        "Mean loss of a window. " + HEALTHY + "falls, starting near the log of the number of classes.",
        [latest("loss_mean")],
    )
    yield time_series(
        "Learning rate",
        "As the optimizer uses it. " + HEALTHY + "the course that was planned.",
        [latest("learning_rate")],
        unit="sci",
    )
    yield time_series(
        "Training step",
        "Steps done. " + HEALTHY + "a straight line up; level where the run stands still or has ended.",
        [latest("training_step")],
        unit="short",
    )
    yield time_series(
        "Losses that are not finite",
        "NaN or Inf, per second. " + HEALTHY + "0; float16 with a loss scale shows some at the start.",
        [rate("nonfinite_losses_total", labels=("model",), legend="{{model}}")],
    )


def gradients() -> Iterator[Panel]:
    """Yield the row on gradients and on the course of the loss."""
    yield row("Gradients and the course of the loss")
    yield drawn(
        "Norm of the gradient",
        "Mean norm of the steps, before clipping.",
        "settles; a steady rise comes before a divergence.",
        latest("gradient_norm_mean"),
        unit="sci",
    )
    yield drawn(
        "Norm of the gradient, as applied",
        "Mean norm as the optimizer takes it.",
        "0.01 to 10.",
        latest("gradient_norm_applied_mean"),
        unit="sci",
    )
    yield drawn(
        "Gradient of the token table",
        "Mean norm of the gradient of the token table.",
        "settles.",
        latest("table_gradient_norm_mean"),
        unit="sci",
    )
    yield drawn(
        "Noise of the loss",
        "Standard deviation of the loss of single steps around its course.",
        "level, or falling.",
        latest("loss_noise"),
    )
    yield drawn(
        "Spikes of the loss",
        "Height of the largest rise that lasts some steps, over the loss before.",
        "0.",
        latest("loss_spike_ratio"),
        unit="percentunit",
    )
    yield drawn(
        "Waves of the loss",
        "Height of the wave from trough to crest, over the mean loss.",
        "below the limit; a wave as long as an epoch says that data repeats.",
        worst("loss_wave_ratio"),
        limit("loss_oscillation"),
        unit="percentunit",
    )
    yield drawn(
        "Skipped steps",
        "Steps per second that changed nothing, since their gradient was not finite.",
        "0; float16 with a loss scale shows some at the start.",
        rate("skipped_steps_total", labels=("model",), legend="{{model}}"),
    )
    yield drawn(
        "Steps",
        "Training steps per second.",
        "level.",
        rate("steps_total", labels=("model",), legend="{{model}}"),
        unit="short",
    )


def outputs() -> Iterator[Panel]:
    """Yield the row on what the model predicts."""
    yield row("Predictions")
    yield drawn(
        "Entropy of predictions",
        "Mean entropy of the predicted distributions over that of a blind guess.",
        "falls from 1, stays above 0.",
        latest("output_entropy_ratio"),
        unit="percentunit",
    )
    yield drawn(
        "Most frequent prediction",
        "Share of the positions at which the same token is the likeliest.",
        "below the limit.",
        worst("output_top_share_ratio"),
        limit("outputs_alike"),
        unit="percentunit",
    )


def watching() -> Iterator[Panel]:
    """Yield the row on watching itself: what it costs, sees and leaves out."""
    yield row("Watching")
    yield time_series(
        "Overhead of watching",
        "Share of the model's time. " + HEALTHY + "at most 1 %.",
        [latest("watch_overhead_ratio")],
        unit="percentunit",
    )
    yield time_series(
        "Time spent watching",
        "Seconds of embedwatch per second. " + HEALTHY + "level.",
        [rate("watch_seconds_total", labels=("model",), legend="{{model}}")],
        unit="percentunit",
    )
    yield time_series(
        "Sampling interval",
        "One step in so many is looked at; it grows to keep the overhead small. " + HEALTHY + "settles.",
        [latest("sampling_interval_steps")],
        unit="short",
    )
    yield time_series(
        "Rows of a window",
        "How many rows the numbers rest on, fewest first. " + HEALTHY + "at least twice the dimension; too few give "
        "unknown.",
        [worst("window_rows", side="below")],
        unit="short",
    )
    yield time_series(
        "Rows left out",
        "Rows per second that were seen and not measured. " + HEALTHY + "0.",
        [rate("rows_dropped_total", labels=("model",), legend="{{model}}")],
    )
    yield time_series(
        "Errors",
        "Exceptions inside embedwatch per second, by where they came from. " + HEALTHY + "0.",
        [rate("errors_total", labels=("model", "stage", "name"), legend="{{model}} {{stage}} {{name}}")],
    )
    yield time_series(
        "Places attached again",
        "Hooks that had gone and were put back, per second. " + HEALTHY + "0, but for the moment a module is replaced.",
        [rate("places_reattached_total", labels=("model",), legend="{{model}}")],
    )
    yield time_series(
        "Unknown verdicts",
        "Checks that could not judge: too few rows, or the check itself failed. " + HEALTHY + "0 after the first "
        "windows.",
        [worst("check_unknown", labels=(*SPACE_LABELS, "check"), legend="{{model}} / {{place}} {{segment}} {{check}}")],
    )
    yield time_series(
        "Series",
        "Time series that one process exports, and its limit. " + HEALTHY + "level, well below the limit.",
        [_series("series", "{{instance}}", "A"), _series("series_limit", "limit of {{instance}}", "B")],
        unit="short",
    )


def _series(name: str, legend: str, ref: str) -> dict[str, Any]:
    inner = f"max by (instance) ({chosen(name, variables=PROCESS)})"
    return target(f"topk({SHOWN // 2}, {inner})", legend, ref=ref)
