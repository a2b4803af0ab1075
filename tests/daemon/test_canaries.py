"""Canaries in the daemon: embedded again on a schedule, judged by the heart, shown like any Space."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from embedwatch.canary import Canary
from embedwatch.canary.inputs import model_embedder
from embedwatch.core import Space, UsageError
from embedwatch.daemon.canaries import Canaries, CanarySource
from embedwatch.daemon.config import Source
from embedwatch.daemon.config_file import ConfigError, load_config
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.sinks.memory import Memory
from tests.canary.provider_server import ProviderServer
from tests.canary.spaces import changed, letters
from tests.daemon.serving import ask, until
from tests.loading import tiny

NEVER = 1e6


class Bench:
    """A heart, its canaries, and a clock that the test moves."""

    def __init__(self, *sources: CanarySource) -> None:
        self.memory, self.now = Memory(), 0.0
        self.heart = Heart(HeartSettings(None, interval=NEVER), sinks=[(self.memory, False)])
        self.heart.start()
        self.canaries = Canaries(self.heart, sources, ticks=lambda: self.now)

    def pass_time(self, seconds: float = 3600.0) -> None:
        self.canaries.look()
        self.heart.close_windows()
        self.now += seconds

    def found(self) -> list[tuple[str, str]]:
        """Return Space and status of each delivery."""
        return [
            (str(snapshot.space), verdict.status)
            for snapshot, verdicts, _ in self.memory.deliveries
            for verdict in verdicts
            if verdict.check == "canary"
        ]

    def close(self) -> None:
        self.canaries.close()
        self.heart.close()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    Canary.record(letters, model="letters-3").save(tmp_path / "faq.canary")
    return tmp_path / "faq.canary"


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer(letters) as running:
        yield running


def test_a_provider_is_asked_again_and_its_change_is_a_verdict(recorded: Path, server: ProviderServer) -> None:
    bench = Bench(CanarySource(recorded, "faq", every=3600.0, url=server.url))
    bench.pass_time(1800.0)
    bench.pass_time(1801.0)  # too early
    assert bench.found() == [("faq/canary", "ok")]
    assert server.asked[0]["model"] == "letters-3"
    server.embed = changed("rotated")
    bench.pass_time()
    assert bench.found() == [("faq/canary", "ok"), ("faq/canary", "fail")]
    assert bench.canaries.checked == 2
    bench.close()


def test_a_check_stands_until_its_next_time(recorded: Path, server: ProviderServer) -> None:
    """Else its numbers would count as old long before an hour is over."""
    bench = Bench(CanarySource(recorded, "faq", every=3600.0, url=server.url))
    confirmed: list[list[Space]] = []
    confirm = bench.heart.confirm

    def noting(spaces: Iterable[Space]) -> None:
        confirmed.append(list(spaces))
        confirm(confirmed[-1])

    bench.heart.confirm = noting  # type: ignore[method-assign]
    for _ in range(10):
        bench.pass_time(120.0)
    assert confirmed == [[Space("faq", "canary")]] * 9
    server.statuses = [401]
    bench.now = 4000.0
    for _ in range(10):
        bench.pass_time(120.0)
    assert len(confirmed) == 9
    bench.close()


def test_what_is_shown_names_the_change(recorded: Path, server: ProviderServer) -> None:
    server.embed = changed("rotated")
    bench = Bench(CanarySource(recorded, "faq", url=server.url))
    bench.pass_time()
    shown = bench.heart.space(Space("faq", "canary"))
    assert shown is not None
    assert "rotated" in str(shown)
    bench.close()


def test_a_model_on_disk_is_loaded_again_each_time(tmp_path: Path) -> None:
    model = tiny.save("bert", tmp_path / "model")
    embedder = model_embedder(model)
    Canary.record(embedder.embed, tiny.texts(24), model="tiny").save(tmp_path / "c")
    bench = Bench(CanarySource(tmp_path / "c", "search", every=10.0, model=model))
    bench.pass_time()
    tiny.save("llama", model)
    bench.pass_time()
    assert bench.found() == [("search/canary", "ok"), ("search/canary", "fail")]
    bench.close()


def test_what_cannot_be_embedded_is_told_once_and_tried_again(
    recorded: Path, server: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    server.statuses = [401] * 3
    bench = Bench(CanarySource(recorded, "faq", every=10.0, url=server.url))
    for _ in range(3):
        bench.pass_time()
    told = [each["message"] for each in bench.heart.failures() if "message" in each]
    assert len(told) == 1
    assert "got status 401" in told[0]
    assert bench.found() == []
    bench.pass_time()
    assert bench.found() == [("faq/canary", "ok")]
    recorded.unlink()
    bench.pass_time()
    assert any("faq.canary cannot be read" in each.get("message", "") for each in bench.heart.failures())
    bench.close()


def test_it_stands_in_the_configuration(recorded: Path, server: ProviderServer, tmp_path: Path) -> None:
    from embedwatch.daemon.assembly import make_server
    from embedwatch.daemon.live import Live

    path = tmp_path / "embedwatch.yaml"
    path.write_text(
        f"web: {{listen: ['127.0.0.1:0']}}\nstorage: {{path: {tmp_path / 'state'}}}\nevaluation: {{interval: 100ms}}\n"
        f"sources:\n- {{kind: canary, path: {recorded}, name: faq, every: 1h, url: {server.url}}}\n",
        encoding="utf-8",
    )
    live = Live(lambda: load_config(path, environment={}))
    running = make_server(live)
    running.start()
    try:
        port = running.listeners[0].address.port
        until(lambda: b'check="canary"' in ask(port, "/metrics").body, "a verdict in /metrics")
        (verdict,) = [each for each in ask(port, "/api/v1/verdicts").json if each["check"] == "canary"]
        assert verdict["status"] == "ok"
    finally:
        running.stop()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("kind: canary", "a canary must have `model` or `url`, got both or none"),
        ("kind: canary, model: m, url: http://h/v1", "a canary must have `model` or `url`, got both or none"),
        ("kind: files, key_env: KEY", "key_env` must be left out for files, got one; it belongs to a canary"),
    ],
)
def test_settings_that_do_not_fit(given: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "embedwatch.yaml"
    path.write_text(f"sources:\n- {{path: c, name: n, {given}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_config(path, environment={})
    assert told in str(error.value)


def test_an_address_with_a_password_is_refused_at_the_start_and_not_shown(recorded: Path) -> None:
    with pytest.raises(UsageError, match="`url` must hold no user and no password") as error:
        CanarySource(recorded, "faq", url="https://me:geheim@host/v1")
    assert "geheim" not in str(error.value)
    with pytest.raises(UsageError, match="`every` must be above 0"):
        CanarySource(recorded, "faq", every=0, url="https://host/v1")
    assert Source(kind="canary", path=recorded, name="faq", url="https://host/v1").key_env is None
