"""Messages over the console port: search, show one with its trace, list the latest of a topic.

Messages in a queue are as private as the queue: if the bus has an administrator's token it is required here; otherwise
messages of queues with a token are left out.

A trace is that of a correlation id, or of any message's id. Only messages of topics from which the caller may consume
are shown; how much was searched is shown only with permission to consume from all topics.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from raceway.errors import MalformedError, TrimmedError, UnknownError, UnknownMessageError, UnknownTopicError
from raceway.journal.contract import SearchedRows
from raceway.journal.query.search import LARGEST, Criteria, search
from raceway.journal.query.traces import maybe_trace, search_of
from raceway.model.security import Principal
from raceway.model.traces import Trace
from raceway.web.answers import principal_of
from raceway.web.inputs import CLAMPED
from raceway.web.routing import BYTES, CONSUME, CONSUME_ALL, SiteRoutes, get

# Bytes of a payload in a list, and in a single message; more must be downloaded.
PREVIEW_BYTES, SHOWN_BYTES = 512, 1024 * 1024
# Time limit of one search; the console continues with another one.
LONGEST_S = 1.0


BEFORE = Meta(description="Continue below this position, from `before` of the previous page.", ge=0, le=LARGEST)
SINCE = Meta(description="Only messages at or after this time.", ge=0, extra=CLAMPED)


class SearchQuery(Criteria, frozen=True, kw_only=True):
    """Search criteria and limits."""

    before: Annotated[int, BEFORE] | None = None
    limit: Annotated[int, Meta(description="Maximum number of messages.", ge=1, le=500)] = 50
    budget: Annotated[int, Meta(description="Maximum number of rows to search.", ge=1, le=1_000_000)] = 200_000


class MessageRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of the journal. A long payload is truncated; `payload_bytes` is its full size."""

    sequence: int
    time_us: int
    topic: str
    wire: str
    kind: str
    payload_bytes: int
    offset: int | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    parent_id: str | None = None
    forwarded_id: str | None = None
    answers: int | None = None
    producer: str | None = None
    producer_id: int | None = None
    reply_to: str | None = None
    routing_key: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    sent_ms: int | None = None
    timeout_ms: int | None = None
    version: str | None = None
    encoding: str | None = None
    error: str | None = None
    attributes: dict[str, str] = {}
    hops: list[dict[str, Any]] = []
    payload: str | None = None
    payload_base64: str | None = None


