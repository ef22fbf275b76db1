"""A client of the console port, over HTTP: publish, receive and ask under any topic name, with headers.

    async with connect("raceway://127.0.0.1:8600") as bus:
        receipt = await bus.publish("order-events", {"id": 7})      # receipt.offset: its place in the topic
        answer = await bus.request("price.of", b"apple")
        async for message in await bus.subscribe("order-events", start="first"):
            …

A publish has an id of its own, so it is stored once even if it had to be sent again on a new connection. Several at
once have none: their connection is lost rather than that they are sent again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, ClassVar, Self, TypeVar, overload
from urllib.parse import quote, urlencode

import msgspec

from raceway.client.http_stream import HttpSubscription
from raceway.errors import ConfigError, MalformedError, NotConnectedError
from raceway.net.client.address import Address
from raceway.net.client.chain import PARENT_ATTRIBUTE, handling, with_parent
from raceway.net.client.client import Client
from raceway.net.client.console import CONSOLE_PORT, ConsoleCalls, refusal_of_reply
from raceway.net.client.failures import NO_BUS
from raceway.net.client.http_pool import ClientHttpPool
from raceway.net.client.link import tls_context
from raceway.net.client.messages import Payload, Published, Receipt, decode_payload, encode_payload
from raceway.net.client.options import Options
from raceway.net.client.schemas import ClientSchemas
from raceway.net.codec.http_stream import HttpReply
from raceway.net.codec.message_documents import MEDIA_TYPE, payload_fields, write_documents
from raceway.net.ids import random_ids

T = TypeVar("T")

# Schemes of its URLs, with their default ports.
SCHEMES = {"raceway": CONSOLE_PORT, "http": CONSOLE_PORT, "https": 443}
# The default deadline of the bus for a request.
DEFAULT_TIMEOUT_MS = 5000
# Payloads of other types are JSON, and say so: otherwise the bus would have to guess.
PLAIN, JSON = (bytes, bytearray, memoryview, str, NoneType), "application/json"
# Messages and bytes of payload in one request of `publish_many`.
BATCH, BATCH_BYTES = 500, 1024 * 1024


class _Taken(msgspec.Struct):
    """The answer to a publish. A repeat has no offset."""

    topic: str
    offset: int | None = None
    routed: bool | None = None


class _TakenTogether(msgspec.Struct):
    """The answer to a publish of several messages."""

    messages: list[_Taken]
    routed: bool | None = None


class HttpClient(Client):
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    _instead: ClassVar = {"serve": "the URL of a wire"}

    def __init__(self, address: Address, options: Options) -> None:
        self.address, self._options = address, options
        self._context = tls_context(options) if address.scheme == "https" else None
        self._pool = ClientHttpPool(address, options, options.frame_limit, self._context)
        self._subscriptions: weakref.WeakSet[HttpSubscription] = weakref.WeakSet()

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError if the bus is unreachable."""
        await self._pool.open()
        return self

    async def close(self) -> None:
        """Fail calls in flight, end subscriptions and disconnect. Idempotent."""
        for subscription in list(self._subscriptions):
            await subscription.close()
        await self._pool.close()

    @property
    def schemas(self) -> ClientSchemas:
        """The schema registry of the bus, at the port of this client."""
        scheme = "http" if self._context is None else "https"
        console = self._options.console or f"{scheme}://{self.address.authority}"
        return ClientSchemas(ConsoleCalls(self.address, msgspec.structs.replace(self._options, console=console)))

    async def publish(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Publish a message; returns when the bus has stored it, with its offset.

        `key`: the routing key. `headers`: of the request; those that begin with `x-` are delivered as attributes.
        Raises RemoteError, RequestTimeoutError, ConnectionLostError, ConfigError for a header that HTTP cannot carry.
        """
        (message_id,) = random_ids(1)
        own = {"x-dedup-id": message_id.decode(), **({"routing-key": key} if key is not None else {})}
        path = f"/topics/{quote(topic)}"
        reply = await self._call(path, payload, own, headers, self._options.patience_s)
        taken = msgspec.json.decode(reply.body, type=_Taken)
        return _receipt(taken, taken.routed)

    async def publish_many(self, topic: str, payloads: Iterable[Payload], *, key: str | None = None) -> Published:
        """Publish many messages in order, some hundreds with each request, and return their number. The first refusal
        is raised at once, and later messages are not sent."""
        count = no_route = 0
        for batch in in_batches(map(_document, payloads), _length):
            receipts = await self._publish(topic, batch, {"routing_key": key})
            count += len(receipts)
            no_route += sum(bool(receipt.no_route) for receipt in receipts)
        return Published(count, no_route)

    async def publish_batch(
        self,
        topic: str,
        payloads: Sequence[Payload],
        *,
        key: str | None = None,
        version: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[Receipt]:
        """Publish several messages with one request: all are stored, or none. Returns the receipt of each.

        `key`, `version` and `headers` are of every message; unlike those of `publish`, headers may have any name.
        Raises RemoteError, RequestTimeoutError, ConnectionLostError; after the last two they may have been stored.
        """
        common = {"routing_key": key, "version": version, "attributes": headers or None}
        return await self._publish(topic, map(_document, payloads), common)

    async def publish_documents(self, topic: str, documents: Sequence[Mapping[str, Any]]) -> list[Receipt]:
        """Publish messages that differ in more than their payload with one request: all are stored, or none.

        A document has the fields of a message in the HTTP API: `payload` or `payload_base64`, `routing_key`,
        `attributes`, `message_id` and so on. Raises as `publish_batch`.
        """
        return await self._publish(topic, documents, {})

    async def _publish(
        self, topic: str, documents: Iterable[Mapping[str, Any]], common: Mapping[str, Any]
    ) -> list[Receipt]:
        common = {name: value for name, value in {"parent_id": handling.get(), **common}.items() if value is not None}
        body = write_documents({**common, **document} for document in documents)
        path = f"/topics/{quote(topic)}"
        reply = await self._send("POST", path, {"content-type": MEDIA_TYPE}, body, self._options.patience_s, once=True)
        taken = msgspec.json.decode(reply.body, type=_TakenTogether)
        return [_receipt(each, taken.routed) for each in taken.messages]

    async def subscribe(
        self, *topics: str, start: str | int = "last", notify: Callable[[str], None] | None = None
    ) -> HttpSubscription:
        """Receive the messages of all topics that match: names, or patterns such as `orders.#`.

        `start`: `first`, `last` (only those that come from now on), an offset (of a single topic), or a time such as
        2026-01-31T12:00:00Z. The stream outlasts its connection, and misses nothing; what happens to it is logged, or
        told to `notify`. Raises RemoteError, ConnectionLostError.
        """
        begin = "end" if start == "last" else str(start)

        def request(start: str) -> bytes:
            query = urlencode({"pattern": ",".join(topics), "from": start})
            return self._head("GET", f"/topics?{query}", {"accept": "text/event-stream"})

        subscription = HttpSubscription(self.address, self._options, self._context, request, begin, notify)
        self._subscriptions.add(await subscription.open())
        return subscription

    async def consume(
        self, topic: str, *, name: str = "", start: str | int = "last", in_flight: int | None = None
    ) -> HttpSubscription:
        """Subscribe like `subscribe`. Messages over HTTP are not acknowledged: the bus keeps no place for the reader.

        Raises ConfigError if `name` or `in_flight` is given, and otherwise as `subscribe`.
        """
        self._refuse_options(
            "over HTTP nothing is acknowledged: use a wire with durable subscriptions", name=name, in_flight=in_flight
        )
        return await self.subscribe(topic, start=start)

    @overload
    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes: ...
    @overload
    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        reply: type[T],
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T: ...
    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        reply: type[Any] = bytes,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the answer: its payload, or decoded as a value of type `reply`.

        `timeout_ms` defaults to 5000. Raises RemoteError if the service failed or there is none, RequestTimeoutError,
        PayloadTypeError, ConnectionLostError.
        """
        waits_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        own = {"timeout-ms": str(waits_ms)}
        wait_s = waits_ms / 1000 + self._options.patience_s
        answer = await self._call(f"/requests/{quote(topic)}", payload, own, headers, wait_s)
        return decode_payload(answer.body, reply)

    async def _call(
        self, path: str, payload: Payload, own: Mapping[str, str], given: Mapping[str, str] | None, wait_s: float
    ) -> HttpReply:
        fields = dict(own)
        if not isinstance(payload, PLAIN):
            fields["content-type"] = JSON
        fields |= {name.lower(): value for name, value in (with_parent(PARENT_ATTRIBUTE, given) or {}).items()}
        return await self._send("POST", path, fields, encode_payload(payload), wait_s)

    async def _send(
        self, method: str, path: str, fields: Mapping[str, str], body: bytes, wait_s: float, *, once: bool = False
    ) -> HttpReply:
        head = self._head(method, path, {"content-length": str(len(body)), **fields})
        try:
            reply = await self._pool.call(head + body, path, wait_s, once=once)
        except MalformedError as error:
            raise NotConnectedError(str(self.address), f"{NO_BUS} ({error})") from error
        if reply.status >= 300:
            raise refusal_of_reply(reply)
        return reply

    def _head(self, method: str, target: str, fields: Mapping[str, str]) -> bytes:
        """Return the head of a request. Raises ConfigError for a header that HTTP cannot carry."""
        sent = {"host": self.address.authority}
        if token := self._options.token or self._options.admin_token:
            sent["authorization"] = f"Bearer {token}"
        lines = [f"{name}: {_checked(name, value)}" for name, value in {**sent, **fields}.items()]
        return "\r\n".join([f"{method} {target} HTTP/1.1", *lines]).encode() + b"\r\n\r\n"


def _receipt(taken: _Taken, routed: bool | None) -> Receipt:
    return Receipt(topic=taken.topic, no_route=None if routed is None else not routed, offset=taken.offset)


def _document(payload: Payload) -> dict[str, str]:
    fields = payload_fields(encode_payload(payload))
    return fields if isinstance(payload, PLAIN) else {"encoding": JSON, **fields}


def _length(document: Mapping[str, str]) -> int:
    return sum(map(len, document.values()))


def in_batches(items: Iterable[T], length_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Split messages into lists for one request each; one that is larger than its limit has a list of its own."""
    batch: list[T] = []
    size = 0
    for item in items:
        length = length_of(item)
        if batch and (len(batch) >= BATCH or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch


def _checked(name: str, value: str) -> str:
    """Return the value of a header. Raises ConfigError if it would break the request (RFC 9110, 5.5)."""
    if not name.isascii() or any(char in name for char in " :\r\n\0") or any(char in value for char in "\r\n\0"):
        raise ConfigError("headers", f"{name!r}: {value!r} is not a header that HTTP can carry")
    return value
