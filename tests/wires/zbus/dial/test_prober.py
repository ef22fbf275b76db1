from __future__ import annotations

import asyncio

import pytest

from raceway import config
from raceway.net.outgoing.allowed import AllowList
from raceway.wires.zbus.codec.receiver import ZbusHeartbeat
from raceway.wires.zbus.dial.prober import MISSED_REPORTS, Prober
from raceway.wires.zbus.listen.tracker import Tracker
from tests.rigs.dialled_peer import listening_peer, running, until
from tests.rigs.ports import free_port_base

EVERY_S, REPORT_S = 0.02, 0.05


class Table(Tracker):
    """A tracker's table of which only the addresses matter."""

    def __init__(self, *brokers: str, silence_s: float = 0.0) -> None:
        self.known = dict.fromkeys(brokers, silence_s)

    def silences(self) -> dict[str, float]:
        return dict(self.known)

    def drop(self, broker: str) -> None:
        del self.known[broker]


def prober(table: Table, host: str = "127.0.0.1") -> Prober:
    return Prober(table, AllowList(config.Listen(host=host, insecure=True)), EVERY_S, REPORT_S)


def test_a_broker_stays_while_its_connection_stands_and_goes_when_it_ends() -> None:
    async def scenario() -> None:
        async with listening_peer() as peer:
            table = Table(str(peer.target), silence_s=3600)
            async with running(prober(table).run()):
                beats = ZbusHeartbeat
                await until(lambda: sum(isinstance(e, beats) for e in peer.received) >= 3, "some looks")
                assert (list(table.known), peer.opened) == ([str(peer.target)], 1)
                await peer.vanish()
                await until(lambda: not table.known, "the broker to be dropped")
                await peer.listen()

    asyncio.run(scenario())


def test_a_broker_that_was_never_there_is_dropped() -> None:
    async def scenario() -> None:
        table = Table(f"127.0.0.1:{free_port_base()}")
        async with running(prober(table).run()):
            await until(lambda: not table.known, "the broker to be dropped")

    asyncio.run(scenario())


def test_a_broker_that_reports_itself_again_is_probed_again() -> None:
    async def scenario() -> None:
        async with listening_peer() as peer:
            table = Table(str(peer.target))
            async with running(prober(table).run()):
                await until(lambda: peer.connections, "a probe")
                peer.connections[0].close()
                await until(lambda: not table.known, "the broker to be dropped")
                table.known[str(peer.target)] = 0.0
                await until(lambda: peer.opened == 2, "another probe")

    asyncio.run(scenario())


def test_probes_end_with_their_entry_and_with_the_prober() -> None:
    async def scenario() -> None:
        async with listening_peer() as one, listening_peer() as other:
            table = Table(str(one.target), str(other.target))
            async with running(prober(table).run()):
                await until(lambda: one.connections and other.connections, "the probes")
                del table.known[str(one.target)]
                await until(lambda: not one.connections, "the probe of a forgotten broker to end")
                assert other.connections
            await until(lambda: not other.connections, "the other probe to end")

    asyncio.run(scenario())


@pytest.mark.parametrize("address", ["10.0.0.5:15555", "no address", "169.254.169.254:80", ""])
def test_what_must_not_be_probed_lives_by_its_reports(address: str) -> None:
    async def scenario() -> None:
        table = Table(address)
        probing = prober(table)
        probing.look()
        probing.look()
        assert address in table.known
        table.known[address] = MISSED_REPORTS * REPORT_S + 0.001
        probing.look()
        assert table.known == {}
        assert len(asyncio.all_tasks()) == 1, "nothing was dialled"

    asyncio.run(scenario())


def test_a_tracker_that_other_machines_reach_connects_to_nobody() -> None:
    async def scenario() -> None:
        async with listening_peer() as peer:
            table = Table(str(peer.target))
            probing = prober(table, host="0.0.0.0")
            for _ in range(3):
                probing.look()
                await asyncio.sleep(0.01)
            assert (list(table.known), peer.opened) == ([str(peer.target)], 0)

    asyncio.run(scenario())
