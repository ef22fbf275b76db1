"""`GET /topics/{name}`: committed rows of a topic by offset, a page at a time, or live as server-sent events.

A page says where the next one begins (`next`). Rows are shown as `raceway journal read` shows them, or as CloudEvents
(`Accept: application/cloudevents-batch+json`, or `as=cloudevents`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.codec.cloudevents import BATCH
from raceway.errors import MalformedError
from raceway.journal.contract import Journal
from raceway.model.addresses import network_of
from raceway.web.answers import number_of, principal_of, refusing
from raceway.web.event_streams import EventResponse, EventStreams
from raceway.web.routing import CONSUME, Route
from raceway.web.topic_rows import END, FIRST, Form, encode_line, place_of, positions, read_rows, readable, shown

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
        rows, following = await asyncio.to_thread(
            _read, self._broker.journal, topics, begin, limit, self._settings.page_bytes
        )
        messages = [shown(row, form) for row in rows]
        if form == "cloudevents":
            headers = NOT_KEPT | {"content-type": BATCH, "x-next": place_of(following)}
            return Response(encode_line(messages), headers=headers)
        page = {
            "topic": request.path_params["name"],
            "from": place_of(begin),
            "next": place_of(following),
            "end": place_of([self._broker.journal.offsets(topic.name)[1] for topic in topics]),
            "messages": messages,
        }
        return Response(encode_line(page), headers=NOT_KEPT | {"content-type": "application/json"})

    def _live(self, request: Request) -> Response:
        """From `Last-Event-ID` on where a reader comes back, else from where it says, else what comes from now on."""
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
        raise MalformedError("`as` is rows or cloudevents")
    if wanted == "cloudevents" or (not wanted and BATCH in request.headers.get("accept", "")):
        return "cloudevents"
    return "rows"


def _read(
    journal: Journal, topics: Sequence[Topic], begin: Sequence[int], limit: int, max_bytes: int
) -> tuple[list[dict[str, Any]], list[int]]:
    """Rows, and where to go on. Raises TrimmedError."""
    found: list[dict[str, Any]] = []
    following = list(begin)
    for number, topic in enumerate(topics):
        size = sum(len(row["payload"] or b"") for row in found)
        if len(found) >= limit or size >= max_bytes:
            break
        rows = read_rows(journal, topic, following[number], limit - len(found), max_bytes - size)
        found += rows
        if rows:
            following[number] = rows[-1]["offset"] + 1
    return found, following
