"""Health of the bus over the console port: liveness, readiness, metrics, the journal's files, and live figures."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from raceway import __version__
from raceway.errors import BusyError, JournalError
from raceway.journal.contract import Health
from raceway.journal.query.inspect import SegmentFacts, survey
from raceway.web.answers import principal_of
from raceway.web.live import Overview
from raceway.web.metrics import exposition
from raceway.web.routing import EVENTS, LOOKUP, OPEN, TEXT, Answered, SiteRoutes, get

# Number of newest segments shown.
SEGMENTS = 200
# Each watcher costs a task and a socket.
MAX_WATCHERS = 64


class Alive(msgspec.Struct):
    status: str
    version: str


class Ready(msgspec.Struct):
    """Readiness. `warnings`, such as lost rows or a disk that is nearly full, do not affect it."""

    status: str
    reason: str
    warnings: tuple[str, ...]


class JournalHealth(msgspec.Struct, frozen=True):
    """Health of the journal. `segments` are the newest files, newest first; empty if the journal has no files."""

    health: Health
    folder: str
    segments: list[SegmentFacts]


class HealthRoutes(SiteRoutes):
    @get("/healthz", OPEN, "bus")
    async def alive(self) -> Alive:
        """Check that the process is alive."""
        return Alive("ok", __version__)

    @get("/readyz", OPEN, "bus", statuses=(200, 503))
    async def ready(self) -> Answered[Ready]:
        """Check whether traffic may be sent here."""
        health = self._view.health.now()
        ready = Ready(health.status, health.journal.reason, health.journal.warnings)
        return Answered(ready, 200 if health.status == "ok" else 503)

    @get("/metrics", OPEN, "bus", media_type=TEXT)
    async def metrics(self) -> Response:
        """Metrics for Prometheus."""
        content = exposition(self._view, self._site.more)
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")

    @get("/api/journal", LOOKUP, "bus")
    async def journal(self) -> JournalHealth:
        """Health of the journal."""
        return await self._site.desk.run(self._look)

    def _look(self) -> JournalHealth:
        health, data = self._view.health.now().journal, self._site.data
        if data is None or health.durability in ("memory", "kafka"):
            return JournalHealth(health, "", [])
        try:
            segments = survey(data, 0).segments[-SEGMENTS:]
        except (JournalError, OSError):  # files may change while they are read
            segments = []
        return JournalHealth(health, str(data), segments[::-1])


class LiveRoutes(SiteRoutes):
    @get("/api/overview", LOOKUP, "bus")
    async def overview(self) -> Overview:
        """Current status of the bus."""
        return self._site.live.overview()

    @get("/api/live", LOOKUP, "bus", media_type=EVENTS)
    async def watch(self, request: Request) -> Response:
        """The overview once a second, as server-sent events called `overview`."""
        if self._site.live.watchers >= MAX_WATCHERS:
            raise BusyError(f"the limit of {MAX_WATCHERS} watching consoles is reached")
        may_go_on = partial(self._view.permissions.check, principal_of(request), "Lookup")
        # Proxies must not buffer events.
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._site.live.events(may_go_on), media_type=EVENTS, headers=headers)
