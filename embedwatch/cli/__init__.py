"""The command line: one command per file, each parses, calls the library and prints."""

from embedwatch.cli.main import main

__all__ = ["main"]
