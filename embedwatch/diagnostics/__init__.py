"""Diagnostics: one in a file; each examines a loaded model, or parts of one at work, when asked."""
