"""A provider over HTTP, against a real server that serves a tiny model."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from embedwatch.canary import Canary, Provider
from embedwatch.core import InputError, UsageError
from embedwatch.loading import load_subject
from tests.canary.provider_server import ProviderServer
from tests.canary.spaces import TEXTS, letters
from tests.loading import tiny

KEY = "sk-geheim-4711"


@pytest.fixture
def waits() -> list[float]:
    return []


def provider(server: ProviderServer, waits: list[float], **settings: object) -> Provider:
    return Provider(server.url, model="m", sleep=waits.append, **settings)  # type: ignore[arg-type]


def test_a_tiny_model_is_the_same_over_http(tmp_path: Path, waits: list[float]) -> None:
    subject = load_subject(tiny.save("bert", tmp_path / "model"))
    texts = tiny.texts(24)
    with ProviderServer(subject.encode) as server:
        canary = Canary.record(provider(server, waits, at_once=5), texts, metric="dot")
        assert canary.check(provider(server, waits)).status == "ok"
        assert canary.check(subject.encode).status == "ok"  # JSON loses nothing that counts
        assert {len(asked["input"]) for asked in server.asked} == {1, 2, 3, 4, 5, 24}
        assert all(asked["model"] == "m" for asked in server.asked)
        assert set(server.paths) == {"/v1/embeddings"}
        other = load_subject(tiny.save("bert", tmp_path / "other"))
        server.embed = lambda texts: other.encode(texts, pooling="max")
        assert canary.check(provider(server, waits)).status == "fail"
    assert waits == []


def test_vectors_may_come_in_base64(waits: list[float]) -> None:
    with ProviderServer(letters, packed=True) as server:
        assert Canary.record(letters).check(provider(server, waits)).status == "ok"


def test_a_missing_vector_is_found(waits: list[float]) -> None:
    def embed(texts: list[str]) -> list[object]:
        return [None if len(text) == 1 else row for text, row in zip(texts, letters(texts), strict=True)]

    with ProviderServer(embed) as server:
        outcome = Canary.record(letters).check(provider(server, waits))
    assert outcome.status == "fail"
    assert outcome.snapshot.number("canary_nonfinite_texts") == 2


def test_it_waits_and_tries_again(waits: list[float]) -> None:
    with ProviderServer(letters, statuses=[429, 503, 500], headers={"Retry-After": "7"}) as server:
        assert len(provider(server, waits)(TEXTS[:3])) == 3
    assert waits == [7, 7, 7]


def test_nobody_there_is_told_without_the_path(waits: list[float]) -> None:
    with ProviderServer(letters) as server:
        asked = provider(server, waits)
    with pytest.raises(InputError, match=r"http://127\.0\.0\.1:\d+ must answer, got ConnectionRefusedError 4 times"):
        asked(TEXTS[:3])
    assert waits == [1, 2, 4]


def test_the_key_is_sent_and_never_shown(
    waits: list[float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("EMBED_KEY", f" {KEY}\n")
    with ProviderServer(letters, key=KEY) as server:
        asked = provider(server, waits, key_env="EMBED_KEY")
        canary = Canary.record(asked)
        canary.save(tmp_path / "c")
        monkeypatch.setenv("EMBED_KEY", "wrong-" + KEY)
        with pytest.raises(InputError, match="got status 401; see whether the key is right") as refused:
            asked(TEXTS[:2])
        monkeypatch.delenv("EMBED_KEY")
        with pytest.raises(UsageError, match="EMBED_KEY holds none; set it") as missing:
            asked(TEXTS[:2])
    shown = (str(refused.value), str(missing.value), repr(asked), caplog.text, (tmp_path / "c").read_text("latin-1"))
    assert not any(KEY in text for text in shown)


def test_a_key_with_a_line_break_is_refused(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_KEY", "a\r\nX-Other: b")
    with ProviderServer(letters) as server, pytest.raises(UsageError, match="must name a variable that holds a key"):
        provider(server, waits, key_env="EMBED_KEY")(TEXTS[:2])


def test_a_redirection_is_not_followed_with_the_key(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_KEY", KEY)
    with ProviderServer(letters) as other:
        moved = ProviderServer(letters, statuses=[302], headers={"Location": f"{other.url}/embeddings"})
        with moved as server, pytest.raises(InputError, match="got status 302; redirections are not followed"):
            provider(server, waits, key_env="EMBED_KEY")(TEXTS[:2])
        assert other.received == []


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>busy</html>",
        b"[]",
        b'{"data": 3}',
        b'{"data": [{"index": 9, "embedding": [1]}]}',
        b'{"data": [{"index": 0, "embedding": "@@@"}]}',
        b'{"data": [{"index": 0, "embedding": {"a": 1}}]}',
        b'{"data": ["row"]}',
        b"\xff\xfe",
        b'{"data":' + b"[" * 100_000,
        b'{"data": []}',
    ],
)
def test_an_answer_that_is_no_vectors(answer: bytes, waits: list[float]) -> None:
    with ProviderServer(letters, answer=answer) as server, pytest.raises(InputError, match="must answer with"):
        provider(server, waits)(TEXTS[:2])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/v1",
        "host/v1",
        "http://",
        "http://[::1",
        "http://host:99999/v1",
        "http://host/v1?key=geheim",
        "https://user:geheim@host/v1",
        "http://host/v1\r\nX: y",
        "",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="`url` must") as error:
        Provider(url, model="m")
    assert "geheim" not in str(error.value)


def test_other_arguments() -> None:
    with pytest.raises(UsageError, match="`model` must name"):
        Provider("http://host", model="")
    with pytest.raises(UsageError, match="at least 1"):
        Provider("http://host", model="m", at_once=0)
    assert Provider("http://[::1]:8080/v1/embeddings", model="m").address == "http://[::1]:8080"


def test_fewer_dimensions_are_asked_for(waits: list[float]) -> None:
    with ProviderServer(letters) as server:
        provider(server, waits, dimensions=16)(TEXTS[:2])
    assert server.asked[0]["dimensions"] == 16
