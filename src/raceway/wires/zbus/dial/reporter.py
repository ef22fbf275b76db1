"""Reports about this bus to one tracker: shortly after the start, periodically, and when a queue was created."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from raceway.chance import fraction
from raceway.net.outgoing.allowed import Target
from raceway.net.outgoing.link import OneWayLink, open_link
from raceway.wires.zbus.codec import client as zbus_client

# Seconds until the first report after a start, unless reports are more frequent anyway. As the real broker does.
FIRST_S = 1.0
CONNECT_S = 5.0
# Largest pause between attempts to connect, in report intervals; the pause doubles up to it.
MAX_BACKOFF = 10
# Queues created in quick succession share a report: at most this many are sent per report interval.
HURRIED_REPORTS = 10

log = structlog.get_logger("raceway.dial")


class Reporter:
    """Report to one tracker. `report` encodes the body. `run` goes on until it is cancelled."""

    def __init__(self, target: Target, report: Callable[[], bytes], every_s: float, token: str = "") -> None:
        self._target = target
        self._report = report
        self._every_s = every_s
        self._token = token.encode()
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Ask for a report soon, because a queue was created."""
        self._hurried.set()

    async def run(self) -> None:
        """Connect to the tracker and report, reconnecting with growing pauses."""
        await asyncio.sleep(min(FIRST_S, self._every_s))
        delay_s = self._every_s
        while True:
            try:
                link = await open_link(self._target, CONNECT_S)
            except OSError as error:
                log.info(
                    "tracker connect failed", tracker=str(self._target), reason=str(error), again_s=round(delay_s, 1)
                )
            else:
                log.info("tracker connected", tracker=str(self._target))
                delay_s = self._every_s
                await self._report_on(link)
                log.warning("tracker connection lost", tracker=str(self._target))
            # Up to half of the delay is random, so that many brokers do not reconnect at the same moment.
            await asyncio.sleep(delay_s * (1 - fraction() / 2))
            delay_s = min(2 * delay_s, MAX_BACKOFF * self._every_s)

    async def _report_on(self, link: OneWayLink) -> None:
        """Report until the connection is lost."""
        lost = asyncio.create_task(link.closed.wait())
        try:
            while link.open:
                self._hurried.clear()
                link.send(zbus_client.track(b"track_report", token=self._token, body=self._report()))
                await asyncio.wait([lost], timeout=self._every_s / HURRIED_REPORTS)
                await self._wait_for_next(lost)
        finally:
            lost.cancel()
            link.abort()

    async def _wait_for_next(self, lost: asyncio.Task[bool]) -> None:
        """Wait for the next report's time, a hurried one, or the loss of the connection."""
        hurried = asyncio.create_task(self._hurried.wait())
        rest_s = self._every_s * (1 - 1 / HURRIED_REPORTS)
        try:
            await asyncio.wait([lost, hurried], timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
