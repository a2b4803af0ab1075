"""Mergeable building blocks of statistics: sums, moments, samples, histograms, extremes, matrix sketches."""

from embedwatch.sketches.additive import Additive
from embedwatch.sketches.attention_maps import AttentionMaps
from embedwatch.sketches.base import BatchStatistic, Sketch, SketchStatistic, example_batches
from embedwatch.sketches.block_sums import BlockSums
from embedwatch.sketches.compared import ROW_ARRAYS, ComparedStatistic, Fitter, is_early
from embedwatch.sketches.direction_map import DirectionFitter, DirectionMap
from embedwatch.sketches.drift_fitter import MOST_BLOCKS, DriftFitter
from embedwatch.sketches.drift_map import DriftMap, plain
from embedwatch.sketches.example_attention import example_attention
from embedwatch.sketches.examples import example_tokens
from embedwatch.sketches.extremes import Extremes
from embedwatch.sketches.frequent_directions import FrequentDirections
from embedwatch.sketches.frozen import Frozen, FrozenMark
from embedwatch.sketches.group_sums import GroupSums
from embedwatch.sketches.heads import MOST_HEADS, HeadArrays, HeadValues
from embedwatch.sketches.latest import Latest
from embedwatch.sketches.leading_map import LeadingMap, leading_fitter
from embedwatch.sketches.log_histogram import LogHistogram
from embedwatch.sketches.means import Means
from embedwatch.sketches.moments import Moments
from embedwatch.sketches.plain_attention import PlainRow, plain_heads, plain_rows
from embedwatch.sketches.recent import Recent
from embedwatch.sketches.row_runs import RUN, SAMPLE_ROWS, RowRuns
from embedwatch.sketches.row_sample import RowSample
from embedwatch.sketches.sample_fitter import SampleFitter
from embedwatch.sketches.smallest import SmallestKeys
from embedwatch.sketches.whitening_sums import WhiteningSums

__all__ = [
    "MOST_BLOCKS",
    "MOST_HEADS",
    "ROW_ARRAYS",
    "RUN",
    "SAMPLE_ROWS",
    "Additive",
    "AttentionMaps",
    "BatchStatistic",
    "BlockSums",
    "ComparedStatistic",
    "DirectionFitter",
    "DirectionMap",
    "DriftFitter",
    "DriftMap",
    "Extremes",
    "Fitter",
    "FrequentDirections",
    "Frozen",
    "FrozenMark",
    "GroupSums",
    "HeadArrays",
    "HeadValues",
    "Latest",
    "LeadingMap",
    "LogHistogram",
    "Means",
    "Moments",
    "PlainRow",
    "Recent",
    "RowRuns",
    "RowSample",
    "SampleFitter",
    "Sketch",
    "SketchStatistic",
    "SmallestKeys",
    "WhiteningSums",
    "example_attention",
    "example_batches",
    "example_tokens",
    "is_early",
    "leading_fitter",
    "plain",
    "plain_heads",
    "plain_rows",
]
