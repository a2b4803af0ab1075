"""Mergeable building blocks of statistics: sums, moments, samples, histograms, extremes, matrix sketches."""

from embedwatch.sketches.additive import Additive
from embedwatch.sketches.base import Sketch, SketchStatistic, example_batches
from embedwatch.sketches.extremes import Extremes
from embedwatch.sketches.frequent_directions import FrequentDirections
from embedwatch.sketches.group_sums import GroupSums
from embedwatch.sketches.log_histogram import LogHistogram
from embedwatch.sketches.moments import Moments
from embedwatch.sketches.row_sample import RowSample
from embedwatch.sketches.smallest import SmallestKeys

__all__ = [
    "Additive",
    "Extremes",
    "FrequentDirections",
    "GroupSums",
    "LogHistogram",
    "Moments",
    "RowSample",
    "Sketch",
    "SketchStatistic",
    "SmallestKeys",
    "example_batches",
]
