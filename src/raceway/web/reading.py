"""`GET /topics/{name}`: committed rows of a topic by offset, a page at a time, or live as server-sent events.

A page contains the position of the next one (`next`) and lost offsets (`gaps`). Rows have the format of
`raceway journal read`, or are CloudEvents (`Accept: application/cloudevents-batch+json`, or `as=cloudevents`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.errors import MalformedError, UnavailableError
from raceway.journal.contract import Journal
from raceway.model.addresses import network_of
from raceway.net.codec.cloudevents import BATCH
from raceway.web.answers import committed, number_of, principal_of, refusing
from raceway.web.event_streams import EventResponse, EventStreams
from raceway.web.routing import CONSUME, Route
from raceway.web.topic_rows import (
    END,
    FIRST,
    Form,
    Gap,
    encode_line,
    gaps_in,
    place_of,
    positions,
    read_rows,
    readable,
    shown,
)

EVENTS = "text/event-stream"
USUAL_ROWS = 100
NOT_KEPT = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class TopicReading:
    def __init__(self, broker: Broker, settings: config.HttpDoor, streams: EventStreams) -> None:
        self._broker, self._settings, self._streams = broker, settings, streams

    def routes(self) -> list[Route]:
        return [Route("/topics/{name:path}", refusing(self.read), CONSUME)]

    async def read(self, request: Request) -> Response:
        if request.method == "GET" and EVENTS in request.headers.get("accept", ""):
            return self._live(request)
        return await self._page(request)

    async def _page(self, request: Request) -> Response:
        topics = readable(self._broker, principal_of(request), request.path_params["name"])
        begin = positions(self._broker, topics, request.query_params.get("from", FIRST))
        form, limit = _form(request), self._limit(request)
        rows, following, gaps = await self._rows(topics, begin, limit)
        messages = [shown(row, form) for row in rows]
        if form == "cloudevents":
            headers = NOT_KEPT | {"content-type": BATCH, "x-next": place_of(following)}
            if gaps:
                headers["x-gaps"] = encode_line(gaps).decode("latin-1")
            return Response(encode_line(messages), headers=headers)
        page = {
            "topic": request.path_params["name"],
            "from": place_of(begin),
            "next": place_of(following),
            "end": place_of([self._broker.journal.offsets(topic.name)[1] for topic in topics]),
            "messages": messages,
        } | ({"gaps": gaps} if gaps else {})
        return Response(encode_line(page), headers=NOT_KEPT | {"content-type": "application/json"})

    async def _rows(
        self, topics: Sequence[Topic], begin: Sequence[int], limit: int
    ) -> tuple[list[dict[str, Any]], list[int], list[Gap]]:
        """Return rows, the next position, and gaps. If nothing is found up to the end after a commit, all of it is
        lost."""
        journal, size = self._broker.journal, self._settings.page_bytes
        ends = [journal.offsets(topic.name)[1] for topic in topics]
        found, following, gaps = await asyncio.to_thread(_read, journal, topics, begin, limit, size)
        if found or list(begin) == ends:
            return found, following, gaps
        with contextlib.suppress(UnavailableError):  # rows that could not be stored cannot be read either
            await committed(self._broker)
        found, following, gaps = await asyncio.to_thread(_read, journal, topics, begin, limit, size)
        if not found:
            ends = [min(end, journal.offsets(topic.name)[1]) for end, topic in zip(ends, topics, strict=True)]
            places = zip(topics, begin, ends, strict=True)
            gaps = [Gap(topic.name, first, end) for topic, first, end in places if first < end]
            following = [max(first, end) for first, end in zip(begin, ends, strict=True)]
        return found, following, gaps

    def _live(self, request: Request) -> Response:
        """Open an event stream: from `Last-Event-ID`, from the query's `from`, or from now on."""
        principal, name = principal_of(request), request.path_params["name"]
        topics = readable(
            self._broker, principal, name, maker=network_of(request.client.host if request.client else "")
        )
        wanted = request.headers.get("last-event-id") or request.query_params.get("from", END)
        begin = positions(self._broker, topics, wanted)
        stream = self._streams.open(topics, begin, "cloudevents" if _form(request) == "cloudevents" else "rows")

        def may_go_on() -> None:
            self._broker.security.check(principal, "Consume", topics[0].name)

        return EventResponse(self._streams, stream, may_go_on)

    def _limit(self, request: Request) -> int:
        wanted = number_of("limit", request.query_params.get("limit", str(USUAL_ROWS)))
        return max(min(wanted, self._settings.page_rows), 1)


def _form(request: Request) -> Form:
    wanted = request.query_params.get("as", "")
    if wanted not in ("", "rows", "cloudevents"):
        raise MalformedError("`as` must be rows or cloudevents")
    if wanted == "cloudevents" or (not wanted and BATCH in request.headers.get("accept", "")):
        return "cloudevents"
    return "rows"


def _read(
    journal: Journal, topics: Sequence[Topic], begin: Sequence[int], limit: int, max_bytes: int
) -> tuple[list[dict[str, Any]], list[int], list[Gap]]:
    """Return rows, the next position, and gaps. Raises TrimmedError."""
    found: list[dict[str, Any]] = []
    gaps: list[Gap] = []
    following = list(begin)
    for number, topic in enumerate(topics):
        size = sum(len(row["payload"] or b"") for row in found)
        if len(found) >= limit or size >= max_bytes:
            break
        rows = read_rows(journal, topic, following[number], limit - len(found), max_bytes - size)
        found += rows
        gaps += gaps_in(topic, following[number], rows)
        if rows:
            following[number] = rows[-1]["offset"] + 1
    return found, following, gaps