class OneMessage(MessageRow, frozen=True, kw_only=True, omit_defaults=True):
    """A message, the subject of its schema, and the positions of the messages before and after it in its topic."""

    subject: str | None = None
    previous: int | None = None
    following: int | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, newest first. `scanned` rows between `oldest` and `newest` were searched; `before` is where to
    continue, null at the end."""

    messages: list[MessageRow]
    scanned: int
    before: int | None
    oldest: int
    newest: int


class LatestQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Maximum number of messages.", ge=1, le=500)] = 20


class Latest(msgspec.Struct, frozen=True):
    """Publishes and requests of one topic, newest first; answers have no offset. `total`: number of stored ones."""

    messages: list[MessageRow]
    total: int


class UnknownTraceError(UnknownError, code="unknown_trace", kind="message"):
    """No message with this id was found in the rows searched."""


class TraceQuery(msgspec.Struct, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(description="The topic of the message; makes the search much faster.")] | None = None
    since_us: Annotated[int, SINCE] | None = None
    until_us: Annotated[int, Meta(description="Only messages before this time.", ge=0, extra=CLAMPED)] | None = None
    rows: Annotated[int, Meta(description="Maximum number of rows to read.", ge=0, extra=CLAMPED)] | None = None


class MessageRoutes(SiteRoutes):
    @get("/api/messages", CONSUME_ALL, "messages")
    async def messages(self, query: SearchQuery) -> Page:
        """Search messages, newest first, within a limit of rows."""
        return await self._site.desk.look(_page, query, self._hidden())

    @get("/api/messages/{position}", CONSUME_ALL, "messages")
    async def message(self, position: str) -> OneMessage:
        """A message by its position."""
        row = await self._read(position)
        previous, following = await self._site.desk.look(_neighbours, row["topic"], row["offset"])
        facts = msgspec.structs.asdict(shown(row, SHOWN_BYTES))
        return OneMessage(**facts, subject=self._maybe_subject(row), previous=previous, following=following)

    def _maybe_subject(self, row: dict[str, Any]) -> str | None:
        schema_id = row.get("schema_id")
        return None if schema_id is None else self._view.schemas.maybe_subject(schema_id)

    @get("/api/messages/{position}/payload", CONSUME_ALL, "messages", media_type=BYTES)
    async def payload(self, position: str) -> Response:
        """The payload of a message, unchanged."""
        row = await self._read(position)
        headers = {"content-disposition": f'attachment; filename="message-{row["sequence"]}.bin"'}
        return Response(row["payload"] or b"", media_type=BYTES, headers=headers)

    @get("/api/topics/{name:path}/messages", CONSUME_ALL, "topics")
    async def latest(self, name: str, query: LatestQuery) -> Latest:
        """The latest publishes and requests of a topic."""
        topic = self._view.topics.maybe(name)
        if topic is None:
            raise UnknownTopicError(name)
        names = [each for each in topic.parts if each not in self._hidden()]
        kept = {name: self._view.topics.offsets(name) for name in names}
        messages = await self._site.desk.look(_latest, kept, query.limit)
        return Latest(messages, sum(end - first for first, end in kept.values()))

    @get("/api/traces/{id:path}", CONSUME, "messages")
    async def trace(self, request: Request, id: str, query: TraceQuery) -> Trace:
        """The trace that a message belongs to, as a tree."""
        limit = self._site.listen.http.trace_rows
        topic = None if query.topic is None else (query.topic, self._view.topics.offsets(query.topic)[1])
        trace, searched = await self._site.desk.look(_search, id, query, min(query.rows or limit, limit), topic)
        principal, permissions = principal_of(request), self._view.permissions
        if trace is not None:
            trace = self._allowed(principal, trace)
        if trace is None:
            sees_all = not permissions.enabled or permissions.allows(principal, "Consume", None)
            raise UnknownTraceError(f"{id} ({searched:,} rows searched)" if sees_all else id)
        return trace

    def _allowed(self, principal: Principal, trace: Trace) -> Trace | None:
        permissions = self._view.permissions
        if not permissions.enabled:
            return trace
        spans = [span for span in trace.spans if permissions.allows(principal, "Consume", span.topic)]
        return msgspec.structs.replace(trace, spans=spans, messages=len(spans)) if spans else None

    def _hidden(self) -> frozenset[str]:
        return frozenset() if self._site.is_asking else self._view.queues.guarded()

    async def _read(self, position: str) -> dict[str, Any]:
        row = await self._site.desk.look(_row, position)
        if row["topic"] in self._hidden():
            raise UnknownMessageError(row["sequence"])
        return row


def shown(row: dict[str, Any], payload_bytes: int) -> MessageRow:
    """Return a row with at most `payload_bytes` of its payload."""
    payload = row.get("payload") or b""
    given = {name: value for name, value in row.items() if name in MessageRow.__struct_fields__ and value is not None}
    given["attributes"] = dict(row.get("attributes") or ())
    given["correlation_id"] = row.get("correlation_id") or row.get("message_id")
    given.pop("payload", None)
    return MessageRow(payload_bytes=len(payload), **given, **_text(payload, payload_bytes))


def _text(payload: bytes, limit: int) -> dict[str, Any]:
    piece = payload[:limit]
    try:
        # Truncation may split a character.
        return {"payload": piece.decode("utf-8", "strict" if len(piece) == len(payload) else "ignore")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(piece).decode()}


# ---- in the other process: payloads are truncated here, before they are transferred ------------------------------


def _page(journal: SearchedRows, asked: SearchQuery, hidden: frozenset[str]) -> Page:
    found = search(
        journal, asked, before=asked.before, limit=asked.limit, max_rows=asked.budget, max_s=LONGEST_S, hidden=hidden
    )
    return Page(
        messages=[shown(row, PREVIEW_BYTES) for row in found.rows],
        scanned=found.scanned, before=found.before, oldest=found.oldest, newest=found.newest,
    )  # fmt: skip


def _latest(journal: SearchedRows, kept: dict[str, tuple[int, int]], limit: int) -> list[MessageRow]:
    """Return the latest messages by the index of each topic, independent of the journal's size."""
    found: list[MessageRow] = []
    for name, (first, end) in kept.items():
        with contextlib.suppress(TrimmedError):  # removed by retention in the meantime
            found += _from_offset(journal, name, max(first, end - limit), end)
    return sorted(found, key=lambda message: message.sequence, reverse=True)[:limit]


def _from_offset(journal: SearchedRows, topic: str, offset: int, end: int) -> Iterator[MessageRow]:
    """Yield messages from an offset on, in several reads if one reaches its limit of bytes."""
    while offset < end:
        rows = [row for batch in journal.read_topic(topic, offset, end - offset) for row in batch.to_pylist()]
        if not rows:
            return
        yield from (shown(row, PREVIEW_BYTES) for row in rows)
        offset = rows[-1]["offset"] + 1


def _row(journal: SearchedRows, text: str) -> dict[str, Any]:
    """Return the row at a position. Raises MalformedError, UnknownMessageError."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise MalformedError(f"{text!r} is not a position")
    position = int(text)
    try:
        for batch in journal.read(position, position + 1):
            for row in batch.to_pylist():
                if row["kind"] != "control":
                    return dict(row)
    except TrimmedError:
        pass
    raise UnknownMessageError(position)


def _neighbours(journal: SearchedRows, topic: str, offset: int | None) -> tuple[int | None, int | None]:
    """Return the positions of the messages before and after an offset; answers have no offset and no neighbours."""
    if offset is None:
        return None, None
    return _maybe_at(journal, topic, offset - 1), _maybe_at(journal, topic, offset + 1)


def _maybe_at(journal: SearchedRows, topic: str, offset: int) -> int | None:
    if offset >= 0:
        with contextlib.suppress(TrimmedError):
            for batch in journal.read_topic(topic, offset, 1, columns=("sequence", "offset")):
                for row in batch.to_pylist():
                    return int(row["sequence"])
    return None


def _search(
    journal: SearchedRows, wanted: str, query: TraceQuery, rows: int, topic: tuple[str, int] | None
) -> tuple[Trace | None, int]:
    """Return the trace, if found, and how many rows were searched."""
    search = search_of(journal, rows)
    found = maybe_trace(search, wanted, since_us=query.since_us, until_us=query.until_us, topic=topic)
    return found, search.searched
