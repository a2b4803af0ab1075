"""Live: the configuration in use, and what happens when it is read again."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Space
from embedwatch.daemon.auth import Gate, open_gate
from embedwatch.daemon.config import Config, Tls
from embedwatch.daemon.logs import log_to_stderr
from embedwatch.daemon.references import References, load_references
from embedwatch.daemon.request_metrics import RequestMetrics
from embedwatch.daemon.units import Address

if TYPE_CHECKING:
    from embedwatch.references import Reference

__all__ = ["Live", "tls_context"]

log = logging.getLogger(__name__)
FIXED = ("web.listen", "web.tls", "web.max_connections", "web.timeout", "storage", "evaluation", "sinks", "sources")
"""What is laid down when the daemon starts; files that `web.tls` names are read again."""


class Live:
    """Holds the configuration, and the secrets and references it names. A wrong one changes nothing.

    Args:
        load: reads the whole configuration.
        clock: seconds since the epoch.

    Raises:
        UsageError: if the first configuration is wrong.
    """

    def __init__(self, load: Callable[[], Config], *, clock: Callable[[], float] = time.time) -> None:
        self._load, self._clock = load, clock
        self._lock = threading.Lock()
        self.metrics = RequestMetrics()
        self.config = load()
        self.gate: Gate = open_gate(self.config.web.auth)
        self.tls = None if self.config.web.tls is None else tls_context(self.config.web.tls)
        self.references: References = load_references(self.config.references)
        self._started = self.config
        self.metrics.reload_time = clock()

    def reload(self) -> None:
        """Read the configuration again and take it over; the old one stays where that fails.

        Raises:
            UsageError: if it is wrong.
        """
        with self._lock:
            try:
                config = self._load()
                gate = open_gate(config.web.auth)
                references = load_references(config.references)
                self._stay_closed(config, gate)
                if self.tls is not None and config.web.tls is not None:
                    tls_context(config.web.tls)
                    _fill(self.tls, config.web.tls)
            except UsageError as error:
                self.metrics.reload_successful = False
                log.error("configuration refused; the old one stays", extra={"reason": str(error)})
                raise
            waiting = [name for name in FIXED if _at(config, name) != _at(self._started, name)]
            self.config, self.gate, self.references = config, gate, references
            log_to_stderr(level=config.log.level, form=config.log.format)
            self.metrics.reload_successful, self.metrics.reload_time = True, self._clock()
            log.info("configuration taken over")
            if waiting:
                log.warning("a restart is needed before this changes", extra={"settings": ", ".join(waiting)})

    def reference_of(self, space: Space) -> Reference | None:
        """Return what the rows of a Space are compared with now."""
        return self.references.of(space)

    def _stay_closed(self, config: Config, gate: Gate) -> None:
        """Refuse to drop authentication where other machines reach an address that is served already."""
        opened = [each for each in self._started.web.listen if not Address.read(each).is_local]
        mutual = self.tls is not None and self.tls.verify_mode is ssl.CERT_REQUIRED
        if opened and gate.is_open and not mutual and not config.web.insecure:
            raise UsageError(
                f"`web.auth` must stay while others reach an address that is served, got none for {opened[0]}; "
                "restart to listen elsewhere"
            )


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return what speaks TLS 1.2 or later with these certificates.

    Raises:
        UsageError: if a file is missing, or certificate and key do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _fill(context, tls)
    return context


def _fill(context: ssl.SSLContext, tls: Tls) -> None:
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_no_password)
        if tls.client_ca_file is not None:
            context.load_verify_locations(tls.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise UsageError(
            f"`web.tls` must name PEM files that belong together, got {tls.cert_file} and {tls.key_file}: "
            f"{getattr(error, 'reason', None) or getattr(error, 'strerror', None) or 'a key with a password'}"
        ) from error


def _no_password() -> str:
    """Refuse a key with a password, rather than ask at a terminal."""
    raise ValueError


def _at(config: Config, place: str) -> object:
    value: object = config
    for name in place.split("."):
        value = getattr(value, name)
    return value
