"""A real Prometheus scrapes a daemon that is locked: over TLS, and with a token."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.daemon.serving import ask, npy, serving
from tests.daemon.test_server import TOKEN, certificate
from tests.dashboards.tools import needs_promtool, promtool
from tests.polling import poll
from tests.prometheus_server import PrometheusServer, require

METRIC = 'embedwatch_window_rows{model="m",place="p"}'
ACCEPTED = HTTPStatus.ACCEPTED


@needs_promtool
def test_a_locked_daemon_is_scraped_with_certificate_and_token(tmp_path: Path) -> None:
    require("prometheus")
    cert, key = certificate(tmp_path, "daemon")
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    locked: dict[str, Any] = {
        "tls": {"cert_file": str(cert), "key_file": str(key)},
        "auth": {"token_file": str(tokens)},
    }
    scraping = {
        "scheme": "https",
        "tls_config": {"ca_file": str(cert)},
        "authorization": {"credentials_file": str(tokens)},
    }
    with serving(tmp_path, **locked) as served:
        target = f"127.0.0.1:{served.port}"
        with PrometheusServer(tmp_path, [target], more=scraping) as server:
            code, said = promtool("check", "config", tmp_path / "prometheus.yml")
            assert code == 0, said
            server.wait_for("up == 1")
            trust = ssl.create_default_context(cafile=str(cert))
            sent = {"Content_Type": "application/x-npy", "Authorization": f"Bearer {TOKEN}"}
            assert ask(served.port, "/api/v1/ingest/m/p", "POST", npy(), tls=trust, **sent).status == ACCEPTED
            served.heart.close_windows()
            server.wait_for(f"{METRIC} > 0")


@needs_promtool
def test_without_the_token_it_is_down_and_not_silent(tmp_path: Path) -> None:
    require("prometheus")
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    with (
        serving(tmp_path, auth={"token_file": str(tokens)}) as served,
        PrometheusServer(tmp_path, [f"127.0.0.1:{served.port}"]) as server,
    ):
        server.wait_for("up == 0")
        (target,) = poll(lambda: server.get("targets")["activeTargets"])
        assert "401" in target["lastError"]
