"""Hashes are stable, spread, and tell rows apart bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from embedwatch.hashing import combine, hash_integers, hash_rows, hash_text


def test_splitmix64_gives_its_published_sequence() -> None:
    """The first outputs of splitmix64 for seed 1234567, as published with the reference code."""
    golden = 0x9E3779B97F4A7C15
    states = [(1234567 + golden * step) % 2**64 for step in range(3)]
    signed = torch.tensor([state - 2**64 if state >= 2**63 else state for state in states])
    found = [value % 2**64 for value in hash_integers(signed).tolist()]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("dimension", [1, 2, 3, 64, 385])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_equal_rows_hash_alike_and_others_do_not(dimension: int, dtype: torch.dtype) -> None:
    rows = torch.randn(500, dimension, generator=torch.Generator().manual_seed(0)).to(dtype)
    again = torch.cat([rows, rows])
    hashes = hash_rows(again)
    assert torch.equal(hashes[:500], hashes[500:])
    assert len(hashes.unique()) == len(torch.unique(rows.float(), dim=0))


def test_half_precision_hashes_as_its_float32_values() -> None:
    rows = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).half()
    assert torch.equal(hash_rows(rows), hash_rows(rows.float()))


def test_rows_of_few_values_do_not_collide() -> None:
    """Signs alone: all set bits of these floats are at the top, where a product without mixing would lose them."""
    bits = (torch.arange(1 << 16)[:, None] >> torch.arange(16)) & 1
    signs = bits.float() * 2 - 1  # (65536, 16), all distinct
    assert len(hash_rows(signs).unique()) == 1 << 16


def test_hashes_do_not_depend_on_the_place_in_the_batch() -> None:
    rows = torch.randn(3_000, 10, generator=torch.Generator().manual_seed(0))
    assert torch.equal(hash_rows(rows)[1_500:], hash_rows(rows[1_500:]))
    assert torch.equal(hash_rows(rows[::2]), hash_rows(rows)[::2])
    assert len(hash_rows(rows[:0])) == 0


def test_identities_differ_by_source_and_are_spread() -> None:
    ids = torch.arange(10_000)
    first, second = combine(ids, hash_text("a")), combine(ids, hash_text("b"))
    assert len(torch.cat([first, second]).unique()) == 20_000
    counts = torch.histc((first % 16).float(), bins=16, min=0, max=15)
    assert float((counts - 625).abs().max()) < 6 * 25  # six standard deviations of a fair spread


@pytest.mark.parametrize("view", [lambda base: base[:, 1:], lambda base: base.reshape(-1)[1:][: 64 * 8].view(64, 8)])
def test_views_that_start_in_the_middle_of_a_word(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    rows = view(torch.randn(64, 9, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(hash_rows(rows), hash_rows(rows.clone()))
