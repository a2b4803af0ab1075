"""A short, deterministic run of the fuzz target; and it finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.fuzz import fuzz_bodies

BODIES = 3_000


def test_damaged_bodies_are_answered_in_one_line() -> None:
    found = fuzz_bodies.run(seed=20, bodies=BODIES)
    kinds = {kind for kind, _ in found}
    assert kinds == set(fuzz_bodies.readers()), "every parser was reached"
    assert found.total() == BODIES
    assert sum(count for (_, answer), count in found.items() if answer != "taken") > BODIES // 2


def test_what_no_error_of_ours_answers_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(body: bytes) -> object:
        return body.decode("ascii")

    kinds = fuzz_bodies.readers()
    monkeypatch.setattr(fuzz_bodies, "readers", lambda: {**kinds, "application/json": careless})
    with pytest.raises(UnicodeDecodeError):
        fuzz_bodies.run(seed=20, bodies=BODIES)
