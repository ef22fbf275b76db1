"""Messages over HTTP: `POST /topics/{name}` publishes, `POST /requests/{name}` sends a request.

A body is a payload; a CloudEvent in binary mode has its attributes in headers, one in structured mode is JSON, and a
batch of them is a JSON array. Documents of messages (`net.codec.message_documents`) are several too. What is several is
stored completely or not at all. A publish is answered after the commit. A request gets
the service's own answer; if the service failed the status is 502, with its message in the error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from raceway import config
from raceway.broker.door import Door
from raceway.errors import BusyError, NameInvalidError, NoRouteError, RacewayError, RemoteError, TooLargeError
from raceway.model.document import DocumentError, read_value
from raceway.model.envelope import PUBLISH, REQUEST, Batch
from raceway.model.failure import maybe_failure
from raceway.model.intents.batches import BatchOutcome, Publish, Taken
from raceway.model.intents.batches import Request as Ask
from raceway.model.topics import namespace_of, parse_namespaced_topic
from raceway.net.codec import cloudevents, message_documents
from raceway.net.codec.http_message import HttpMessage, read_plain
from raceway.net.ids import random_id
from raceway.web.answers import MediaTypeError, TooSlowError, refusal, refusal_of
from raceway.web.peer import HttpPeer, tell
from raceway.web.routing import BYTES, PRODUCE, Answered, ResponseForm, Site, SiteRoutes, answer, post

# An answer opened in a browser is untrusted: it gets an opaque origin and no scripts.
STRANGERS = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
SHOWN_ERROR_BYTES = 4096


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Position of a published message, or of those of a batch. `repeated`: its x-dedup-id is a repeat, and it was not
    stored again."""

    topic: str | None = None
    offset: int | UnsetType | None = UNSET
    message_id: str | None = None
    correlation_id: str | None = None
    messages: list[Stored] | None = None
    routed: bool | None = None
    repeated: bool | None = None


def _refused(error: RacewayError | ClientDisconnect) -> Response:
    """Build the response to a refused request, and close the connection rather than read the rest of its body."""
    if isinstance(error, ClientDisconnect):
        return refusal(400, "malformed", "the body ended early")
    response = refusal_of(error)
    if response.status_code in (408, 413, 503):
        response.headers["connection"] = "close"
    return response


class Bodies:
    """Request bodies of messages: limited individually, in total, and in time.

    A client may send a body of any length, at any rate, on any number of connections. A body that is too large is
    refused before it is read if its length is known; one that is too slow is refused; and the total of all bodies is
    limited.
    """

    def __init__(self, settings: config.Listen) -> None:
        self._limit, self._all = settings.http.body_limit, settings.http.pending_bytes
        self._start_s, self._rate = settings.head_s, settings.body_rate
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body, counted until the block is left. Raises TooLargeError, TooSlowError, BusyError."""
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self._limit:
            raise TooLargeError("a message", int(announced), self._limit)
        body = bytearray()
        try:
            await self._fill(request, body)
            yield bytes(body)
        finally:
            self._held -= len(body)

    async def _fill(self, request: Request, body: bytearray) -> None:
        chunks, began = aiter(request.stream()), time.monotonic()
        while True:
            left_s = self._start_s + len(body) / self._rate - (time.monotonic() - began)
            try:
                chunk = await asyncio.wait_for(anext(chunks), max(left_s, 0))
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise TooSlowError("the body was not received in time") from error
            body += chunk
            self._held += len(chunk)
            if len(body) > self._limit:
                raise TooLargeError("a message", len(body), self._limit)
            if self._held > self._all:
                raise BusyError("too many request bodies are being received (listen.http.pending_bytes)")


class PublishRoutes(SiteRoutes):
    form: ClassVar[ResponseForm] = ResponseForm(answer, _refused, (RacewayError, ClientDisconnect))

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._bodies = Bodies(site.listen)

    @post("/topics/{name:path}", PRODUCE, "door", takes=BYTES, statuses=(200, 201))
    async def publish(self, request: Request, name: str) -> Answered[Stored]:
        """Publish a message, a batch of events or a list of messages; answered after the commit."""
        async with self._bodies.read(request) as body:
            if cloudevents.mode_of(request.headers) == "batch":
                return await self._publish_all(request, name, cloudevents.read_batch(_headers(request), body))
            if message_documents.is_documents(request.headers.get("content-type", "")):
                return await self._publish_all(request, name, message_documents.read_documents(body))
            message = _message(request, body)
            batch = message.batch(_plain_name(name), PUBLISH)
            routed = await publish(self._door, HttpPeer(self._door, request, message.producer), Publish(batch))
        if batch.offset is None:
            return Answered(Stored(topic=batch.item("topic", 0).decode(), repeated=True))
        return Answered(_stored(batch, 0, routed), 201)

    async def _publish_all(self, request: Request, name: str, messages: list[HttpMessage]) -> Answered[Stored]:
        """Publish a batch completely or not at all."""
        if not messages:
            return Answered(Stored(messages=[]))
        topic = _plain_name(name)
        batch = Batch.joined([message.batch(topic, PUBLISH) for message in messages])
        peer = HttpPeer(self._door, request, messages[0].producer)
        named = [message.producer and message.producer.encode("utf-8", "replace") for message in messages]
        batch.producer = [name or peer.producer for name in named]
        routed = await publish(self._door, peer, Publish(batch, whole=True))
        return Answered(Stored(messages=[_stored(batch, row) for row in range(batch.count)], routed=routed), 201)

    @post("/requests/{name:path}", PRODUCE, "door", takes=BYTES, media_type="*/*")
    async def ask(self, request: Request, name: str) -> Response:
        """Send a request and get the service's answer."""
        async with self._bodies.read(request) as body:
            message = _message(request, body)
            if message.message_id is None:
                message.message_id = random_id().decode()
            if message.timeout_ms is not None:
                message.timeout_ms = min(message.timeout_ms, self._door.runtime.settings.request_timeout_max_ms)
            batch = message.batch(_plain_name(name), REQUEST)
            peer = HttpPeer(self._door, request, message.producer)
            self._door.perform(peer, Ask(batch), partial(_asked, peer))
            try:
                return _answer(await peer.answered, message)
            finally:
                peer.open = False


