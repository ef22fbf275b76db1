"""A client of the Seneca wire: messages are routed by their content.

    async with connect("seneca://127.0.0.1:10101") as bus:
        answer = await bus.act("role:math,cmd:sum", {"a": 1, "b": 2})       # {"sum": 3}
        await bus.send("evt:saved", {"id": 9})                              # no answer is expected

`act` returns the result of the action: an object, a list or None. An action that failed raises a RemoteError whose
`reported` is the code (`act_not_found`: no action matches) and whose `details` are those of the action.

By default the client speaks the documents of Seneca's protocol specification, which carry the whole history of a
message. npm listeners speak other dialects: `connect(url, dialect="any")` calls those directly, over HTTP;
`dialect="T"` over `seneca+tcp://`. `timeout_ms` is how long the client waits for an answer. Only `dialect="W"`
transmits it; in other dialects the bus keeps waiting for the service until its own timeout.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar, overload

import msgspec

from raceway.errors import NameInvalidError, RemoteError, RequestTimeoutError
from raceway.model.document import Members, raw_members
from raceway.net.client.address import Address
from raceway.net.client.client import Client
from raceway.net.client.messages import Payload, Published, Receipt, decode_payload, encode_payload, parts
from raceway.net.client.options import Options
from raceway.wires.seneca.client.actions import Performer, Runner, SenecaService
from raceway.wires.seneca.client.attach import Attached
from raceway.wires.seneca.client.flow import begin_request, decoded, end_request
from raceway.wires.seneca.client.host import SenecaHost
from raceway.wires.seneca.client.returns import ReturnListener
from raceway.wires.seneca.client.ways import find_way
from raceway.wires.seneca.codec.answer import Stamp
from raceway.wires.seneca.codec.outgoing import ListenerReply, Outgoing, filled_hops
from raceway.wires.seneca.codec.pattern_text import parse_pattern, pattern_of
from raceway.wires.seneca.codec.patterns import canonical_text
from raceway.wires.seneca.codec.trk import Hops
from raceway.wires.seneca.ids import instance_id

T = TypeVar("T")

# Seneca's default timeout of a call.
DEFAULT_TIMEOUT_MS = 22_222
# Publishes of `publish_many` in flight at once.
AT_ONCE = 64


class Answer(msgspec.Struct, frozen=True):
    """An answer: the result, the custom data as the action left it, id of the responder, and history (`trk`)."""

    result: Any
    custom: dict[str, Any]
    rid: str | None
    trk: Hops


class SenecaClient(Client):
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    _instead: ClassVar = dict.fromkeys(("subscribe", "consume", "serve"), "host(service)")

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        self._way = find_way(address, options)
        self._hosts: list[SenecaHost] = []
        self._returns = ReturnListener(options.returns) if options.returns else None
        # Instance id sent with every message.
        self.sid = options.name or instance_id(socket.gethostname(), "-")

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError if the bus is unreachable, ConfigError if `Options.returns` cannot be
        bound."""
        await self._way.open()
        if self._returns is not None:
            await self._returns.open()
        return self

    async def close(self) -> None:
        """End hosted services, fail calls in flight, and disconnect. Idempotent."""
        hosts, self._hosts = self._hosts, []
        await asyncio.gather(*(host.close() for host in hosts))
        if self._returns is not None:
            await self._returns.close()
        await self._way.close()

    # ---- acting -----------------------------------------------------------------------------------------------------

    async def act(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Call the action that matches and return its result.

        `message`: a pattern such as `role:math,cmd:sum`, or an object. `data`: further members of the message.
        `custom`: custom data that travels along. `timeout_ms` defaults to 22222.

        Raises RemoteError, RequestTimeoutError, ConnectionLostError, NameInvalidError for a pattern without keys.
        """
        return (await self.ask(message, data, custom=custom, timeout_ms=timeout_ms)).result

    async def ask(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        """Call like `act`, and return the whole Answer instead of its result."""
        reply, trk = await self._exchange(message, data, custom, timeout_ms, multiple=False)
        return _answer_of(reply, trk, custom)

    async def ask_all(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> list[Answer]:
        """Call all services whose pattern matches and return their answers in order of arrival.

        Failed ones are left out; if all failed, the first error is raised. Arguments and errors as of `act`.
        """
        reply, trk = await self._exchange(message, data, custom, timeout_ms, multiple=True)
        replies = reply.several or (reply,)
        good = [found for found in replies if found.failure is None]
        return [_answer_of(found, found.hops or trk, custom) for found in good or replies[:1]]

    async def send(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a message to all services whose pattern matches, without expecting a result.

        Over HTTP, returns when the bus has stored the message; over TCP there is no confirmation. Raises RemoteError,
        ConnectionLostError, and over HTTP RequestTimeoutError.
        """
        members, pattern = _members(message, data)
        outgoing, _ = begin_request(self.sid, members, dict(custom or {}), sync=False, pattern=pattern)
        reply = await self._way.send(outgoing, self._options.patience_s)
        if reply.failure is not None:
            raise _error_of(reply)

    async def _exchange(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None,
        custom: Mapping[str, Any] | None,
        timeout_ms: int | None,
        multiple: bool,
    ) -> tuple[ListenerReply, Hops]:
        members, pattern = _members(message, data)
        limit_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        outgoing, number = begin_request(
            self.sid, members, dict(custom or {}), pattern=pattern, multiple=multiple, timeout_ms=limit_ms
        )
        reply = await self._reply(outgoing, limit_ms / 1000)
        return reply, end_request(outgoing, number, _trk_of(outgoing, reply))

    async def _reply(self, outgoing: Outgoing, timeout_s: float) -> ListenerReply:
        """Wait for the answer on the connection or, if the bus has accepted the call for later, on the return path."""
        if self._returns is None or outgoing.multiple:
            reply = await self._way.call(outgoing, timeout_s)
            if reply.accepted:
                raise RemoteError(
                    "no_result", "the bus accepted the message, but will not send its result to this client"
                )
            return reply
        outgoing.urn = self._returns.url
        returned = self._returns.expect(outgoing.id)
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._way.call(outgoing, timeout_s)
                return await returned if reply.accepted else reply
        except TimeoutError:
            raise RequestTimeoutError(outgoing.pattern or "", "") from None
        finally:
            self._returns.forget(outgoing.id)

    # ---- the verbs of other wires -----------------------------------------------------------------------------------

    async def publish(self, pattern: str, payload: Payload = b"", *, confirm: bool = True) -> Receipt:
        """Send a message like `send`: `payload` is a JSON object to which the keys of the pattern are added.

        Any other payload becomes the member `data`. `confirm` has no effect: HTTP always confirms, TCP cannot. Raises
        as `send`.
        """
        await self.send(pattern, _document(payload))
        return Receipt(topic=pattern, stored=self._way.confirms)

    async def publish_many(self, pattern: str, payloads: Iterable[Payload], *, confirm: bool = True) -> Published:
        """Publish many messages and return their number. Up to 64 are in flight, so their order may change.

        The first refusal is raised when all are answered.
        """
        count = 0
        refusals: list[BaseException] = []
        for part in parts(payloads, AT_ONCE):
            sent = await asyncio.gather(*(self.publish(pattern, each) for each in part), return_exceptions=True)
            refusals += [result for result in sent if isinstance(result, BaseException)]
            count += len(part)
        if refusals:
            raise refusals[0]
        return Published(count)

    @overload
    async def request(self, pattern: str, payload: Payload = b"", *, timeout_ms: int | None = None) -> bytes: ...
    @overload
    async def request(
        self, pattern: str, payload: Payload = b"", *, reply: type[T], timeout_ms: int | None = None
    ) -> T: ...
    async def request(
        self, pattern: str, payload: Payload = b"", *, reply: type[Any] = bytes, timeout_ms: int | None = None
    ) -> Any:
        """Call like `act`, with payloads: returns the result as JSON text, empty for None, or as a value of type
        `reply`."""
        result = await self.act(pattern, _document(payload), timeout_ms=timeout_ms)
        return decode_payload(b"" if result is None else msgspec.json.encode(result), reply)

    async def heartbeat(self) -> None:
        """Return if the bus answers. Raises RequestTimeoutError, ConnectionLostError."""
        await self._way.check()

    # ---- services ---------------------------------------------------------------------------------------------------

    async def host(
        self,
        service: SenecaService,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tcp_port: int | None = None,
        attach: bool = True,
        run: Runner | None = None,
    ) -> SenecaHost:
        """Listen for messages to a service and attach its patterns to the bus, until the host is closed.

        The bus connects back to `host` and `port` (0: a free one), so both sides must be able to reach each other.
        `tcp_port` opens a second socket for TCP lines. `attach=False` only listens. `run` wraps each handler, for
        instance to call it in a thread.

        Raises RemoteError if the bus refuses a pattern, ConfigError if a port cannot be bound, ConnectionLostError.
        """
        attached = Attached(self.address, self._options, service.pins, service.names)
        listening = SenecaHost(Performer(service, self.sid, run or self.wrap_handler), attached.end if attach else None)
        await listening.listen(host, port, tcp_port)
        if attach:
            try:
                await attached.begin(listening.url)
            except BaseException:
                await listening.close()
                raise
        self._hosts.append(listening)
        return listening


def _members(message: str | Mapping[str, Any], data: Mapping[str, Any] | None) -> tuple[Members, str | None]:
    """The members of the message, without those ending in `$` (they are Seneca's own), and its pattern, if given."""
    if isinstance(message, str):
        found = parse_pattern(message)
        if not found:
            raise NameInvalidError(message, "a pattern has at least one key, as in role:math,cmd:sum")
        pattern = canonical_text(pattern_of(found))
    else:
        found, pattern = dict(message), None
    whole = {**(data or {}), **found}
    return raw_members({key: value for key, value in whole.items() if not key.endswith("$")}), pattern


def _document(payload: Payload) -> dict[str, Any]:
    if isinstance(payload, Mapping):
        return dict(payload)
    content = encode_payload(payload)
    if not content:
        return {}
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = content.decode("utf-8", "replace")
    return value if isinstance(value, dict) else {"data": value}


def _trk_of(outgoing: Outgoing, reply: ListenerReply) -> Hops | None:
    """The history of an answer. For dialects without `trk`, made from the responder's id and times, if given."""
    if reply.rid is None or reply.received_ms is None or reply.answered_ms is None:
        return reply.hops
    stamp = Stamp(reply.rid, reply.received_ms, reply.answered_ms)
    return filled_hops(outgoing.hops, outgoing.sid, outgoing.mid, reply, stamp)


def _answer_of(reply: ListenerReply, trk: Hops, custom: Mapping[str, Any] | None) -> Answer:
    if reply.failure is not None:
        raise _error_of(reply)
    returned = dict(custom or {}) | decoded(reply.custom or {})
    return Answer(msgspec.json.decode(reply.payload or b"null"), returned, reply.rid, trk)


def _error_of(reply: ListenerReply) -> RemoteError:
    failure = reply.failure
    assert failure is not None
    details = None if failure.details is None else msgspec.json.decode(failure.details)
    return RemoteError(failure.code, failure.message, details)
