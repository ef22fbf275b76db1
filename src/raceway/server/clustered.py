"""A node of a cluster: it waits as a standby until the lane should be its own, then serves as any bus does.

    standby: console port answers 503 and who serves ──should own it──> claim, replay ──> bus
       ^                                                                                   │
       └──── another node owns it, or should, or rows in doubt were stored ────────────────┘

A node that stops commits, writes a snapshot, gives the lane up and leaves the group: another takes over at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import structlog

from raceway import config
from raceway.cluster.ownership import Ownership
from raceway.cluster.place import ClusterPlace, ClusterRecord
from raceway.cluster.status import owner_in_words
from raceway.errors import ConfigError, RacewayError, UnavailableError
from raceway.journal import wall_clock_us
from raceway.journal.contract import Journal
from raceway.journal.identity import NAME as IDENTITY
from raceway.journal.kafka.journal import KafkaJournal
from raceway.journal.lock import FolderLock
from raceway.model.addresses import host_port
from raceway.net.sockets import bind
from raceway.server.doors import CONSOLE, ports
from raceway.server.events import either
from raceway.server.lifeline import Lifeline
from raceway.server.standby import standby_port

log = structlog.get_logger("raceway")

# Serves a journal until the event is set.
Serve = Callable[[config.Config, Journal, asyncio.Event, Lifeline], Awaitable[None]]
# Time beyond the drain for a bus to end, before the lane goes to another node nevertheless.
STOP_S = 5.0
# Pause between two attempts to open the lane, and between two looks at who owns it.
RETRY_S, LOOK_S = 1.0, 2.0


class ClusterNode:
    """Node of a cluster, from the start of its process to its end, which is when `stop` is set."""

    def __init__(self, settings: config.Config, serve: Serve, stop: asyncio.Event) -> None:
        self._settings, self._serve, self._stop = settings, serve, stop
        self._loop = asyncio.get_running_loop()
        self._place = ClusterPlace(settings.cluster)
        self._should = False
        self._changed = asyncio.Event()
        self._journal: KafkaJournal | None = None
        listen = settings.listen
        host = settings.cluster.advertise or config.plain_host(listen)
        self._claimant = self._place.claimant(f"http://{host_port(host, ports(listen)[CONSOLE])}")
        self._ownership = Ownership(
            self._place.brokers, self._place.name, self._claimant.address, settings.cluster.session_timeout_s,
            settings.broker.drain_s + STOP_S, self._from_group, self._suspect,
        )  # fmt: skip
        # What `/readyz` says of this node.
        self._reason = "this node has not joined the cluster yet"

    async def run(self) -> None:
        """Wait and serve in turns. Raises ClusterError, ConfigError, UnreachableError if it cannot begin."""
        folder = _data_folder(self._settings.journal)
        with FolderLock(folder):
            record = await asyncio.to_thread(self._place.check)
            self._ownership.start()
            try:
                while not self._stop.is_set():
                    journal = await self._wait(record)
                    if journal is not None:
                        await self._own(journal)
            finally:
                await asyncio.to_thread(self._ownership.close)

    async def _wait(self, record: ClusterRecord) -> KafkaJournal | None:
        """Be a standby until the lane is open; None if the process ends."""
        log.info("waiting as a standby", cluster=self._place.url)
        async with self._standby(), self._looking():
            while not self._stop.is_set():
                self._changed.clear()
                if not self._should:
                    await either(self._stop, self._changed)
                    continue
                self._ownership.take()
                try:
                    return await asyncio.to_thread(self._open, record)
                except UnavailableError as error:
                    self._reason = f"the lane cannot be opened: {error}"
                    log.error("lane not opened", reason=str(error))
                    self._ownership.release()
                    await either(self._stop, self._changed, timeout_s=RETRY_S)
        return None

    def _open(self, record: ClusterRecord) -> KafkaJournal:
        claimant = msgspec.structs.replace(self._claimant, time_us=wall_clock_us())
        owner = threading.main_thread().ident or 0
        return self._place.open_journal(
            record, self._settings.journal, claimant, self._loop.call_soon_threadsafe, owner
        )

    async def _own(self, journal: KafkaJournal) -> None:
        """Serve until the process ends, or the lane is another's."""
        ended, lost = asyncio.Event(), list[bool]()

        def on_lost(reason: str, is_owned: bool) -> None:
            lost.append(is_owned)
            self._reason = reason
            ended.set()

        journal.lost, self._journal = on_lost, journal
        watching = asyncio.create_task(self._watch(ended))
        try:
            with Lifeline(self._settings.broker.drain_s + STOP_S) as lifeline:
                await self._serve(self._settings, journal, ended, lifeline)
        finally:
            watching.cancel()
            self._journal = None
            await asyncio.to_thread(journal.close)
            self._ownership.release()
        if lost and lost[0]:
            # Another node has claimed the lane. The group may name this one for a moment longer: do not claim it back.
            self._changed.clear()
            await either(self._stop, self._changed, timeout_s=self._settings.cluster.session_timeout_s)

    async def _watch(self, ended: asyncio.Event) -> None:
        """End a term when the process stops, or when another node should own the lane."""
        while not self._stop.is_set() and self._should:
            self._changed.clear()
            await either(self._stop, self._changed)
        ended.set()

    # ---- told by the group, in its thread ----------------------------------------------------------------------------

    def _from_group(self, should: bool) -> None:
        self._loop.call_soon_threadsafe(self._set_should, should)

    def _set_should(self, should: bool) -> None:
        log.info("lane assigned to this node" if should else "lane assigned to another node")
        self._should = should
        self._changed.set()

    def _suspect(self) -> None:
        journal = self._journal
        if journal is not None:
            journal.look()

    # ---- standby -----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _standby(self) -> AsyncIterator[None]:
        listen = self._settings.listen
        port = bind(config.plain_host(listen), ports(listen)[CONSOLE])
        async with standby_port(port, lambda: self._reason):
            yield

    @contextlib.asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        """Keep what `/readyz` says up to date."""

        lane = self._place.lane()

        async def look() -> None:
            while True:
                try:
                    self._reason = await asyncio.to_thread(owner_in_words, lane)
                except RacewayError as error:
                    self._reason = f"Kafka does not answer: {error}"
                await asyncio.sleep(LOOK_S)

        task = asyncio.create_task(look())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await asyncio.to_thread(lane.close)


def _data_folder(journal: config.JournalSettings) -> Path:
    """Return the folder of the node, made if it does not exist. Raises ConfigError if it holds a journal."""
    folder = Path(journal.folder)
    if (folder / IDENTITY).exists():
        raise ConfigError(
            "journal.folder",
            f"{folder} holds a journal of its own, which a cluster does not read: choose another folder with --data",
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
