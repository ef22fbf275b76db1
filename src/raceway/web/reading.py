"""`GET /topics/{name}`: committed rows of a topic by offset, a page at a time, or live as server-sent events.

A page contains the position of the next one (`next`) and lost offsets (`gaps`). Rows have the format of
`raceway journal read`, or are CloudEvents (`Accept: application/cloudevents-batch+json`, or `as=cloudevents`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.errors import MalformedError, UnavailableError
from raceway.journal.contract import Journal
from raceway.model.addresses import network_of
from raceway.net.codec.cloudevents import BATCH
from raceway.web.answers import address_of, committed, principal_of
from raceway.web.event_streams import EventResponse, EventStreams
from raceway.web.inputs import CLAMPED
from raceway.web.routing import CONSUME, EVENTS, Answered, Routes, get
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

NOT_KEPT = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


FROM = Meta(description="`first`, `end`, or an offset.", extra_json_schema={"default": FIRST})
AS = Meta(
    description="Format of messages; `Accept` is used if absent.",
    extra_json_schema={"enum": ["rows", "cloudevents"], "default": "rows"},
)


class ReadQuery(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from", "form": "as"}):
    start: Annotated[str, FROM] | None = None
    limit: Annotated[int, Meta(description="Maximum number of messages.", ge=1, extra=CLAMPED)] = 100
    form: Annotated[str, AS] | None = None


class TopicMessages(msgspec.Struct, frozen=True, omit_defaults=True, rename={"begin": "from"}):
    """A page of messages. `from`, `next` and `end` (start of this page, start of the next one, end of the topic) are
    offsets, one for each partition, separated by commas. `gaps`: offsets of this page whose rows are lost."""

    topic: str
    begin: str
    next: str
    end: str
    messages: list[dict[str, Any]]
    gaps: list[Gap] = []


class TopicReadRoutes(Routes):
    def __init__(self, broker: Broker, settings: config.HttpDoorSettings, streams: EventStreams) -> None:
        self._broker, self._settings, self._streams = broker, settings, streams

    @get("/topics/{name:path}", CONSUME, "door")
    async def read(self, request: Request, name: str, query: ReadQuery) -> Answered[TopicMessages] | Response:
        """Messages of a topic from an offset on; live with `Accept: text/event-stream`."""
        if request.method == "GET" and EVENTS in request.headers.get("accept", ""):
            return self._live(request, name, query)
        topics = readable(self._broker, principal_of(request), name)
        begin = positions(self._broker, topics, FIRST if query.start is None else query.start)
        form, limit = _form(request, query), min(query.limit, self._settings.page_rows)
        rows, following, gaps = await self._rows(topics, begin, limit)
        messages = [shown(row, form) for row in rows]
        if form == "cloudevents":
            headers = NOT_KEPT | {"content-type": BATCH, "x-next": place_of(following)}
            if gaps:
                headers["x-gaps"] = encode_line(gaps).decode("latin-1")
            return Response(encode_line(messages), headers=headers)
        end = place_of([self._broker.journal.offsets(topic.name)[1] for topic in topics])
        page = TopicMessages(name, place_of(begin), place_of(following), end, messages, gaps)
        return Answered(page, headers=NOT_KEPT)

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

    def _live(self, request: Request, name: str, query: ReadQuery) -> Response:
        """Open an event stream: from `Last-Event-ID`, from the query's `from`, or from now on."""
        principal = principal_of(request)
        topics = readable(self._broker, principal, name, maker=network_of(address_of(request)))
        wanted = request.headers.get("last-event-id") or (END if query.start is None else query.start)
        stream = self._streams.open(topics, positions(self._broker, topics, wanted), _form(request, query))

        def may_go_on() -> None:
            self._broker.security.check(principal, "Consume", topics[0].name)

        return EventResponse(self._streams, stream, may_go_on)


def _form(request: Request, query: ReadQuery) -> Form:
    if query.form not in (None, "", "rows", "cloudevents"):
        raise MalformedError("`as` must be rows or cloudevents")
    if query.form == "cloudevents" or (not query.form and BATCH in request.headers.get("accept", "")):
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
