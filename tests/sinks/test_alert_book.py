"""What is known and what was told, where a finding ends while it is being told."""

from __future__ import annotations

import pytest

from embedwatch.core.snapshot import Space
from embedwatch.core.verdict import Evidence, Status, Verdict
from embedwatch.sinks._alert_book import AlertBook


def verdict(status: Status) -> Verdict:
    return Verdict("collapse", "cosine", Space("bert", "pooled"), status, Evidence(1.0), None, "Why.", "What.", "How.")


@pytest.fixture
def book() -> AlertBook:
    return AlertBook(repeat=3600.0, capacity=10)


def test_what_ends_while_it_is_told_is_told_to_have_ended(book: AlertBook) -> None:
    book.take([verdict("fail")], 1.0)
    news = book.next(2.0)
    assert news is not None
    book.take([verdict("ok")], 3.0)
    book.delivered(news, 4.0)
    ends = book.next(5.0)
    assert ends is not None
    assert [(alert.labels["check"], ended) for alert, ended in ends.alerts] == [("collapse", 3.0)]
    book.delivered(ends, 6.0)
    assert book.next(7.0) is None
    assert book.waiting(7.0) == 0


def test_what_ends_while_it_cannot_be_told_is_forgotten(book: AlertBook) -> None:
    book.take([verdict("fail")], 1.0)
    news = book.next(2.0)
    assert news is not None
    book.take([verdict("ok")], 3.0)
    book.failed(news)
    assert book.next(4.0) is None
    assert book._entries == {}


def test_what_cannot_be_told_is_due_again(book: AlertBook) -> None:
    book.take([verdict("fail")], 1.0)
    first = book.next(2.0)
    assert first is not None
    book.failed(first)
    again = book.next(3.0)
    assert again is not None
    assert again.key == first.key
