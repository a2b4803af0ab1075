"""Checks: one file each. They hold for any healthy space; where nothing does, a measurement is information."""
