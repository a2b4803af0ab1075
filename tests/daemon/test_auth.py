"""Who may come in: tokens, passwords, files of secrets."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import bcrypt
import pytest

from embedwatch.core.errors import UsageError
from embedwatch.daemon.auth import Gate, open_gate
from embedwatch.daemon.config import Auth

TOKEN, OTHER = "a" * 32, "b" * 32
HASH = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
SLOW = bcrypt.hashpw(b"right", bcrypt.gensalt(11)).decode()


def basic(name: str, password: bytes) -> str:
    return "Basic " + base64.b64encode(name.encode() + b":" + password).decode()


def test_any_of_the_tokens_opens() -> None:
    gate = Gate(tokens=[TOKEN, OTHER])
    assert gate.admits(f"Bearer {TOKEN}")
    assert gate.admits(f"bearer  {OTHER}")
    for header in ("", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, f"Basic {TOKEN}", "é"):
        assert not gate.admits(header)
    assert gate.challenge == 'Bearer realm="embedwatch"'


def test_names_and_passwords() -> None:
    gate = Gate(users={"ann": HASH})
    assert gate.admits(basic("ann", b"right"))
    for header in (
        basic("ann", b"wrong"),
        basic("bob", b"right"),
        basic("", b"right"),
        basic("ann", b""),
        basic("ann", b"ri\0ght"),
        basic("ann", b"right" + b"x" * 80),
        "Basic !!!",
        "Basic " + base64.b64encode(b"ann").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:right").decode(),
        "Basic " + "A" * 100_000,
        f"Bearer {HASH}",
    ):
        assert not gate.admits(header)


def test_a_password_longer_than_bcrypt_reads_is_refused() -> None:
    long = b"p" * 72
    gate = Gate(users={"ann": bcrypt.hashpw(long, bcrypt.gensalt(4)).decode()})
    assert gate.admits(basic("ann", long))
    assert not gate.admits(basic("ann", long + b"anything"))


def test_a_right_password_is_hashed_once_and_a_wrong_one_each_time() -> None:
    gate = Gate(users={"ann": SLOW})
    right, wrong = basic("ann", b"right"), basic("ann", b"wrong")
    assert not gate.is_quick(right)
    assert gate.admits(right)
    assert gate.is_quick(right)
    assert not gate.admits(wrong)
    assert not gate.is_quick(wrong)


def test_an_unknown_name_takes_as_long_as_a_wrong_password() -> None:
    gate = Gate(users={"ann": SLOW})

    def seconds(header: str) -> float:
        began = time.thread_time()
        assert not gate.admits(header)
        return time.thread_time() - began

    known = min(seconds(basic("ann", b"wrong")) for _ in range(3))
    unknown = min(seconds(basic("bob", b"wrong")) for _ in range(3))
    assert unknown > known / 3


def test_without_secrets_all_may_come_in() -> None:
    assert open_gate(Auth()).is_open
    assert open_gate(Auth()).admits("")


def test_files_of_secrets(tmp_path: Path) -> None:
    tokens, users = tmp_path / "tokens", tmp_path / "users"
    tokens.write_text(f"# of the trainers\n{TOKEN}\n\n{OTHER}\n")
    users.write_text(f"ann:{HASH}\n")
    gate = open_gate(Auth(token_file=tokens, users_file=users))
    assert gate.admits(f"Bearer {OTHER}")
    assert gate.admits(basic("ann", b"right"))
    assert not gate.admits("Bearer # of the trainers")
    assert gate.challenge.startswith("Basic ")


@pytest.mark.parametrize(
    "content", [b"", b"# nothing\n", b"short\n", b"two words of a token\n", b"\xff\xff", b"\xc3\xa9" * 20]
)
def test_what_is_no_file_of_tokens(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"tokens(:1)?: ") as refused:
        open_gate(Auth(token_file=path))
    assert "short" not in str(refused.value)
    assert "two words" not in str(refused.value)


@pytest.mark.parametrize(
    "line",
    ["ann", "ann:plain", f"a b:{HASH}", f"ann:{HASH}x", f"ann:{HASH}\nann:{HASH}", "ann:$2b$31$" + "a" * 53],
    ids=["no hash", "plain", "blank in a name", "long hash", "twice", "too dear"],
)
def test_what_is_no_file_of_users(tmp_path: Path, line: str) -> None:
    path = tmp_path / "users"
    path.write_text(line)
    with pytest.raises(UsageError, match="a user must be a new name and a bcrypt hash"):
        open_gate(Auth(users_file=path))


def test_a_missing_file_is_no_open_door(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be a readable file"):
        open_gate(Auth(token_file=tmp_path / "none"))
