"""Assembly: a configuration becomes a server with its heart, its sinks and what is looked at on a schedule."""

from __future__ import annotations

from embedwatch.core.errors import UsageError
from embedwatch.daemon.config import Config
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.daemon.live import Live
from embedwatch.daemon.polling import Polled, Polling
from embedwatch.daemon.server import Server
from embedwatch.sinks import open_sinks

__all__ = ["make_server"]


def make_server(live: Live) -> Server:
    """Return the server of a configuration, its addresses bound.

    Raises:
        UsageError: if a sink, an address or a name does not fit.
    """
    config = live.config
    sinks = open_sinks(config.sinks)
    heart = Heart(_settings(config), sinks=sinks)
    polled = [Polled(each.kind, each.path, each.name, each.every) for each in config.sources]
    polling = Polling(heart, polled, only=config.evaluation.only, skip=config.evaluation.skip)
    try:
        return Server(heart, live, background=(polling,) if polled else ())
    except UsageError:
        heart.close()
        raise


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
        expires=evaluation.expires,
    )
