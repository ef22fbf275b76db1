"""A client of the console port, over HTTP: publish and ask under any topic name, with headers.

    async with connect("raceway://127.0.0.1:8600") as bus:
        receipt = await bus.publish("order-events", {"id": 7})      # receipt.offset: its place in the topic
        answer = await bus.request("price.of", b"apple")

A publish has an id of its own, so it is stored once even if it had to be sent again on a new connection. To receive
messages use another wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar, overload
from urllib.parse import quote

import msgspec

from raceway.errors import ConfigError
from raceway.net.client.address import Address
from raceway.net.client.chain import PARENT_ATTRIBUTE, with_parent
from raceway.net.client.client import Client
from raceway.net.client.console import CONSOLE_PORT, ConsoleCalls, refusal_of_reply
from raceway.net.client.http_pool import ClientHttpPool
from raceway.net.client.messages import Payload, Published, Receipt, decode_payload, encode_payload, fresh_ids
from raceway.net.client.options import Options
from raceway.net.client.schemas import ClientSchemas
from raceway.net.codec.http_stream import HttpReply

T = TypeVar("T")

# Schemes of its URLs, with their default ports.
SCHEMES = {"raceway": CONSOLE_PORT, "http": CONSOLE_PORT}
# The default deadline of the bus for a request.
DEFAULT_TIMEOUT_MS = 5000


class _Taken(msgspec.Struct):
    """The answer to a publish. A repeat has no offset."""

    topic: str
    offset: int | None = None
    routed: bool | None = None


class HttpClient(Client):
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    _instead: ClassVar = dict.fromkeys(("subscribe", "consume", "serve"), "the URL of a wire")

    def __init__(self, address: Address, options: Options) -> None:
        self.address, self._options = address, options
        self._pool = ClientHttpPool(address, options, options.frame_limit)

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError if the bus is unreachable."""
        await self._pool.open()
        return self

    async def close(self) -> None:
        """Fail calls in flight and disconnect. Idempotent."""
        await self._pool.close()

    @property
    def schemas(self) -> ClientSchemas:
        """The schema registry of the bus, at the port of this client."""
        console = self._options.console or f"http://{self.address.authority}"
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
        (message_id,) = fresh_ids(1)
        own = {"x-dedup-id": message_id.decode(), **({"routing-key": key} if key is not None else {})}
        path = f"/topics/{quote(topic)}"
        reply = await self._call(path, payload, own, headers, self._options.patience_s)
        taken = msgspec.json.decode(reply.body, type=_Taken)
        no_route = None if taken.routed is None else not taken.routed
        return Receipt(topic=taken.topic, no_route=no_route, offset=taken.offset)

    async def publish_many(self, topic: str, payloads: Iterable[Payload], *, key: str | None = None) -> Published:
        """Publish many messages in order, one after the other, and return their number. The first refusal is raised at
        once, and later messages are not sent."""
        receipts = [await self.publish(topic, payload, key=key) for payload in payloads]
        return Published(len(receipts), sum(bool(receipt.no_route) for receipt in receipts))

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
        body = encode_payload(payload)
        fields = {"host": self.address.authority, "content-length": str(len(body)), **own}
        # Without a type the bus would have to guess that it is JSON.
        if not isinstance(payload, bytes | bytearray | memoryview | str | None):
            fields["content-type"] = "application/json"
        if token := self._options.token or self._options.admin_token:
            fields["authorization"] = f"Bearer {token}"
        fields |= {name.lower(): value for name, value in (with_parent(PARENT_ATTRIBUTE, given) or {}).items()}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {_checked(name, value)}" for name, value in fields.items())]
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        reply = await self._pool.call(head + body, path, wait_s)
        if reply.status >= 300:
            raise refusal_of_reply(reply)
        return reply


def _checked(name: str, value: str) -> str:
    """Return the value of a header. Raises ConfigError if it would break the request (RFC 9110, 5.5)."""
    if not name.isascii() or any(char in name for char in " :\r\n\0") or any(char in value for char in "\r\n\0"):
        raise ConfigError("headers", f"{name!r}: {value!r} is not a header that HTTP can carry")
    return value
