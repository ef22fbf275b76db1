"""Trackers of a bus: reporting to those in the settings, and being one if configured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine

import structlog

from raceway.errors import ConfigError
from raceway.net.outgoing.allowed import AllowList, maybe_target
from raceway.wires.zbus.dial.prober import Prober
from raceway.wires.zbus.dial.reporter import Reporter
from raceway.wires.zbus.listen.admin import Administration
from raceway.wires.zbus.listen.tracker import Tracker
from raceway.wires.zbus.settings import ZbusWire

log = structlog.get_logger("raceway")


@contextlib.asynccontextmanager
async def tracking(zbus: ZbusWire, administration: Administration, allowed: AllowList) -> AsyncIterator[None]:
    """Run the reports and the tracker during the context. Trackers not on the allow-list are skipped with a warning.
    Raises ConfigError for a malformed address."""
    reporters = _reporters(zbus, allowed, administration)
    work: list[Coroutine[None, None, None]] = [reporter.run() for reporter in reporters]

    def hurry() -> None:
        for reporter in reporters:
            reporter.hurry()

    administration.queue_made = hurry
    if zbus.tracker:
        prober = Prober(administration.tracker, allowed, zbus.probe_ms / 1000, zbus.report_ms / 1000)
        work += [prober.run(), _push(administration.tracker, zbus.push_ms / 1000)]
    tasks = [asyncio.create_task(each) for each in work]
    for task in tasks:
        task.add_done_callback(_note_end)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reporters(zbus: ZbusWire, allowed: AllowList, administration: Administration) -> list[Reporter]:
    found: list[Reporter] = []
    for address in zbus.trackers:
        target = maybe_target(address)
        if target is None:
            raise ConfigError("listen.zbus.trackers", f"{address} is not of the form host:port")
        if allowed.allows(target):
            found.append(Reporter(target, administration.encode_report, zbus.report_ms / 1000, zbus.tracker_token))
        else:
            meaning = "the bus connects to loopback only, and only while it listens on loopback only"
            log.warning("tracker not allowed", tracker=address, meaning=meaning)
    return found


async def _push(tracker: Tracker, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        tracker.tell()


def _note_end(task: asyncio.Task[None]) -> None:
    """Log the end of a task: all run until cancelled, so an earlier end is a bug."""
    if not task.cancelled() and task.exception() is not None:
        log.error("tracker task stopped", exc_info=task.exception())
