"""Tests of programs that use a bus, without a server: a bus in this process, with its journal in memory.

    def test_orders_are_billed() -> None:
        with memory_bus() as bus, connect(bus.url("mb")) as client:
            client.publish("orders.created", {"id": 7})

It is the real broker behind the real wires, on free ports of 127.0.0.1. Nothing is written to disk, and everything is
gone when the context ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from raceway.errors import ConfigError
from raceway.server.embedded import embedded_bus


class MemoryBus:
    """A running bus. `urls` has the URL of each of its ports, by name."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        self.urls = dict(urls)

    def url(self, port: str) -> str:
        """The URL of a port, for `connect`: `mb`, `danube`, `zbus`, `seneca`, … Raises ConfigError for other names."""
        if port not in self.urls:
            raise ConfigError("port", f"{port!r} is not one of {', '.join(sorted(self.urls))}")
        return self.urls[port]

    @property
    def console(self) -> str:
        """The URL of the console port, for `connect(…, console=bus.console)`: schema calls go there."""
        return self.urls["console"]


@contextmanager
def memory_bus(settings: Mapping[str, Any] | None = None) -> Iterator[MemoryBus]:
    """Run a bus during the context, in a thread. It starts in a fraction of a second, so each test may have its own.

    `settings` have dotted keys, as in a settings file: `{"broker.topic_rate": 5}`. Variables of the environment are not
    read. Raises ConfigError for a setting that does not exist.
    """
    with embedded_bus(settings or {}) as urls:
        yield MemoryBus(urls)
