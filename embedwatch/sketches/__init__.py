"""Mergeable building blocks of statistics: sums, moments, samples, histograms, extremes, matrix sketches."""

from embedwatch.sketches.additive import Additive
from embedwatch.sketches.base import BatchStatistic, Sketch, SketchStatistic, example_batches
from embedwatch.sketches.examples import example_tokens
from embedwatch.sketches.extremes import Extremes
from embedwatch.sketches.frequent_directions import FrequentDirections
from embedwatch.sketches.group_sums import GroupSums
from embedwatch.sketches.latest import Latest
from embedwatch.sketches.log_histogram import LogHistogram
from embedwatch.sketches.moments import Moments
from embedwatch.sketches.row_sample import RowSample
from embedwatch.sketches.smallest import SmallestKeys

__all__ = [
    "Additive",
    "BatchStatistic",
    "Extremes",
    "FrequentDirections",
    "GroupSums",
    "Latest",
    "LogHistogram",
    "Moments",
    "RowSample",
    "Sketch",
    "SketchStatistic",
    "SmallestKeys",
    "example_batches",
    "example_tokens",
]
