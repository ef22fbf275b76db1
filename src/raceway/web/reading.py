"""`GET /topics/{name}`: committed rows of a topic by offset, a page at a time, or live as server-sent events.

`GET /topics?pattern=…`: committed rows of all topics that match, live.

A page contains the position of the next one (`next`) and lost offsets (`gaps`). Rows have the format of
`raceway journal read`, or are CloudEvents (`Accept: application/cloudevents-batch+json`, or `as=cloudevents`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from raceway.errors import ForbiddenError, MalformedError, UnknownTopicError
from raceway.model.intents.reading import END, FIRST, Gap, Located, LocateTopic, ReadTopic
from raceway.model.subscriptions import parse_start
from raceway.model.topics import has_wildcard, matches
from raceway.net.codec.cloudevents import BATCH
from raceway.web.answers import principal_of
from raceway.web.event_streams import LOOK_S, EventResponse, StreamForm, encode_line, place_of, shown
from raceway.web.inputs import CLAMPED
from raceway.web.peer import ask
from raceway.web.routing import CONSUME, EVENTS, Answered, Site, SiteRoutes, get

NOT_KEPT = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


# Patterns of one stream.
MOST_PATTERNS = 100

FROM = Meta(
    description="`first`, `end`, an offset, or a time such as 2026-01-31T12:00:00Z.",
    extra_json_schema={"default": FIRST},
)
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


class FollowQuery(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from", "form": "as"}):
    pattern: Annotated[str, Meta(description="Topics, or patterns such as `flight.+.gate` and `baggage.#`; commas.")]
    start: Annotated[str, Meta(description="`first`, `end`, a time; for a single topic also an offset.")] = END
    form: Annotated[str, AS] | None = None


class MatchingTopics:
    """The topics that match patterns, for one caller: those that it may read. `find` returns the new ones.

    Queues with a token are left out unless private routes are protected anyway.
    """

    def __init__(self, site: Site, request: Request, patterns: Sequence[str], start: str) -> None:
        self._site, self._request = site, request
        self._patterns = [pattern for pattern in patterns if has_wildcard(pattern)]
        self._exact = [pattern for pattern in patterns if not has_wildcard(pattern)]
        self._start = start
        self._seen: set[str] = set()
        self._allowed: set[str] = set()
        self._count = 0
        self._looked_s = self._checked_s = 0.0

    async def first(self) -> list[tuple[str, int]]:
        """Find the topics to begin with; those named exactly are created. Raises as `LocateTopic`."""
        found: dict[str, int] = {}
        for name in self._exact:
            located = await self._ask(LocateTopic(name, self._start, creates=True))
            found |= zip(located.topics, located.begin, strict=True)
        found = dict(await self._matching(self._start)) | found
        self._allowed |= found.keys()
        return list(found.items())

    async def find(self) -> list[tuple[str, int]]:
        """Find topics that have appeared since the last call, from their first message on."""
        count, now_s = len(self._site.door.view.topics), time.monotonic()
        if not self._patterns or (count == self._count and now_s - self._looked_s < LOOK_S):
            return []
        self._count, self._looked_s = count, now_s
        found = await self._matching(FIRST)
        self._allowed |= {name for name, _ in found}
        return found

    def check(self) -> None:
        """Check from time to time that the caller may still read all topics. Raises ForbiddenError."""
        now_s, permissions = time.monotonic(), self._site.door.view.permissions
        if permissions.enabled and now_s - self._checked_s >= LOOK_S:
            self._checked_s, principal = now_s, principal_of(self._request)
            for name in self._allowed:
                permissions.check(principal, "Consume", name)

    async def _matching(self, start: str) -> list[tuple[str, int]]:
        view = self._site.door.view
        found: list[tuple[str, int]] = []
        new = [name for name in view.topics if name not in self._seen]
        if not new:
            return []
        self._seen.update(new)
        hidden = frozenset() if self._site.is_asking else view.queues.guarded()
        for name in new:
            topic = view.topics.maybe(name)
            if topic is None or not topic.public or name in hidden:
                continue
            if not any(matches(each, topic.public) for each in self._patterns):
                continue
            with contextlib.suppress(ForbiddenError, UnknownTopicError):
                located = await self._ask(LocateTopic(name, start))
                found += zip(located.topics, located.begin, strict=True)
        return found

    async def _ask(self, intent: LocateTopic) -> Located:
        return await ask(self._site.door, self._request, intent)


class TopicReadRoutes(SiteRoutes):
    @get("/topics", CONSUME, "door", media_type=EVENTS)
    async def follow(self, request: Request, query: FollowQuery) -> Response:
        """Messages of all topics that match patterns, live, as server-sent events; also of topics that appear later."""
        patterns = [part for part in query.pattern.split(",") if part]
        if not patterns or len(patterns) > MOST_PATTERNS:
            raise MalformedError(f"`pattern` must name 1 to {MOST_PATTERNS} topics or patterns, separated by commas")
        if len(patterns) > 1 or has_wildcard(patterns[0]):
            _check_start(query.start)
        topics = MatchingTopics(self._site, request, patterns, query.start)
        found = await topics.first()
        names, begin = [name for name, _ in found], [offset for _, offset in found]
        stream = self._site.streams.open(names, begin, _form(request, query), topics.find)
        return EventResponse(self._site.streams, stream, topics.check)

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


def _check_start(text: str) -> None:
    """Raises MalformedError for an offset, which means something in a single topic only; InvalidValueError."""
    if parse_start(text).at == "offset":
        raise MalformedError("an offset is possible for a single topic only: begin at `first`, `end` or a time")


def _form(request: Request, query: ReadQuery | FollowQuery) -> StreamForm:
    if query.form not in (None, "", "rows", "cloudevents"):
        raise MalformedError("`as` must be rows or cloudevents")
    if query.form == "cloudevents" or (not query.form and BATCH in request.headers.get("accept", "")):
        return "cloudevents"
    return "rows"
