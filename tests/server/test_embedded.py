"""A bus in a thread of this process."""

from __future__ import annotations

import threading
import urllib.request
from typing import Any

import pytest
import structlog

from raceway.client.sync import connect
from raceway.errors import ConfigError, ConnectionLostError
from raceway.server.embedded import embedded_bus


def test_every_wire_and_the_console_are_there_and_gone_afterwards() -> None:
    before = set(threading.enumerate())  # some are of earlier tests, and may end meanwhile
    with embedded_bus({}) as urls:
        with (
            connect(urls["mb"], wire="mb") as mb,
            connect(urls["danube"], wire="danube") as danube,
            mb.subscribe("embedded.t") as messages,
        ):
            danube.publish("embedded.t", b"across")
            message = messages.get(10)
            assert message is not None
            assert message.payload == b"across"
        with connect(urls["zbus"], wire="zbus") as zbus:
            zbus.create_queue("embedded.q")
            assert [row.name for row in zbus.queues()] == ["embedded.q"]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{urls['console']}/healthz", timeout=10) as response:
            assert response.status == 200
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConnectionLostError):
        connect(urls["mb"], reconnect=False)


def test_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    # Commands that other tests ran in this process may have configured it.
    structlog.reset_defaults()
    with embedded_bus({}) as urls, connect(urls["mb"]) as client:
        client.publish("quiet")
    assert capsys.readouterr() == ("", "")
    assert not structlog.is_configured()


def test_two_run_beside_each_other() -> None:
    with (
        embedded_bus({}) as one,
        embedded_bus({}) as two,
        connect(one["mb"]) as first,
        connect(two["mb"]) as second,
        second.subscribe("only.here") as messages,
    ):
        assert first.publish("only.here").no_route
        assert not second.publish("only.here", b"2").no_route
        message = messages.get(10)
        assert message is not None
        assert message.payload == b"2"


@pytest.mark.parametrize(
    ("settings", "key"), [({"broker.nothing": 1}, "broker.nothing"), ({"listen.port_base": 70_000}, "listen.port_base")]
)
def test_wrong_settings_are_named(settings: dict[str, Any], key: str) -> None:
    before = set(threading.enumerate())  # some are of earlier tests, and may end meanwhile
    with pytest.raises(ConfigError, match=key), embedded_bus(settings):
        raise AssertionError("it must not start")
    assert set(threading.enumerate()) <= before


def test_port_that_is_taken_is_raised_where_the_bus_was_wanted() -> None:
    before = set(threading.enumerate())  # some are of earlier tests, and may end meanwhile
    with embedded_bus({}) as urls:
        taken = int(urls["mb"].rpartition(":")[2])
        with pytest.raises(ConfigError, match="is in use"), embedded_bus({"listen.port_base": taken}):
            raise AssertionError("it must not start")
    assert set(threading.enumerate()) <= before