async def publish(door: Door, peer: HttpPeer, intent: Publish) -> bool:
    """Publish, wait for the commit and for full subscribers to drain, and return whether there were subscribers.

    A client that sends one request after the other is slowed down to their speed, like any publisher. Raises the error
    for which messages were refused, or that of the commit.
    """
    loop, credits = asyncio.get_running_loop(), door.runtime.credits
    taken: asyncio.Future[BatchOutcome | RacewayError] = loop.create_future()
    stored: asyncio.Future[RacewayError | None] = loop.create_future()
    try:
        credits.begin()
        door.perform(peer, intent, partial(tell, taken), partial(tell, stored))
        credits.settle(peer)
        routed = _is_routed(await taken)
        if (error := await stored) is not None:
            raise error
        await peer.has_room(door.runtime.settings.hold_ms / 1000)
    finally:
        credits.leave(peer)
    return routed


def _asked(peer: HttpPeer, outcome: BatchOutcome | RacewayError) -> None:
    """Fail a request that was not forwarded."""
    if isinstance(outcome, RacewayError):
        peer.fail(None, outcome)
    elif isinstance(outcome, Taken) and outcome.refused:
        peer.fail(None, outcome.refused[0][2])


def _plain_name(name: str) -> str:
    """Return the name that all wires share: Danube's `/default/x` is `x`. Raises NameInvalidError."""
    if "/" not in name:
        return name
    plain = parse_namespaced_topic("/" + name.removeprefix("/"))
    if plain.startswith("/"):
        reason = (
            f"only Danube, or an alias (broker.subscriptions.aliases), reaches the namespace {namespace_of(plain)!r}"
        )
        raise NameInvalidError(name, reason)
    return plain


def _message(request: Request, body: bytes) -> HttpMessage:
    """Decode the message of a request. Raises MalformedError, MediaTypeError."""
    headers = _headers(request)
    match cloudevents.mode_of(request.headers):
        case "binary":
            return cloudevents.read_binary(headers, body)
        case "structured":
            return cloudevents.read_structured(headers, body)
        case None:
            return read_plain(headers, body)
        case "batch":
            raise MediaTypeError("a request is a single message; batches of events can only be published, at /topics/")
    raise MediaTypeError(
        f"events must be {cloudevents.STRUCTURED}, {cloudevents.BATCH}, or have their attributes in ce- headers"
    )


def _headers(request: Request) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), _text(value)) for name, value in request.headers.raw]


def _text(value: bytes) -> str:
    """Decode a header value: UTF-8 if it is valid, otherwise Latin-1 (RFC 9110, 5.5)."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _is_routed(outcome: BatchOutcome | RacewayError) -> bool:
    """Return whether there were subscribers; a message without any is stored too. Raises other refusals."""
    if isinstance(outcome, RacewayError):
        raise outcome
    assert isinstance(outcome, Taken)
    errors = [error for _, _, error in outcome.refused]
    for error in errors:
        if not isinstance(error, NoRouteError):
            raise error
    return not errors


def _stored(batch: Batch, row: int, routed: bool | None = None) -> Stored:
    message_id = batch.item("message_id", row)
    if message_id is None or batch.item("offset", row) is None:
        return Stored(topic=batch.item("topic", row).decode(), repeated=True)
    root = batch.item("correlation_id", row) or message_id
    return Stored(
        topic=batch.item("topic", row).decode(), offset=batch.item("offset", row), routed=routed,
        message_id=message_id.decode("utf-8", "replace"), correlation_id=root.decode("utf-8", "replace"),
    )  # fmt: skip


def _answer(found: dict[str, Any], message: HttpMessage) -> Response:
    payload: bytes = found["payload"] or b""
    if found["error"] is not None:
        code = found["error"].decode("utf-8", "replace")
        failure = maybe_failure(payload[:SHOWN_ERROR_BYTES])
        if failure is not None and failure.message:
            raise RemoteError(code, failure.message, failure.details)
        raise RemoteError(code, payload[:SHOWN_ERROR_BYTES].decode("utf-8", "replace") or code)
    encoding = (found["encoding"] or b"").decode("latin-1")
    media_type = encoding if "/" in encoding and _fits_header(encoding) else _likely_type(payload)
    headers = STRANGERS | {"content-type": media_type}
    root = message.correlation_id or message.message_id or ""
    return Response(payload, headers=headers | ({"x-correlation-id": root} if _fits_header(root) else {}))


def _likely_type(payload: bytes) -> str:
    """Guess the media type of an answer whose service does not name it."""
    try:
        read_value(payload)
    except DocumentError:
        return "application/octet-stream"
    return "application/json"


def _fits_header(text: str) -> bool:
    return text.isascii() and text.isprintable()
