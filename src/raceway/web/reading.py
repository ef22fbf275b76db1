"""`GET /topics/{name}`: committed rows of a topic by offset, a page at a time, or live as server-sent events.

A page contains the position of the next one (`next`) and lost offsets (`gaps`). Rows have the format of
`raceway journal read`, or are CloudEvents (`Accept: application/cloudevents-batch+json`, or `as=cloudevents`).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from raceway.errors import MalformedError
from raceway.model.intents.reading import END, FIRST, Gap, LocateTopic, ReadTopic
from raceway.net.codec.cloudevents import BATCH
from raceway.web.answers import principal_of
from raceway.web.event_streams import EventResponse, Form, encode_line, place_of, shown
from raceway.web.inputs import CLAMPED
from raceway.web.routing import CONSUME, EVENTS, Answered, SiteRoutes, get

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


class TopicReadRoutes(SiteRoutes):
    @get("/topics/{name:path}", CONSUME, "door")
    async def read(self, request: Request, name: str, query: ReadQuery) -> Answered[TopicMessages] | Response:
        """Messages of a topic from an offset on; live with `Accept: text/event-stream`."""
        if request.method == "GET" and EVENTS in request.headers.get("accept", ""):
            return await self._live(request, name, query)
        start, settings = FIRST if query.start is None else query.start, self._site.listen.http
        wanted = ReadTopic(name, start, min(query.limit, settings.page_rows), settings.page_bytes)
        found = await self._ask(request, wanted)
        form = _form(request, query)
        messages = [shown(row, form) for row in found.rows]
        following = place_of(found.following)
        if form == "cloudevents":
            headers = NOT_KEPT | {"content-type": BATCH, "x-next": following}
            if found.gaps:
                headers["x-gaps"] = encode_line(found.gaps).decode("latin-1")
            return Response(encode_line(messages), headers=headers)
        page = TopicMessages(name, place_of(found.begin), following, place_of(found.end), messages, found.gaps)
        return Answered(page, headers=NOT_KEPT)

    async def _live(self, request: Request, name: str, query: ReadQuery) -> Response:
        """Open an event stream: from `Last-Event-ID`, from the query's `from`, or from now on."""
        wanted = request.headers.get("last-event-id") or (END if query.start is None else query.start)
        found = await self._ask(request, LocateTopic(name, wanted, creates=True))
        stream = self._site.streams.open(found.topics, found.begin, _form(request, query))
        may_go_on = partial(self._view.permissions.check, principal_of(request), "Consume", found.topics[0])
        return EventResponse(self._site.streams, stream, may_go_on)


def _form(request: Request, query: ReadQuery) -> Form:
    if query.form not in (None, "", "rows", "cloudevents"):
        raise MalformedError("`as` must be rows or cloudevents")
    if query.form == "cloudevents" or (not query.form and BATCH in request.headers.get("accept", "")):
        return "cloudevents"
    return "rows"
