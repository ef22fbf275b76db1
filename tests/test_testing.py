"""`raceway.testing`, as a test of a program uses it."""

from __future__ import annotations

import pytest

from raceway.client.sync import connect
from raceway.errors import ConfigError, RemoteError
from raceway.testing import MemoryBus, memory_bus


def test_bus_has_a_url_for_each_port() -> None:
    bus = MemoryBus({"mb": "mb://127.0.0.1:1", "console": "http://127.0.0.1:2"})
    assert (bus.url("mb"), bus.console) == ("mb://127.0.0.1:1", "http://127.0.0.1:2")
    with pytest.raises(ConfigError, match="'kafka' is not one of console, mb"):
        bus.url("kafka")


def test_settings_hold_for_the_bus() -> None:
    limits = {"listen.http.body_limit": 1000}
    with memory_bus() as usual, memory_bus(limits) as narrow:
        with connect(usual.console) as client:
            client.publish("t", b"x" * 2000)
        with connect(narrow.console) as client, pytest.raises(RemoteError, match="too_large"):
            client.publish("t", b"x" * 2000)
