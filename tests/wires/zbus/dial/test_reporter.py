from __future__ import annotations

import asyncio

from raceway.wires.zbus.codec.receiver import Admin
from raceway.wires.zbus.dial.reporter import HURRIED_REPORTS, Reporter
from tests.rigs.dialled_peer import Peer, listening_peer, running, until


def bodies(peer: Peer) -> list[bytes]:
    return [event.body for event in peer.received if isinstance(event, Admin) and event.method == "track_report"]


def test_reports_come_again_and_again_each_made_anew() -> None:
    async def scenario() -> None:
        made = iter(range(1000))
        async with listening_peer() as peer:
            async with running(Reporter(peer.target, lambda: b"%d" % next(made), 0.02).run()):
                await until(lambda: len(bodies(peer)) >= 3, "three reports")
            assert bodies(peer)[:3] == [b"0", b"1", b"2"]
            assert peer.opened == 1
            await until(lambda: not peer.connections, "the connection to end with the reporter")

    asyncio.run(scenario())


def test_a_report_that_is_hurried_does_not_wait_for_its_time() -> None:
    async def scenario() -> None:
        async with listening_peer() as peer:
            reporter = Reporter(peer.target, lambda: b"r", every_s=1.0)
            async with running(reporter.run()):
                await until(lambda: bodies(peer), "the first report, after the start")
                loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
                for count in range(2, 5):
                    reporter.hurry()
                    await until(lambda count=count: len(bodies(peer)) >= count, "the hurried report")  # type: ignore[misc]
                assert loop.time() - began < 1.0, "three hurried reports came before one regular one was due"

    asyncio.run(scenario())


def test_many_changes_in_a_row_share_a_report() -> None:
    async def scenario() -> None:
        async with listening_peer() as peer:
            reporter = Reporter(peer.target, lambda: b"r", every_s=0.2)
            async with running(reporter.run()):
                await until(lambda: bodies(peer), "the first report")
                loop = asyncio.get_running_loop()
                began = loop.time()
                while loop.time() - began < 0.3:
                    reporter.hurry()
                    await asyncio.sleep(0)
                gaps = (loop.time() - began) / (0.2 / HURRIED_REPORTS)
                assert 2 < len(bodies(peer)) <= gaps + 2

    asyncio.run(scenario())


def test_a_tracker_that_comes_late_or_comes_back_is_reported_to() -> None:
    async def scenario() -> None:
        peer = Peer()
        await peer.listen()
        await peer.vanish()
        async with running(Reporter(peer.target, lambda: b"r", 0.01).run()):
            await asyncio.sleep(0.05)  # some attempts that find nobody
            for times in (1, 2):
                await peer.listen()
                await until(lambda times=times: peer.opened == times and len(bodies(peer)) >= times, "a report")  # type: ignore[misc]
                await peer.vanish()

    asyncio.run(scenario())


def test_a_guarded_tracker_is_shown_the_token() -> None:
    async def scenario() -> None:
        async with listening_peer() as peer:
            async with running(Reporter(peer.target, lambda: b"r", 0.01, token="s3cret").run()):
                await until(lambda: bodies(peer), "a report")
            assert peer.received[0].token == b"s3cret"

    asyncio.run(scenario())
