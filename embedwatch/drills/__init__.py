"""Drills: known faults, put into a copy of somebody's own vectors, to see which check fires and how soon."""
