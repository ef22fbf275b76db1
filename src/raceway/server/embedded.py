"""A bus in a thread of this process, with its journal in memory: for tests of programs that use a bus."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from raceway import config, wires
from raceway.journal import open_journal
from raceway.server.bus import local_bus
from raceway.server.doors import CONSOLE, Doors, ports
from raceway.server.ports import free_port_base
from raceway.server.process import Console, repeat, urls_of

# Nothing needs a long drain: programs under test have closed their clients by then.
SETTINGS = {"journal.durability": "memory", "listen.host": "127.0.0.1", "broker.drain_s": 1.0}


@contextmanager
def embedded_bus(settings: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Run a bus during the context; gives the URL of each port, by its name.

    `settings` have dotted keys, as in a settings file. The environment is not read. Unless the program has configured
    structlog, records of the bus go to standard error from `warning` on. Raises ConfigError.
    """
    flags = {**SETTINGS, "listen.port_base": free_port_base(), **settings}
    chosen = config.load(None, environment={}, flags=flags, sections=wires.sections()).config
    embedded = _Embedded(chosen)
    thread = threading.Thread(target=embedded.run, name="raceway-bus", daemon=True)
    with _quiet():
        thread.start()
        try:
            embedded.wait_until_open()
            yield urls_of(chosen.listen, ports(chosen.listen))
        finally:
            embedded.end()
            thread.join()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep records below `warning`, and standard output, from a program that has not configured structlog."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.reset_defaults()


class _Embedded:
    """The bus and its loop. `run` belongs to the thread; other methods are called from outside it."""

    def __init__(self, settings: config.Config) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._opened = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._failure = error
        finally:
            self._opened.set()

    def wait_until_open(self) -> None:
        """Wait until all ports are open. Raises what prevented it."""
        self._opened.wait()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    async def _serve(self) -> None:
        settings, loop = self._settings, self._loop
        journal = open_journal(settings.journal, loop.call_soon_threadsafe, storage=settings.storage)
        try:
            bus = local_bus(settings, journal, loop)
            doors = Doors(bus, settings, loop)
            port = ports(settings.listen)[CONSOLE]
            console = Console(bus.door, settings, port, doors.routes())
            await doors.open()
            await console.open()
            tasks = [repeat(loop, settings.journal.upkeep_s, journal.upkeep), repeat(loop, 1.0, bus.tick)]
            async with doors.running():
                self._opened.set()
                await self._stop.wait()
            await doors.drain()
            doors.close()
            await console.close()
            for task in tasks:
                task.cancel()
            # One more loop iteration, in which the transports send buffered output.
            await asyncio.sleep(0)
        finally:
            journal.close()
