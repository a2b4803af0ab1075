"""A label for each row, from a text file: one label a line, an empty line for none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError
from embedwatch.sources._messages import count_of
from embedwatch.sources._text_lines import TextLines

__all__ = ["Labels"]

MOST_GROUPS = 10_000
"""More different labels than this are not groups: the file holds something else, such as the texts themselves."""


class Labels:
    """The labels of a file as codes: the index of each row's group, -1 for none.

    Args:
        path: UTF-8, one label a line.

    Attributes:
        groups: the different labels, in the order of their first line.
        rows: number of lines.

    Raises:
        InputError: if there is no such file, or it holds too many different labels.
    """

    def __init__(self, path: str | Path) -> None:
        self._lines = TextLines(path, skip_blank=False)
        self.rows = self._lines.rows
        self._codes: dict[str, int] = {}
        for line in self._lines.lines():
            label = line.text.strip()
            if label and self._codes.setdefault(label, len(self._codes)) >= MOST_GROUPS:
                raise InputError(
                    f"{self._lines.label} holds over {MOST_GROUPS:,} different labels by line {line.number:,}, "
                    "so they are no groups; write the name of its group for each row"
                )
        self.groups = tuple(self._codes)

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with the labels."""
        return self._lines.fingerprint()

    def check(self, count: int, noun: str, of: str) -> None:
        """Refuse the file unless it has one line for each row.

        Args:
            count: number of rows.
            noun: what a row is, for the message.
            of: whose rows they are, for the message.
        """
        if count != self.rows:
            raise InputError(
                f"{self._lines.label} has {count_of(self.rows, 'label')} for the {count_of(count, noun)} of {of}; "
                f"write one line for each {noun}, an empty one where it has no label"
            )

    def attach(self, batches: Iterator[VectorBatch], noun: str, of: str) -> Iterator[VectorBatch]:
        """Yield the batches with the labels of their rows, in order; refuse a file that ends too early or too late."""
        lines, seen = self._lines.lines(), 0
        for batch in batches:
            labels = [self._codes.get(line.text.strip(), -1) for line in islice(lines, len(batch))]
            seen += len(batch)
            if len(labels) < len(batch):
                raise InputError(
                    f"{self._lines.label} has {count_of(self.rows, 'label')}, {of} at least {count_of(seen, noun)}; "
                    f"write one line for each {noun}, an empty one where it has no label"
                )
            codes = torch.tensor(labels, dtype=torch.int64, device=batch.rows.device)
            yield VectorBatch(batch.rows, batch.ids, codes, self.groups, batch.source, batch.segment)
        self.check(seen, noun, of)
