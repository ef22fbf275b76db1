"""One bus in one process: create the parts, connect them, run until stopped.

Start: journal (with recovery), broker, listeners, console port, then the line `ready`. Stop, on SIGTERM or SIGINT:
close the listeners, answer or time out open requests, close connections, commit and close the journal. Status 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog
import uvicorn
import uvloop

from raceway import config
from raceway.broker.door import Door
from raceway.errors import ConfigError
from raceway.journal import open_journal
from raceway.journal.arrow import leave_pandas_out
from raceway.journal.contract import Journal
from raceway.journal.lock import maybe_began
from raceway.model.addresses import host_port
from raceway.model.clusters import ClusterStatus
from raceway.net.outgoing.allowed import AllowList
from raceway.net.sockets import Bind, bind
from raceway.server.bus import local_bus
from raceway.server.doors import CONSOLE, Doors, encrypted_ports, ports
from raceway.server.exporting import exporting
from raceway.server.lifeline import Lifeline
from raceway.server.quiet import QuietServer
from raceway.server.running import RUNNING_FILE, Running
from raceway.web.app import build_app
from raceway.web.connection import bounded_connection
from raceway.web.routing import Routes

if TYPE_CHECKING:
    from raceway.server.clustered import Serve

log = structlog.get_logger("raceway")

# Time beyond the drain for a stop to begin, and without memory to end, before the process is killed.
STOP_S = 5.0
# How long the console waits for Kafka when it shows the cluster.
CLUSTER_S = 5.0


# Context that runs beside a ready bus, given the URL of each listener; it ends before the bus does.
Beside = Callable[[dict[str, str]], contextlib.AbstractAsyncContextManager[None]]


def run(settings: config.Settings, *, only: str | None = None, beside: Beside | None = None) -> int:
    """Run the bus in this thread until SIGTERM or SIGINT. Raises ConfigError or JournalError if it cannot start.

    With `only` this port alone is opened, and no console.
    """
    chosen = prepare(settings)
    if chosen.lanes.count > 1:
        raise ConfigError("lanes.count", "only `raceway serve` runs a bus of several lanes")
    serve = partial(_serve_one, port=only) if only else partial(_serve, beside=beside)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(chosen, serve))
    return 0


def prepare(settings: config.Settings) -> config.Config:
    """Prepare this process for a bus, or for processes that it forks. Return the settings."""
    leave_pandas_out()
    for warning in settings.warnings:
        log.warning("setting renamed", meaning=warning)
    # Objects that exist now are permanent, so they need no garbage collection. The threshold is raised from 700:
    # a batch creates and frees thousands of objects, none of them in reference cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    _warn_insecure(settings.config.listen)
    return settings.config


def _warn_insecure(listen: config.Listen) -> None:
    if listen.insecure and not config.is_loopback(listen.host):
        log.warning(
            "insecure listener",
            host=listen.host,
            meaning="no TLS: not encrypted, and without security settings anyone who can connect may use the bus",
        )


async def _run(settings: config.Config, serve: Serve) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if settings.cluster.url:
        # Imported on use: most buses are alone, and have no client of Kafka.
        from raceway.server.clustered import ClusterNode

        await ClusterNode(settings, serve, stop).run()
        return
    journal = open_journal(settings.journal, loop.call_soon_threadsafe, storage=settings.storage)
    with Lifeline(settings.broker.drain_s + STOP_S) as lifeline:
        try:
            await serve(settings, journal, stop, lifeline)
        finally:
            journal.close()


async def _serve(
    settings: config.Config, journal: Journal, stop: asyncio.Event, lifeline: Lifeline, beside: Beside | None = None
) -> None:
    loop = asyncio.get_running_loop()
    bus = local_bus(settings, journal, loop)
    door = bus.door
    lifeline.relief = door.runtime.unfinished.relieve_half
    chosen = ports(settings.listen)
    allowed = AllowList(settings.listen, settings.dial.allow)
    doors = Doors(bus, settings, loop)
    console = Console(door, settings, chosen[CONSOLE], doors.routes(), Path(settings.journal.folder))
    await doors.open()
    await console.open()
    tasks = [
        repeat(loop, settings.journal.upkeep_s, journal.upkeep),
        repeat(loop, 1.0, bus.tick),
        repeat(loop, settings.listen.http.live_ms / 1000, console.live.sample),
        *renewing(loop, settings.listen, doors),
    ]
    if settings.history.interval_s:
        tasks.append(repeat(loop, settings.history.interval_s, console.recorder.record))
    traces = exporting(settings.telemetry, journal, bus.set_state, door.runtime.clock_us, allowed)
    async with doors.running(), traces:
        urls = urls_of(settings.listen, chosen)
        with announced(settings.journal, urls):
            print("ready", flush=True)
            log.info("bus ready", **{door.replace("+", "_"): port for door, port in chosen.items()})
            async with beside(urls) if beside else contextlib.nullcontext():
                await stop.wait()
    lifeline.notice()
    log.info("bus stopping")
    # The rows of another owner are no business of this bus: what is open was answered with a failure.
    if journal.health().status != "lost":
        await doors.drain()
    doors.close()
    await console.close()
    for task in tasks:
        task.cancel()
    # One more loop iteration, in which the transports send buffered output.
    await asyncio.sleep(0)


async def _serve_one(
    settings: config.Config, journal: Journal, stop: asyncio.Event, lifeline: Lifeline, port: str
) -> None:
    loop = asyncio.get_running_loop()
    bus = local_bus(settings, journal, loop)
    lifeline.relief = bus.door.runtime.unfinished.relieve_half
    doors = Doors(bus, settings, loop, only=port)
    await doors.open()
    async with doors.running():
        print("ready", flush=True)
        log.info(f"{port} ready", **{port: ports(settings.listen)[port]})
        await stop.wait()
    lifeline.notice()
    log.info(f"{port} stopping")
    await doors.drain()
    doors.close()
    await asyncio.sleep(0)


class Console:
    """uvicorn on a given socket, in the running loop, without its signal handlers. `doors` are the ports of the bus, by
    default those of the settings."""

    def __init__(
        self,
        door: Door,
        settings: config.Config,
        port: int,
        more: Sequence[Routes] = (),
        data: Path | None = None,
        bind: Bind = bind,
        doors: Mapping[str, int] | None = None,
    ) -> None:
        listen = settings.listen
        self._socket = bind(config.plain_host(listen), port)
        hosts = (*listen.hosts, listen.host)
        app = build_app(
            door, hosts, settings.security.admin_token, more, listen, doors or ports(listen), data, settings.history,
            settings.sql, settings.storage, _asking_cluster(settings.cluster),
        )  # fmt: skip
        self.live, self.recorder = app.state.live, app.state.recorder
        self._parts = (app.state.streams, app.state.live, app.state.recorder, app.state.desk)
        served = uvicorn.Config(
            app, http=bounded_connection(door.runtime, listen), ws="none", lifespan="off", log_config=None,
            access_log=False, server_header=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = QuietServer(served)
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._task = asyncio.create_task(self._server.serve([self._socket]))
        await self._server.opened.wait()

    async def close(self) -> None:
        for part in self._parts:
            part.close()
        self._server.end()
        if self._task is not None:
            await self._task


def _asking_cluster(settings: config.ClusterSettings) -> Callable[[], ClusterStatus] | None:
    """Return what asks Kafka for the status of the cluster; None for a bus that belongs to none."""
    if not settings.url:
        return None
    from raceway.cluster.place import ClusterPlace
    from raceway.cluster.status import cluster_status

    return partial(cluster_status, ClusterPlace(settings, CLUSTER_S))


def repeat(loop: asyncio.AbstractEventLoop, interval_s: float, call: Callable[[], None]) -> asyncio.Task[None]:
    """Call a function again and again, until the task is cancelled. Its exceptions are logged."""

    async def again() -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                call()
            except Exception:
                log.exception("periodic task failed", task=getattr(call, "__qualname__", str(call)))

    return loop.create_task(again())


def renewing(loop: asyncio.AbstractEventLoop, listen: config.Listen, doors: Doors) -> list[asyncio.Task[None]]:
    """Reload certificates on SIGHUP and when their files change. Without certificates, ignore SIGHUP."""
    certificates = doors.certificates
    loop.add_signal_handler(signal.SIGHUP, certificates.reload if certificates else lambda: None)
    if certificates is None or not listen.tls_reload_s:
        return []
    return [repeat(loop, listen.tls_reload_s, certificates.reload_if_changed)]


def urls_of(listen: config.Listen, chosen: dict[str, int]) -> dict[str, str]:
    """Return the URL of each port, by its name."""
    plain, secure, encrypted = config.plain_host(listen), listen.host, encrypted_ports()
    return {
        door: f"{'http' if door == CONSOLE else door}://{host_port(secure if door in encrypted else plain, port)}"
        for door, port in chosen.items()
    }


@contextlib.contextmanager
def announced(journal: config.JournalSettings, urls: dict[str, str], consoles: tuple[str, ...] = ()) -> Iterator[None]:
    """Keep `raceway.json` in the data folder during the context, so that commands find the bus."""
    if journal.durability == "memory":
        yield
        return
    file = Path(journal.folder) / RUNNING_FILE
    try:
        _write_private(file, msgspec.json.encode(Running(os.getpid(), urls, maybe_began(os.getpid()), consoles)))
    except OSError as error:  # a full disk must not prevent a start: messages can still be read
        log.warning("raceway.json not written", file=str(file), reason=str(error))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _write_private(file: Path, data: bytes) -> None:
    staged = file.with_suffix(".new")
    with open(staged, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
        stream.write(data)
    staged.rename(file)
