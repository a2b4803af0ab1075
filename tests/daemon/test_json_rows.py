"""Rows of JSON: read in pieces as they would be read at once, whatever is wrong, and without holding up others."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from embedwatch.core.errors import InputError
from embedwatch.daemon import json_rows
from embedwatch.daemon.json_rows import numbers_of, split_rows
from embedwatch.daemon.row_bodies import from_json
from tests.test_large_bytes import slowest_turn

NUMBERS = st.one_of(
    st.none(), st.integers(-(10**18), 10**18), st.floats(allow_nan=False, allow_infinity=False, width=32)
)
MATRICES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=1, max_size=5)
)
BLANKS = st.sampled_from(["", " ", "\n\t", "\r\n  "])


@given(MATRICES, BLANKS, BLANKS, st.booleans(), st.integers(1, 40))
def test_rows_are_what_json_says(rows: list[Any], first: str, between: str, named: bool, piece: int) -> None:
    text = json.dumps(rows, separators=(f"{between},{first}", ":"))
    text = f'{first}{{{between}"ids"{between}:{first}[3] , "vectors" :{between}{text}{first}}}' if named else text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "PIECE", piece)
        rest, found = split_rows(text, "vectors")
        assert found is not None
        matrix = numbers_of(found, "the body")
    expected = np.array(rows, dtype=np.float64)
    np.testing.assert_array_equal(matrix, expected)
    assert json.loads(rest) == ({"ids": [3], "vectors": []} if named else [])


TOKENS = st.lists(
    st.sampled_from(["[", "]", ",", "1", "2.5", "null", " ", '"vectors"', ":", "{", "}", '"a"', "-", "NaN"])
)


@given(TOKENS.map("".join))
@example("[[1],]")
@example("[[1,],[2,]]")
@example("[[1],[,2]]")
@example("[[1] [2]]")
@example("[[ ],[ ]]")
@example("[[],[]]")
@example("[[1,2],[ , ]]")
@example('{"vectors":[[1]],"vectors":[[2]]}')
@example('{"a":{"vectors":[[1]]}}')
@example('{"segment":{"vectors":[[1]]},"vectors":[]}')
@example('{"segment":"x\\"vectors":[[1]]}')
@example('{"labels":["vectors"],"vectors":[[1]]}')
def test_what_is_taken_is_what_json_says_and_the_rest_is_refused(text: str) -> None:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    rows = data.get("vectors") if isinstance(data, dict) else data
    try:
        fields = from_json(text.encode())
    except InputError:
        return
    assert rows is not None, "it is no JSON, and was taken"
    assert fields.rows.shape[0] == len(rows)
    if rows:
        expected = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        np.testing.assert_array_equal(fields.rows.double().numpy(), expected)


def test_a_row_longer_than_a_piece_is_cut_at_commas() -> None:
    row = [round(number, 6) for number in np.random.default_rng(0).normal(size=20_000).tolist()]
    body = json.dumps([row, row]).encode()
    np.testing.assert_allclose(from_json(body).rows.numpy(), np.array([row, row]))
    with pytest.raises(InputError):
        from_json(body.replace(b"], [", b",], [", 1))


def test_others_run_while_a_large_body_is_read() -> None:
    body = json.dumps(np.random.default_rng(0).normal(size=(500, 384)).tolist()).encode()
    held = min(slowest_turn(lambda: np.array(json.loads(body))) for _ in range(3))
    ours = min(slowest_turn(lambda: from_json(body)) for _ in range(3))
    assert ours < held / 2
