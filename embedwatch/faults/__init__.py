"""Faults that a drill knows, one in a file: a class that is defined here is registered."""
