"""Rejected messages over the console port: list, show one, redrive.

    GET  /api/rejected                      newest first; filters: `source`, `topic`, `since_us`, `until_us`, `after`
                                            (a position), `limit`
    GET  /api/rejected/{position}           one, with its payload
    POST /api/rejected/{position}/redrive   publish it again: `{"topic": …}` names another topic than its own,
                                            `payload` (or `payload_base64`) and `attributes` replace its own

If the bus has an administrator's token and no other security, that token is required.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any, ClassVar, NotRequired, TypedDict, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.broker.undelivered.redrive import KINDS, REDRIVEN_FROM, facts_of
from raceway.errors import MalformedError
from raceway.journal.query.inspect import document
from raceway.journal.query.search import SinceUs, UntilUs, position_bounds
from raceway.model.envelope import Batch, decode_attributes, encode_attributes
from raceway.model.intents.batches import Publish
from raceway.model.intents.reading import ListRejected, NoteRedriven, ReadRejected, RestoreRejected
from raceway.net.codec.http_message import check_attributes
from raceway.web.inputs import CLAMPED, CLAMPED_UNLESS_EMPTY, read_body
from raceway.web.peer import HttpPeer
from raceway.web.publishing import publish
from raceway.web.routing import CONSUME, SiteRoutes, get, post


class RedrivingPeer(HttpPeer):
    """Peer of a redrive. A message that is refused again is not stored as rejected a second time."""

    keeps_refused: ClassVar[bool] = False


SOURCE = Meta(description="Only messages of this kind.", extra_json_schema={"enum": list(KINDS)})
AFTER = Meta(description="Only messages older than this position.", ge=0, extra=CLAMPED_UNLESS_EMPTY)


class RejectedQuery(msgspec.Struct, frozen=True, kw_only=True):
    source: Annotated[str, SOURCE] | None = None
    topic: Annotated[str, Meta(description="Only messages of this topic.")] | None = None
    since_us: SinceUs = 0
    until_us: UntilUs | None = None
    after: Annotated[int, AFTER] | None = None
    limit: Annotated[int, Meta(description="Maximum number of entries.", ge=1, le=500, extra=CLAMPED)] = 50


class RejectedRow(TypedDict):
    """A message that was refused or not delivered; `redriven`: where it was published again, if it was."""

    position: int
    source: str
    time_us: int
    wire: str
    producer: str | None
    message_id: str | None
    correlation_id: str | None
    bytes: int
    topic: NotRequired[str]
    code: NotRequired[str]
    reason: NotRequired[str]
    path: NotRequired[str]
    subject: NotRequired[str]
    version: NotRequired[str]
    receiver: NotRequired[str]
    subscription: NotRequired[str]
    offset: NotRequired[str]
    redriven: dict[str, Any] | None
    message: NotRequired[dict[str, Any]]


class RejectedPage(msgspec.Struct, frozen=True):
    rejected: list[RejectedRow]
    after: int | None


class Edited(msgspec.Struct, frozen=True):
    """Differences from the rejected message: its topic, its payload (as text, or as base64), all its attributes.
    Null: as it was."""

    topic: str | None = None
    payload: str | None = None
    payload_base64: str | None = None
    attributes: dict[str, str] | None = None

    def maybe_payload(self) -> bytes | None:
        """Return the other payload. Raises MalformedError."""
        if self.payload is not None and self.payload_base64 is not None:
            raise MalformedError("payload and payload_base64 are both given: send one of them")
        if self.payload_base64 is None:
            return None if self.payload is None else self.payload.encode()
        try:
            return b64decode(self.payload_base64, validate=True)
        except ValueError as error:
            raise MalformedError(f"payload_base64 is not base64: {error}") from error


class Redriven(msgspec.Struct, frozen=True):
    position: int
    topic: str
    offset: int | None


class RejectedRoutes(SiteRoutes):
    @get("/api/rejected", CONSUME, "messages")
    async def rejected(self, request: Request, query: RejectedQuery) -> RejectedPage:
        """Messages that were refused or not delivered."""
        if query.source is not None and query.source not in KINDS:
            raise MalformedError(f"source must be one of {', '.join(KINDS)}")
        after = query.after
        if query.until_us is not None:
            end = (await self._site.desk.look(position_bounds, None, query.until_us))[1]
            after = end if after is None else min(after, end)
        found = await self._ask(request, ListRejected(query.source, query.topic, after, query.limit))
        rows = [_shown(*row) for row in found.rows if row[0]["time_us"] >= query.since_us]
        return RejectedPage(rows, found.following if len(rows) == len(found.rows) else None)

    @get("/api/rejected/{position:int}", CONSUME, "messages")
    async def message(self, request: Request, position: int) -> RejectedRow:
        """A rejected message, with its payload."""
        row, redriven = await self._ask(request, ReadRejected(position))
        return {**_shown(row, redriven), "message": document(row)}

    @post("/api/rejected/{position:int}/redrive", CONSUME, "messages", body=Edited)
    async def redrive(self, request: Request, position: int) -> Redriven:
        """Publish a rejected message again, to its own topic or another, as it was or edited."""
        edited = await self._edited(request)
        found = await self._ask(request, RestoreRejected(position, edited.topic))
        _edit(found.batch, edited)
        await publish(self._door, RedrivingPeer(self._door, request, found.producer), Publish(found.batch))
        target, offset = found.batch.item("topic", 0).decode(), found.batch.item("offset", 0)
        await self._ask(request, NoteRedriven(position, target, offset))
        return Redriven(position, target, offset)

    async def _edited(self, request: Request) -> Edited:
        """Read what is to be different; without a body nothing. Raises MalformedError, TooLargeError."""
        if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
            return Edited()
        # A payload in JSON is longer than itself; quotes, and bytes as base64.
        return await read_body(request, Edited, 2 * self._site.listen.http.body_limit)


def _edit(batch: Batch, edited: Edited) -> None:
    """Put what differs into a restored message. Raises MalformedError, TooLargeError."""
    payload = edited.maybe_payload()
    if payload is not None:
        batch.payload = [payload]
    if edited.attributes is not None:
        check_attributes(edited.attributes)
        own = decode_attributes(batch.item("attributes", 0))
        marked = {REDRIVEN_FROM: own[REDRIVEN_FROM]}
        batch.attributes = [encode_attributes(edited.attributes | marked)]


def _shown(row: dict[str, Any], redriven: Any) -> RejectedRow:
    return cast(RejectedRow, facts_of(row) | {"redriven": redriven})
