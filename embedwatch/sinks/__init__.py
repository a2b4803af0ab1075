"""Sinks: one file each."""
