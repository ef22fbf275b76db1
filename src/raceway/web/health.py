"""Health of the journal over the console port: status, segments, damage found so far."""

from __future__ import annotations

from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from raceway.broker.broker import Broker
from raceway.errors import JournalError
from raceway.journal.contract import Health
from raceway.journal.query.inspect import SegmentFacts, survey
from raceway.web.answers import refusing
from raceway.web.asking import Desk, answered
from raceway.web.routing import LOOKUP, Route

# Number of newest segments shown.
SEGMENTS = 200


class JournalHealth(msgspec.Struct, frozen=True):
    """Health of the journal. `segments` are the newest files, newest first; empty if the journal is in memory."""

    health: Health
    folder: str
    segments: list[SegmentFacts]


def health_routes(broker: Broker, data: Path | None, desk: Desk) -> list[Route]:
    def look() -> JournalHealth:
        health = broker.journal.health()
        if data is None or health.durability == "memory":
            return JournalHealth(health, "", [])
        try:
            segments = survey(data, 0).segments[-SEGMENTS:]
        except (JournalError, OSError):  # files may change while they are read
            segments = []
        return JournalHealth(health, str(data), segments[::-1])

    async def journal(request: Request) -> Response:
        return answered(await desk.run(look))

    return [Route("/api/journal", refusing(journal), LOOKUP)]
