from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog.testing

from raceway import config
from raceway.broker.door import Door
from raceway.errors import ConfigError
from raceway.net.outgoing.allowed import AllowList
from raceway.wires.zbus.listen.admin import Administration
from raceway.wires.zbus.listen.tracking import tracking
from raceway.wires.zbus.settings import ZbusWire
from tests.rigs.dialled_peer import listening_peer, until
from tests.rigs.doubles import Bench


def run_with(listen: config.Listen, meanwhile: Any = None) -> list[Any]:
    """Track for a moment; what was logged."""

    async def scenario() -> None:
        administration = Administration(Door(Bench().broker), listen, "127.0.0.1:1", "")
        async with tracking(listen.of(ZbusWire), administration, AllowList(listen)):
            if meanwhile is not None:
                await meanwhile(administration)
        assert len(asyncio.all_tasks()) == 1, "all work ends with the bus"

    with structlog.testing.capture_logs() as logs:
        asyncio.run(scenario())
    return list(logs)


def zbus(**settings: Any) -> config.Listen:
    return config.Listen(wires=(ZbusWire(**{"report_ms": 10, "probe_ms": 10, "push_ms": 10} | settings),))


@pytest.mark.parametrize("address", ["nowhere", "host:", "127.0.0.1:99999"])
def test_a_tracker_that_is_no_address_is_refused_by_name(address: str) -> None:
    with pytest.raises(ConfigError, match=r"listen\.zbus\.trackers.*host:port"):
        run_with(zbus(trackers=(address,)))


def test_a_tracker_that_is_not_allowed_is_left_out_loudly() -> None:
    warnings = [log for log in run_with(zbus(trackers=("10.0.0.9:16666",))) if log["log_level"] == "warning"]
    assert [log["tracker"] for log in warnings] == ["10.0.0.9:16666"]


def test_every_tracker_is_reported_to_until_the_bus_ends() -> None:
    async def scenario() -> None:
        async with listening_peer() as one, listening_peer() as other:
            listen = zbus(trackers=(str(one.target), str(other.target)))
            administration = Administration(Door(Bench().broker), listen, "127.0.0.1:1", "")
            async with tracking(listen.of(ZbusWire), administration, AllowList(listen)):
                await until(lambda: one.received and other.received, "reports")
            for peer in (one, other):
                assert b'"broker":"127.0.0.1:1"' in peer.received[0].body
                await until(lambda peer=peer: not peer.connections, "the end of the connection")  # type: ignore[misc]

    asyncio.run(scenario())


def test_a_bus_without_trackers_does_nothing() -> None:
    async def look(administration: Administration) -> None:
        assert len(asyncio.all_tasks()) == 1
        administration.queue_made()

    assert run_with(zbus(), look) == []


def test_work_that_ends_by_a_fault_is_seen() -> None:
    async def break_it(administration: Administration) -> None:
        administration.tracker.silences = None  # type: ignore[method-assign,assignment]
        await asyncio.sleep(0.05)

    logs = run_with(zbus(tracker=True), break_it)
    assert "tracker task stopped" in [log["event"] for log in logs]
