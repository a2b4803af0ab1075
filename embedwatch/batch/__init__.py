"""The five batches: what flows from observers and sources into statistics.

Values that several statistics need (finite mask, norms, unit rows, moments) are computed once and cached on the batch.
"""

from embedwatch.batch.attention import AttentionBatch
from embedwatch.batch.pairs import PairBatch
from embedwatch.batch.steps import TrainingStep
from embedwatch.batch.tokens import TokenBatch
from embedwatch.batch.vectors import FLOAT32_MAX, BatchMoments, VectorBatch

__all__ = ["FLOAT32_MAX", "AttentionBatch", "BatchMoments", "PairBatch", "TokenBatch", "TrainingStep", "VectorBatch"]
