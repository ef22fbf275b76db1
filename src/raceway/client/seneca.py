"""A client of the Seneca wire: messages addressed by what is in them.

    async with connect("seneca://127.0.0.1:10101") as bus:
        answer = await bus.act("role:math,cmd:sum", {"a": 1, "b": 2})       # {"sum": 3}
        await bus.send("evt:saved", {"id": 9})                              # nobody has to answer

`act` gives what the action returned: an object, a list or None. An action that failed raises a RemoteError whose
`reported` is the code (`act_not_found`: no action matches) and whose `details` are the action's own.

It speaks the documents of Seneca's protocol text, which carry the whole history of a message. Real npm listeners speak
other dialects: `connect(url, dialect="any")` talks to those directly, over HTTP; `dialect="T"` over `seneca+tcp://`.
A call's `timeout_ms` is how long the client waits; only `dialect="W"` has a place to tell the bus, which else waits on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from raceway.client.address import Address
from raceway.client.messages import Payload, encode_payload, parts
from raceway.client.options import Options
from raceway.client.seneca_actions import Performer, Runner, SenecaService
from raceway.client.seneca_attach import Attached
from raceway.client.seneca_flow import Hops, begin_request, decoded, end_request, instance_id
from raceway.client.seneca_host import SenecaHost
from raceway.client.seneca_returns import Returns
from raceway.client.seneca_ways import find_way
from raceway.codec import seneca as codec
from raceway.codec.seneca import Members, Outgoing, Reply, Stamp
from raceway.errors import NameInvalidError, RemoteError, RequestTimeoutError
from raceway.model.patterns import canonical_text

# Seneca's own patience with a call.
DEFAULT_TIMEOUT_MS = 22_222
# Publishes of `publish_many` that may be unanswered.
AT_ONCE = 64


class Answer(msgspec.Struct, frozen=True):
    """What came back: the result, custom data as the action left it, who answered, and the history."""

    result: Any
    custom: dict[str, Any]
    rid: str | None
    trk: Hops


class SenecaClient:
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        self._way = find_way(address, options)
        self._hosts: list[SenecaHost] = []
        self._returns = Returns(options.returns) if options.returns else None
        # Who we are to others.
        self.sid = options.name or instance_id()

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError when no bus is there."""
        await self._way.open()
        if self._returns is not None:
            await self._returns.open()
        return self

    async def close(self) -> None:
        """Services end, open calls fail. May be repeated."""
        hosts, self._hosts = self._hosts, []
        await asyncio.gather(*(host.close() for host in hosts))
        if self._returns is not None:
            await self._returns.close()
        await self._way.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ---- acting -----------------------------------------------------------------------------------------------------

    async def act(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """The result of whatever action matches. `message`: a pattern such as `role:math,cmd:sum`, or an object.

        Raises RemoteError, RequestTimeoutError, ConnectionLostError.
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
        """As `act`, with everything that came back."""
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
        """The answers of all services whose pattern matches, in order of arrival; failures among them are left out
        unless all failed, then the first is raised."""
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
        """To all whose pattern matches, expecting no result. Over HTTP it returns when the bus has stored the message;
        over TCP nothing says so. Raises RemoteError."""
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
    ) -> tuple[Reply, Hops]:
        members, pattern = _members(message, data)
        limit_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        outgoing, number = begin_request(
            self.sid, members, dict(custom or {}), pattern=pattern, multiple=multiple, timeout_ms=limit_ms
        )
        reply = await self._reply(outgoing, limit_ms / 1000)
        return reply, end_request(outgoing, number, _trk_of(outgoing, reply))

    async def _reply(self, outgoing: Outgoing, timeout_s: float) -> Reply:
        """In-band, or by the return path if there is one and the bus does not hold the call so long."""
        if self._returns is None or outgoing.multiple:
            reply = await self._way.call(outgoing, timeout_s)
            if reply.accepted:
                raise RemoteError("no_result", "the message was taken, and its answer will not come here")
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

    # ---- as the other wires have it ---------------------------------------------------------------------------------

    async def publish(self, pattern: str, payload: Payload = b"", *, confirm: bool = True) -> None:
        """As `send`: the payload is a JSON object that the pattern's keys are added to. What is none goes as its
        member `data`. The transport decides whether storing is confirmed, `confirm` does not: HTTP does, TCP cannot."""
        await self.send(pattern, _document(payload))

    async def publish_many(self, pattern: str, payloads: Iterable[Payload], *, confirm: bool = True) -> int:
        """Many at a time, in no order of their own; gives their number. The first refusal is raised when all were
        answered."""
        count = 0
        refusals: list[BaseException] = []
        for part in parts(payloads, AT_ONCE):
            sent = await asyncio.gather(*(self.publish(pattern, each) for each in part), return_exceptions=True)
            refusals += [result for result in sent if result is not None]
            count += len(part)
        if refusals:
            raise refusals[0]
        return count

    async def request(self, pattern: str, payload: Payload = b"", *, timeout_ms: int | None = None) -> bytes:
        """As `act`, with payloads: JSON text of the result, empty for none."""
        result = await self.act(pattern, _document(payload), timeout_ms=timeout_ms)
        return b"" if result is None else msgspec.json.encode(result)

    async def heartbeat(self) -> None:
        """Is the bus there? Returns if so, and everything sent before has been read."""
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
        """Listen for messages to a service, and attach its patterns to the bus, until the host is closed.

        Port 0: any. The bus calls it back at this address, so both must reach each other. Raises RemoteError when the
        bus refuses a pattern, ConfigError when the port cannot be had.
        """
        attached = Attached(self.address, self._options, service.pins, service.names)
        listening = SenecaHost(Performer(service, self.sid, run), attached.end if attach else None)
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
    """What goes into the document, and the pattern it was addressed with. Keys that end in `$` are Seneca's own."""
    if isinstance(message, str):
        found = codec.parse_pattern(message)
        if not found:
            raise NameInvalidError(message, "a message is addressed by a pattern such as role:math,cmd:sum")
        pattern = canonical_text(codec.pattern_of(found))
    else:
        found, pattern = dict(message), None
    whole = {**(data or {}), **found}
    return codec.raw_members({key: value for key, value in whole.items() if not key.endswith("$")}), pattern


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


def _trk_of(outgoing: Outgoing, reply: Reply) -> Hops | None:
    """Answers in other dialects have no `trk`; what they may say is who answered, and when."""
    if reply.rid is None or reply.received_ms is None or reply.answered_ms is None:
        return reply.hops
    stamp = Stamp(reply.rid, reply.received_ms, reply.answered_ms)
    return codec.filled_hops(outgoing.hops, outgoing.sid, outgoing.mid, reply, stamp)


def _answer_of(reply: Reply, trk: Hops, custom: Mapping[str, Any] | None) -> Answer:
    if reply.failure is not None:
        raise _error_of(reply)
    returned = dict(custom or {}) | decoded(reply.custom or {})
    return Answer(msgspec.json.decode(reply.payload or b"null"), returned, reply.rid, trk)


def _error_of(reply: Reply) -> RemoteError:
    failure = reply.failure
    assert failure is not None
    details = None if failure.details is None else msgspec.json.decode(failure.details)
    return RemoteError(failure.code, failure.message, details)
