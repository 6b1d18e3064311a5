"""How commands ask the coordinator."""

from __future__ import annotations

from typing import Any

from optchat import config


def call(path: str, request: Any, answer: type[Any]) -> Any:
    """Send one request and return its answer; starts a coordinator when there is none."""
    from optchat.coordinator import client
    from optchat.coordinator.paths import Paths

    client.ensure(config.home())
    with client.Client(Paths(config.home())) as connection:
        return connection.call(path, request, answer)
