"""Messages over HTTP: `POST /topics/{name}` publishes, `POST /requests/{name}` sends a request.

A body is a payload; a CloudEvent in binary mode has its attributes in headers, one in structured mode is JSON, and a
batch of them is a JSON array, stored completely or not at all. A publish is answered after the commit. A request gets
the service's own answer; if the service failed the status is 502, with its message in the error.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.peers import Peer, Pending
from raceway.errors import NoRouteError, RacewayError, RemoteError
from raceway.journal.contract import Done
from raceway.model.addresses import network_of
from raceway.model.document import DocumentError, read_value
from raceway.model.envelope import HTTP, PUBLISH, REQUEST, Batch
from raceway.model.intents import Outcome, Publish, Taken
from raceway.model.intents import Request as Ask
from raceway.net.codec import cloudevents
from raceway.net.codec.http_message import HttpMessage, read_plain
from raceway.net.ids import random_id
from raceway.web.answers import MediaTypeError, principal_of, refusal, refusal_of, stored
from raceway.web.bodies import Bodies
from raceway.web.routing import BYTES, PRODUCE, Answered, ResponseForm, Routes, answer, post

# An answer opened in a browser is untrusted: it gets an opaque origin and no scripts.
STRANGERS = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
SHOWN_ERROR_BYTES = 4096


class HttpPeer(Peer):
    """The peer of one HTTP request."""

    wire: ClassVar[bytes] = HTTP
    holder: ClassVar[None] = None  # it receives no copies

    def __init__(self, broker: Broker, request: Request, producer: str | None) -> None:
        super().__init__(random_id().decode(), broker.clock_us())
        host = request.client.host if request.client is not None else "http"
        self.network = network_of(host)
        self.producer = (producer or host).encode("utf-8", "replace")
        self.sid = self.producer.decode()
        self.principal = principal_of(request)
        self.answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waits: asyncio.Future[None] | None = None

    def pause(self) -> None:
        """Note that subscribers fed by this request are full."""
        self._waits = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    async def has_room(self, longest_s: float) -> None:
        """Wait until full subscribers have drained, at most `longest_s`."""
        if self._waits is not None:
            await asyncio.wait((self._waits,), timeout=longest_s)

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        if not self.answered.done():
            facts = {name: batch.item(name, row) for name in ("payload", "error", "encoding")}
            self.answered.set_result(facts)

    def fail(self, request: Pending, error: RacewayError) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


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


class PublishRoutes(Routes):
    form: ClassVar[ResponseForm] = ResponseForm(answer, _refused, (RacewayError, ClientDisconnect))

    def __init__(self, broker: Broker, listen: config.Listen) -> None:
        self._broker = broker
        self._bodies = Bodies(listen)

    @post("/topics/{name:path}", PRODUCE, "door", takes=BYTES, statuses=(200, 201))
    async def publish(self, request: Request, name: str) -> Answered[Stored]:
        """Publish a message or a batch of events; answered after the commit."""
        async with self._bodies.read(request) as body:
            if cloudevents.mode_of(request.headers) == "batch":
                return await self._publish_all(request, name, cloudevents.read_batch(_headers(request), body))
            message = _message(request, body)
            batch = message.batch(name, PUBLISH)
            routed = await publish(self._broker, HttpPeer(self._broker, request, message.producer), Publish(batch))
        if batch.offset is None:
            return Answered(Stored(topic=batch.item("topic", 0).decode(), repeated=True))
        return Answered(_stored(batch, 0, routed), 201)

    async def _publish_all(self, request: Request, name: str, messages: list[HttpMessage]) -> Answered[Stored]:
        """Publish a batch completely or not at all."""
        if not messages:
            return Answered(Stored(messages=[]))
        batch = Batch.joined([message.batch(name, PUBLISH) for message in messages])
        batch.producer = [(message.producer or "").encode("utf-8", "replace") for message in messages]
        peer = HttpPeer(self._broker, request, messages[0].producer)
        routed = await publish(self._broker, peer, Publish(batch, whole=True))
        return Answered(Stored(messages=[_stored(batch, row) for row in range(batch.count)], routed=routed), 201)

    @post("/requests/{name:path}", PRODUCE, "door", takes=BYTES, media_type="*/*")
    async def ask(self, request: Request, name: str) -> Response:
        """Send a request and get the service's answer."""
        async with self._bodies.read(request) as body:
            message = _message(request, body)
            if message.message_id is None:
                message.message_id = random_id().decode()
            if message.timeout_ms is not None:
                message.timeout_ms = min(message.timeout_ms, self._broker.settings.request_timeout_max_ms)
            batch = message.batch(name, REQUEST)
            peer = HttpPeer(self._broker, request, message.producer)
            taken = self._broker.perform(peer, Ask(batch))
            if isinstance(taken, Taken) and taken.refused:
                raise taken.refused[0][2]
            try:
                return _answer(await peer.answered, message)
            finally:
                peer.open = False


async def publish(broker: Broker, peer: HttpPeer, intent: Publish) -> bool:
    """Publish, wait for the commit and for full subscribers to drain, and return whether there were subscribers.

    A client that sends one request after the other is slowed down to their speed, like any publisher. Raises the error
    for which messages were refused.
    """
    try:
        routed = await stored(lambda done: _is_routed(_feed(broker, peer, intent, done)))
        await peer.has_room(broker.settings.hold_ms / 1000)
    finally:
        broker.credits.leave(peer)
    return routed


def _feed(broker: Broker, peer: HttpPeer, intent: Publish, done: Done) -> Outcome:
    broker.credits.begin()
    outcome: Outcome = broker.perform(peer, intent, done)
    broker.credits.settle(peer)
    return outcome


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


def _is_routed(outcome: Outcome) -> bool:
    """Return whether there were subscribers; a message without any is stored too. Raises other refusals."""
    assert isinstance(outcome, Taken)
    errors = [error for _, _, error in outcome.refused]
    for error in errors:
        if not isinstance(error, NoRouteError):
            raise error
    return not errors


def _stored(batch: Batch, row: int, routed: bool | None = None) -> Stored:
    message_id = batch.item("message_id", row)
    root = batch.item("correlation_id", row) or message_id
    return Stored(
        topic=batch.item("topic", row).decode(), offset=batch.item("offset", row), routed=routed,
        message_id=message_id.decode("utf-8", "replace"), correlation_id=root.decode("utf-8", "replace"),
    )  # fmt: skip


def _answer(found: dict[str, Any], message: HttpMessage) -> Response:
    payload: bytes = found["payload"] or b""
    if found["error"] is not None:
        code = found["error"].decode("utf-8", "replace")
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
