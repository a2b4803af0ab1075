"""Attention of a live model, seen at a few sampled queries: no matrix of all queries by all keys is ever made."""
