"""What a container of the daemon is run with: paths, port, user, and the configuration file inside."""

from __future__ import annotations

from typing import Any

__all__ = [
    "CONFIG_FILE",
    "CONFIG_FOLDER",
    "GRACE",
    "IMAGE",
    "PORT",
    "SECRETS",
    "STATE",
    "USER",
    "container_config",
]

IMAGE = "embedwatch:latest"
"""What `docker build` is told to call it."""
PORT = 9477
USER = 10_001
CONFIG_FOLDER, CONFIG_FILE = "/etc/embedwatch", "embedwatch.yaml"
SECRETS = "/run/secrets/embedwatch"
STATE = "/var/lib/embedwatch"
DRAIN = 30
"""Seconds in which the daemon judges what waits, once it is told to end."""
GRACE = DRAIN + 15
"""Seconds after which it is killed."""


def container_config() -> dict[str, Any]:
    """Return the configuration of the daemon in a container.

    It listens on every interface, so that who sends or reads needs a token; one a line, in a file that is mounted.
    """
    return {
        "web": {"listen": [f":{PORT}"], "auth": {"token_file": f"{SECRETS}/tokens"}},
        "storage": {"path": STATE},
        "log": {"format": "json"},
        "drain": f"{DRAIN}s",
    }
