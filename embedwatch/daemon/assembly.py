"""Assembly: a configuration becomes a server with its heart, its sinks and what is looked at on a schedule."""

from __future__ import annotations

from collections.abc import Iterator

from embedwatch.core.errors import UsageError
from embedwatch.core.sink import Sink
from embedwatch.daemon.canaries import Canaries, CanarySource
from embedwatch.daemon.config import Config, Source
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.daemon.live import Live
from embedwatch.daemon.polled_items import Polled, Questions
from embedwatch.daemon.polling import Polling
from embedwatch.daemon.server import Server
from embedwatch.index_health import IndexQuestions
from embedwatch.sinks import open_sink

__all__ = ["make_server"]


def make_server(live: Live) -> Server:
    """Return the server of a configuration, its addresses bound.

    Raises:
        UsageError: if a sink, an address or a name does not fit.
    """
    config = live.config
    sinks = _sinks(config)
    heart = Heart(_settings(config), sinks=sinks, reference_of=live.reference_of)
    try:
        return Server(heart, live, background=tuple(_background(config, heart)))
    except UsageError:
        heart.close()
        raise


def _sinks(config: Config) -> list[tuple[Sink, bool]]:
    """Open the sinks; where one cannot be had, none stays open."""
    found: list[tuple[Sink, bool]] = []
    for number, text in enumerate(config.sinks):
        try:
            found.append((open_sink(text), True))
        except UsageError as error:
            for sink, _ in found:
                sink.close()
            raise UsageError(f"`sinks[{number}]`: {error}") from error
    return found


def _background(config: Config, heart: Heart) -> Iterator[Polling | Canaries]:
    """Yield what looks at the sources, each on a thread of its own."""
    polled = [
        Polled(
            each.kind, each.path, each.name, each.every, _questions(each), IndexQuestions(each.queries, each.present)
        )
        for each in config.sources
        if each.kind != "canary"
    ]
    if polled:
        yield Polling(heart, polled, only=config.evaluation.only, skip=config.evaluation.skip)
    canaries = [_canary(each) for each in config.sources if each.kind == "canary"]
    if canaries:
        yield Canaries(heart, canaries)


def _questions(source: Source) -> Questions:
    return Questions(text=source.texts, prompts=source.prompts, length=source.length, deep=source.deep)


def _canary(source: Source) -> CanarySource:
    return CanarySource(
        source.path,
        source.name,
        source.every,
        source.model,
        source.url,
        source.url_model,
        source.key_env,
        source.aligner,
    )


def _settings(config: Config) -> HeartSettings:
    storage, evaluation = config.storage, config.evaluation
    return HeartSettings(
        storage=storage.path,
        interval=evaluation.interval,
        pending_bytes=storage.pending,
        slot_bytes=storage.slot,
        window_bytes=storage.windows,
        max_spaces=evaluation.max_spaces,
        only=tuple(evaluation.only),
        skip=tuple(evaluation.skip),
        alarms=evaluation.alarms,
        expires=evaluation.expires,
    )
